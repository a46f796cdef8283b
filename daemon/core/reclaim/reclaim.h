/*
 * Evicts cached pages, and frees sets, for a lease that needs pages, as policy/ decides. Only idle
 * cached pages are evicted. Only sets that no client has mapped leave their namespace: memory under
 * a live mapping is never taken.
 */
#ifndef KVL_CORE_RECLAIM_H
#define KVL_CORE_RECLAIM_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/core/state/ns.h"
#include "policy/tier.h"

struct ns;
struct pool_share;
struct tenant;

/* Evicts idle leaves of ns, oldest first, until it has `n` FREE pages. Returns true on success. */
bool reclaim_pages(struct ns *ns, uint32_t n, uint64_t now_nsec);

/*
 * The next functions free whole unmapped sets, those first whose loss takes the least out of the
 * cache; none without memory to weigh them. No page in a freed set is granted or pinned. No page
 * below it in the tree is either, as of the last weighing. A namespace of more than some thousand
 * pages is weighed once in 10 ms for each 4,096.
 *
 * A large tenant has more pages than can be looked at in an iteration of the event loop (128
 * slices). Then they look at some sets, from the one bound last on, and at others the next time.
 * They free the cheapest of these sets. They may find none although there is one, and leave a set
 * alone on which more than 1,024 pages in other sets build.
 */

/* Frees sets of the tenant, in any pool of the tier, until `bytes` more fit the tenant's limit.
 * Spares sets of `spare`, whose lease it is; NULL: no lease. Returns true if they fit. Also returns
 * false while memory over the limit is being taken back already. */
bool reclaim_sets_of_tenant(
        struct tenant *t, enum tier_kind tier, const struct ns *spare, uint64_t bytes);

/*
 * Brings the tenant within its limits, in each tier. Frees sets at once, of any namespace, until
 * they hold a slice of pages (store.drop_slice_pages) in sum. Recalls as many of the rest as
 * necessary, the cheapest first (recall_over_limit()), for recall_work(). For a large tenant (over
 * 128 slices, see above) it only recalls, the sets with the fewest pages in use first. Meanwhile
 * the other functions take no sets of the tenant in that tier.
 */
void reclaim_over_limits(struct tenant *t);

/* Frees a set of the tenant, on any device, except of `spare`, for its own lease. Returns true if
 * less is charged to it then. */
bool reclaim_set_of_tenant(struct tenant *t, const struct ns *spare);

/* Frees a set of the share, except of `spare`, for a lease of `by` (NULL: no lease). Returns true
 * if less is charged to it then. */
bool reclaim_set_of_share(
        struct pool_share *victim, const struct ns *spare, const struct tenant *by);

/* Looks at up to `budget` page records of the namespace, and frees or detaches those that became
 * unfindable all at once (ns_invalidate()). Returns true while there are more. */
bool ns_sweep(struct ns *ns, uint32_t budget);

#endif
