/*
 * Makes FREE pages for a lease, and explains a refusal. docs/develop/ARCHITECTURE.md ("Making
 * room") has the order of the steps. Loop thread only.
 */
#ifndef KVL_CORE_ROOM_H
#define KVL_CORE_ROOM_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/core/memory/region.h"

struct attach;
struct claim;
struct detail;
struct ns;
struct pool;
struct pool_share;

/*
 * The slow path of a lease: the bound sets have fewer than `n` FREE pages. `waited`: an earlier
 * call returned -EINPROGRESS. Idle sets that the lease doesn't take are freed afterwards
 * (memory/idle-sets.h). Counts nothing in statistics. Returns 0: there are n now. -EINPROGRESS
 * (DEVICE): sets are being made for it. With *ret_reason and the sentence: KVL_STATUS_QUOTA,
 * KVL_STATUS_RESERVATION, KVL_STATUS_FULL: memory may become free, because other tenants are giving
 * it back or will release it; -ENOMEM, -EIO (*ret_reason: DEVICE).
 */
int room_find(
        struct attach *a, uint32_t n, bool waited, enum lease_reason *ret_reason, struct detail *d);

/* Could `n` pages be had at the same time if all others gave their memory back, except
 * reservations? Returns 0; otherwise KVL_STATUS_QUOTA, KVL_STATUS_RESERVATION or KVL_STATUS_FULL
 * with the sentence: the bytes needed, the limit, and the remedy. Waiting doesn't help. */
int room_check(const struct ns *ns, uint32_t n, struct detail *d);

/* Returns the pages that a lease would get at once without taking memory of others, if `idle` of
 * the namespace's cached pages can be evicted. O(shares of the pool). */
uint64_t room_leasable(const struct ns *ns, uint64_t idle);

/* Binds the sets for n pages with consecutive numbers, if all of them are admitted without taking
 * memory of others. Returns 0: all are bound, or none; -EINPROGRESS: they are being made. */
int room_bind_run(struct ns *ns, uint32_t n);

/* After one more set is bound, would limit, reservation and pool admit another? The last one isn't
 * bound without need: a lease may need it now, and it can't be taken back while it is being made.
 */
bool room_leaves_another(const struct ns *ns);

/* Prepares pages ahead of demand. Sweeps stale pages, and binds sets as far as admitted (with a
 * queue and n_dear 0, except the last one). If that gives fewer than `n` pages, it does more to
 * make `n_dear` FREE: it takes the part that the share is entitled to from others (region.h), and
 * evicts idle pages. */
void room_prepare(struct ns *ns, uint32_t n, uint32_t n_dear);

/* ---- taking memory back from others ---------------------------------------------------------- */

/* For reservations, and for shares that are entitled to memory. memory/region.h computes shares and
 * changes nothing. */

/*
 * Finds memory for a share that is within its reservation, or entitled to `bytes` more by fair
 * share; otherwise it does nothing. Frees unmapped sets of the share that exceeds its share most at
 * once. Recalls mapped sets, whose clients all use safe points, for the missing part of
 * share.wanted_bytes (soft: recall.h). Takes nothing of `spare` (NULL: none). Requires
 * region_note_want(). Returns true if `bytes` are admitted for the claim now.
 */
bool region_make_room(
        struct pool_share *s, const struct ns *spare, uint64_t bytes, const struct claim *claim);

/* Reserves `bytes`, rounded up to extent_bytes, for the share. Takes effect at once; region_work()
 * takes the memory back from other shares. Returns 0; -ENOSPC: it doesn't fit the budget beside the
 * other reservations, with a sentence that says how much is left and which tenants hold the rest.
 */
int region_reserve(struct pool_share *s, uint64_t bytes, struct detail *d);

/* Takes back the memory that reservations lack, and lent memory that its owner wants. Frees
 * unmapped sets of the share that exceeds its share most at once. Recalls mapped sets, softly if
 * all clients use safe points, else with a deadline. A soft recall gets a deadline after a second.
 * Cheap if nothing is missing. */
void region_work(struct pool *pool);

#endif
