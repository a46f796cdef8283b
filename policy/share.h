/*
 * Who gives way: weighted fair share of a device between tenants. PURE.
 */
#ifndef KVL_POLICY_SHARE_H
#define KVL_POLICY_SHARE_H

#include <stddef.h>
#include <stdint.h>

struct share_tenant {
        uint64_t charged_bytes;
        uint32_t weight;   /* 1..1000 */
        uint32_t priority; /* 0..100; the lower gives way first among equals */
};

/*
 * Index of the tenant with the most bytes charged per weight, ties to the lower priority, then the
 * lower index; SIZE_MAX where n is 0 or nobody holds anything. Exact: compares by 128-bit products.
 */
size_t share_furthest_over(const struct share_tenant *tenants, size_t n);

#endif
