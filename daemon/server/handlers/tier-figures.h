/* Figures of the tiers below devices, and of prefetched pages, for administrators. */
#ifndef KVL_SERVER_TIER_FIGURES_H
#define KVL_SERVER_TIER_FIGURES_H

#include "policy/prefetch.h"
#include "policy/tier.h"
#include "proto/figures.h"

struct arena;
struct ns;
struct pool;
struct store;
struct tenant;

/* Fills `host` and `disk` of the row, all FIGURE_NONE without such a tier, and the texts on disks.
 * Returns 0 or -ENOMEM. */
int tier_figures_of_store(
        struct arena *arena, const struct store *s, struct figures_status *ret_row);

/* Fills in the tenant's figures of a tier (TIER_HOST, TIER_DISK), also if no device has such a
 * tier. */
void tier_figures_of_tenant(
        const struct tenant *t, enum tier_kind kind, struct figures_tier *ret_tier);

/* The namespace's figures of a tier; FIGURE_NONE without such a tier. */
void tier_figures_of_ns(const struct ns *ns, enum tier_kind kind, struct figures_tier *ret_tier);

/* Fills `disk`, `state` and `why` of the row if the pool is on a disk; else `disk` is FIGURE_NONE.
 * Returns 0 or -ENOMEM. */
int tier_figures_of_disk(
        struct arena *arena, const struct pool *pool, struct figures_device *ret_row);

/* Sums up the prefetched pages of one kind, of all namespaces on a device or of one namespace.
 * FIGURE_NONE if the device has no lower tier. */
void prefetch_figures_of_pool(const struct store *s, const struct pool *pool,
        enum prefetch_kind kind, struct figures_prefetch *ret);
void prefetch_figures_of_ns(
        const struct ns *ns, enum prefetch_kind kind, struct figures_prefetch *ret);

#endif
