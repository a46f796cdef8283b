/*
 * Tenants that may grow, and tenants that must shrink: weighted max-min fair share of the dynamic
 * pool. PURE.
 *
 * A tenant's *fair* share is by max-min: the capacity is filled evenly per weight until a tenant
 * has its demand or nothing is left. So a tenant's unused share goes to the others. Source: max-min
 * fairness by water-filling, Bertsekas & Gallager, Data Networks, 6.5.2.
 */
#ifndef KVL_POLICY_SHARE_H
#define KVL_POLICY_SHARE_H

#include <stddef.h>
#include <stdint.h>

struct share_tenant {
        uint64_t held_bytes;   /* of the dynamic pool: charged beyond the reservation */
        uint64_t demand_bytes; /* its demand: held_bytes if it wants no more; UINT64_MAX: all it can
                                  get */
        uint32_t weight;       /* 1..1000 */
        uint32_t priority;     /* 0..100; the lower shrinks first among equals */
};

/*
 * Sets ret_fair[i] for each tenant: at most demand_bytes, in sum at most the capacity, and exactly
 * that if the demands reach it. Each is within n bytes of the exact fraction. Rounded bytes go to
 * the tenant with less demand per weight, then the lower index. O(n log n) time; `order` is scratch
 * memory of n entries.
 */
void share_fair(const struct share_tenant *tenants, size_t n, uint64_t capacity_bytes,
        uint64_t *ret_fair, uint32_t *order);

/*
 * The tenant furthest over its fair share, per weight: the largest (held - fair) / weight > 0, ties
 * to the lower priority, then the lower index. Tenants with skip[i] != 0 are left out (skip may be
 * NULL). SIZE_MAX: none is over. Exact: compares by 128-bit products.
 */
size_t share_furthest_over(
        const struct share_tenant *tenants, const uint64_t *fair, const uint8_t *skip, size_t n);

#endif
