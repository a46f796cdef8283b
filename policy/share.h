/*
 * Who may grow and who gives way: weighted max-min fair share of the dynamic pool. PURE.
 *
 * A tenant's *fair* share is what max-min gives it: the capacity is filled evenly per weight until
 * a tenant has what it demands or nothing is left; so a tenant's unused share goes to the others.
 * Source: max-min fairness by water-filling, Bertsekas & Gallager, Data Networks, 6.5.2.
 */
#ifndef KVL_POLICY_SHARE_H
#define KVL_POLICY_SHARE_H

#include <stddef.h>
#include <stdint.h>

struct share_tenant {
        uint64_t held_bytes;   /* of the dynamic pool: what is charged beyond the reservation */
        uint64_t demand_bytes; /* what it would hold: held_bytes where it wants no more; UINT64_MAX:
                                  all it can get */
        uint32_t weight;       /* 1..1000 */
        uint32_t priority;     /* 0..100; the lower gives way first among equals */
};

/*
 * ret_fair[i] for each tenant: at most demand_bytes, in sum at most the capacity, and exactly that
 * where the demands reach it. Each is within n bytes of the exact fraction; what rounding gives
 * goes to who demands less per weight, then the lower index. O(n log n) time, no memory but an
 * index in `order` (n entries, scratch of the caller).
 */
void share_fair(const struct share_tenant *tenants, size_t n, uint64_t capacity_bytes,
        uint64_t *ret_fair, uint32_t *order);

/*
 * The tenant furthest over its fair share, per weight: the largest (held - fair) / weight > 0, ties
 * to the lower priority, then the lower index. Those with skip[i] != 0 are left out (skip may be
 * NULL). SIZE_MAX: nobody is over. Exact: compares by 128-bit products.
 */
size_t share_furthest_over(
        const struct share_tenant *tenants, const uint64_t *fair, const uint8_t *skip, size_t n);

#endif
