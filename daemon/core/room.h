/*
 * Making room for a lease: FREE pages of a namespace, by whatever means, from the cheapest to the
 * dearest; and the sentence why there is none. In which order: docs/ARCHITECTURE.md, "Memory".
 * Loop thread only.
 */
#ifndef KVL_CORE_ROOM_H
#define KVL_CORE_ROOM_H

#include <stdbool.h>
#include <stdint.h>

struct ns;
struct detail;

/*
 * The slow part of a lease: fewer than `n` FREE pages in what is bound. `waited`: it was told
 * -EINPROGRESS before. 0: there are n now. -EINPROGRESS: sets are being made for it. Else why not:
 * KVL_STATUS_QUOTA, KVL_STATUS_FULL, -ENOMEM, -EIO, counted as a refusal. ns.keep_idle_sets is set:
 * ns_trim() after the pages were taken.
 */
int room_find(struct ns *ns, uint32_t n, bool waited, struct detail *d);

/*
 * Ahead of demand: what is stale is swept, sets are bound as far as they may, and where that isn't
 * `n` pages, as many idle ones are evicted as make `n_dear` FREE. ns.keep_idle_sets as above.
 */
void room_prepare(struct ns *ns, uint32_t n, uint32_t n_dear);

#endif
