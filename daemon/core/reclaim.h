/*
 * Making room: which cached pages and which sets give way when a lease needs pages. Applies what
 * policy/ decides. Only idle cached pages are touched, and only sets that no client has mapped
 * leave their namespace: memory under a live mapping is never taken.
 */
#ifndef KVL_CORE_RECLAIM_H
#define KVL_CORE_RECLAIM_H

#include <stdbool.h>
#include <stdint.h>

struct ns;
struct pool;
struct tenant;

/*
 * Evicts idle leaves of ns, oldest first, until it has `n` FREE pages. True where it does. The
 * caller has set ns.keep_idle_sets, or a set emptied this way would be given back before it can be
 * used.
 */
bool reclaim_pages(struct ns *ns, uint32_t n, uint64_t now_nsec);

/*
 * Frees whole unmapped sets until `bytes` more fit, first the ones that take the least out of the
 * cache with them; without memory to find these out, none. Sets of `spare` are left alone. True
 * where they fit. Nothing in a set that is freed is granted or pinned, nor is anything below it in
 * the tree.
 */

/* The tenant's limit is in the way: of this tenant, on any device. spare NULL: none. */
bool reclaim_sets_of_tenant(struct tenant *t, const struct ns *spare, uint64_t bytes);

/*
 * The device is full: of the tenant furthest over its weighted share of it, then of the next one,
 * as far as the tenant of `spare` itself. Who is no further over than the one that asks keeps it
 * (equals by priority: the lower one gives way).
 */
bool reclaim_sets_of_pool(struct pool *pool, const struct ns *spare, uint64_t bytes);

#endif
