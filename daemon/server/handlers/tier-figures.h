/* Figures of the tiers below devices for administrators: AdminTier messages in the answer's
 * arena. */
#ifndef KVL_SERVER_TIER_FIGURES_H
#define KVL_SERVER_TIER_FIGURES_H

#include "policy/prefetch.h"
#include "policy/tier.h"
#include "proto/kvlease.pb-c.h"

struct arena;
struct ns;
struct pool;
struct store;
struct tenant;

/*
 * Figures of a tier (TIER_HOST, TIER_DISK): of all pools; of a tenant, also if no device has such a
 * tier; of a namespace. Return 0 (*ret NULL: there is no such tier) or -ENOMEM.
 */
int tier_figures_of_store(struct arena *arena, const struct store *s, enum tier_kind kind,
        Kvlease__V1__AdminTier **ret);
int tier_figures_of_tenant(struct arena *arena, const struct tenant *t, enum tier_kind kind,
        Kvlease__V1__AdminTier **ret);
int tier_figures_of_ns(struct arena *arena, const struct ns *ns, enum tier_kind kind,
        Kvlease__V1__AdminTier **ret);

/* The state, bytes and failures of one disk. Returns 0 (*ret NULL: the pool isn't on a disk) or
 * -ENOMEM. */
int tier_figures_of_disk(
        struct arena *arena, const struct pool *pool, Kvlease__V1__AdminTier **ret);

/*
 * Figures of pages that were prefetched, by enum prefetch_kind: of all namespaces on a device, or
 * of one namespace. Returns 0 (all NULL if the device has no lower tier) or -ENOMEM.
 */
int prefetch_figures_of_pool(struct arena *arena, const struct store *s, const struct pool *pool,
        Kvlease__V1__AdminPrefetch *ret[PREFETCH_KINDS]);
int prefetch_figures_of_ns(
        struct arena *arena, const struct ns *ns, Kvlease__V1__AdminPrefetch *ret[PREFETCH_KINDS]);

#endif
