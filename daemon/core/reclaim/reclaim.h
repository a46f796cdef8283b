/*
 * Making room: which cached pages and which sets give way when a lease needs pages. Applies what
 * policy/ decides. Only idle cached pages are touched, and only sets that no client has mapped
 * leave their namespace: memory under a live mapping is never taken.
 */
#ifndef KVL_CORE_RECLAIM_H
#define KVL_CORE_RECLAIM_H

#include <stdbool.h>
#include <stdint.h>

#include "policy/tier.h"

struct ns;
struct stake;
struct tenant;

/*
 * Evicts idle leaves of ns, oldest first, until it has `n` FREE pages. True where it does.
 */
bool reclaim_pages(struct ns *ns, uint32_t n, uint64_t now_nsec);

/*
 * What follows frees whole unmapped sets, first the ones that take the least out of the cache with
 * them; without memory to find these out, none. Nothing in a set that is freed is granted or
 * pinned, nor, as far as that was so when it was looked for, is anything below it in the tree: in a
 * namespace of more than some thousand pages that is looked for once in 10 ms for each 4,096.
 *
 * Of a tenant with more pages than can be looked at in a turn (128 slices) these functions look at
 * some sets, from the one that was bound last on, and at others the next time: the set that is
 * freed is the cheapest of these, and there may be none although there is one. A set upon whose
 * pages more than 1,024 in other sets are built is left alone then.
 */

/* The tenant's limit of a tier is in the way of `bytes` more: of this tenant, in any pool of that
 * tier, until they fit. Sets of `spare`, whose lease it is, are left alone; NULL: nobody's lease.
 * True where they fit. False also while what is over the limit already is being taken back. */
bool reclaim_sets_of_tenant(
        struct tenant *t, enum tier_kind tier, const struct ns *spare, uint64_t bytes);

/*
 * The tenant may be over its limits: in each tier. As many sets as hold a slice of pages
 * (store.drop_slice_pages) in sum go at once, of any namespace; of the rest as many are recalled as
 * are too many, first those that would have gone (recall_excess()), and go in recall_work(). Where
 * the tenant has more pages than can be looked at in a turn (128 slices), all of it is recalled,
 * those sets first that have the fewest pages in use. While
 * that is under way the functions beside this one take no other sets of the tenant in that tier.
 */
void reclaim_over_limits(struct tenant *t);

/* One set of the tenant, on any device, not of `spare`, for a lease of its own. True where less is
 * charged to it after. */
bool reclaim_set_of_tenant(struct tenant *t, const struct ns *spare);

/* One set of what the stake has, not of `spare`, for a lease of `by` (NULL: nobody's). True where
 * less is charged to it after. */
bool reclaim_set_of_stake(struct stake *victim, const struct ns *spare, const struct tenant *by);

#endif
