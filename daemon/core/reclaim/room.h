/*
 * Makes FREE pages for a lease, and explains a refusal. docs/ARCHITECTURE.md ("Making room") has
 * the order of the steps. Loop thread only.
 */
#ifndef KVL_CORE_ROOM_H
#define KVL_CORE_ROOM_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/core/quota/region.h"

struct ns;
struct attach;
struct detail;

/*
 * The slow part of a lease: fewer than `n` FREE pages in what is bound. `waited`: it was told
 * -EINPROGRESS before. 0: there are n now. -EINPROGRESS (DEVICE): sets are being made for it. Else
 * why not: KVL_STATUS_QUOTA, KVL_STATUS_RESERVATION, KVL_STATUS_FULL with *ret_reason and the
 * sentence (room may come: what others give back is under way, or will be let go), -ENOMEM, -EIO
 * (*ret_reason: DEVICE). Nothing is counted. Idle sets that the lease doesn't take go when it is
 * over (memory/settle.h).
 */
int room_find(
        struct attach *a, uint32_t n, bool waited, enum lease_reason *ret_reason, struct detail *d);

/*
 * Could `n` pages be had together, if everybody else gave way, but for what is reserved for others?
 * 0; else KVL_STATUS_QUOTA, KVL_STATUS_RESERVATION, KVL_STATUS_FULL with the sentence: what they
 * take, what it is more than, and the remedy. Waiting doesn't help.
 */
int room_check(const struct ns *ns, uint32_t n, struct detail *d);

/* Pages that a lease would get at once, and without anybody else giving way, where `idle` of those
 * that are cached in the namespace can be evicted. O(stakes of the pool). */
uint64_t room_leasable(const struct ns *ns, uint64_t idle);

/*
 * Binds as many sets as n pages with consecutive numbers need, where all of them are admitted with
 * nobody giving way. 0: they are bound, or none is; -EINPROGRESS: they are being made.
 */
int room_bind_run(struct ns *ns, uint32_t n);

/*
 * Without need the last set of a limit, a reservation or a pool isn't bound: it is for who needs
 * it now, and nobody can take it back while it is being made. False: it would be the last.
 */
bool room_leaves_another(const struct ns *ns);

/*
 * Ahead of demand: what is stale is swept, sets are bound as far as they may (on a queue, with
 * n_dear 0, but for the last one), and where that isn't `n` pages, others give what is deserved
 * (region.h) of `n_dear`, and as many idle ones are evicted as make `n_dear` FREE.
 */
void room_prepare(struct ns *ns, uint32_t n, uint32_t n_dear);

#endif
