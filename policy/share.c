#include "policy/share.h"

#include <assert.h>
#include <stdbool.h>

typedef unsigned __int128 u128;

/* Does `a` reach its demand at a lower level of filling than `b`? */
static bool fills_first(const struct share_tenant *tenants, uint32_t a, uint32_t b)
{
        u128 a_scaled = (u128)tenants[a].demand_bytes * tenants[b].weight;
        u128 b_scaled = (u128)tenants[b].demand_bytes * tenants[a].weight;

        return a_scaled != b_scaled ? a_scaled < b_scaled : a < b;
}

/* Down from `top` in a heap whose root fills last. */
static void sift_down(const struct share_tenant *tenants, uint32_t *order, size_t top, size_t n)
{
        for (size_t child; (child = 2 * top + 1) < n; top = child) {
                uint32_t t;

                if (child + 1 < n && fills_first(tenants, order[child], order[child + 1]))
                        child++;
                if (!fills_first(tenants, order[top], order[child]))
                        return;
                t = order[top];
                order[top] = order[child];
                order[child] = t;
        }
}

/* A heap sort: no memory, no recursion. */
static void sort_by_level(const struct share_tenant *tenants, uint32_t *order, size_t n)
{
        for (size_t i = 0; i < n; i++)
                order[i] = (uint32_t)i;
        for (size_t i = n / 2; i-- > 0;)
                sift_down(tenants, order, i, n);
        for (size_t end = n; end-- > 1;) {
                uint32_t t = order[0];

                order[0] = order[end];
                order[end] = t;
                sift_down(tenants, order, 0, end);
        }
}

void share_fair(const struct share_tenant *tenants, size_t n, uint64_t capacity_bytes,
        uint64_t *ret_fair, uint32_t *order)
{
        uint64_t weights = 0;

        for (size_t i = 0; i < n; i++) {
                assert(tenants[i].weight > 0);
                weights += tenants[i].weight;
        }
        sort_by_level(tenants, order, n);
        for (size_t k = 0; k < n; k++) {
                const struct share_tenant *t = &tenants[order[k]];
                /* Divides the rest by weight among the remaining tenants. Rounded up: the first
                 * gets it. */
                uint64_t even =
                        (uint64_t)(((u128)capacity_bytes * t->weight + weights - 1) / weights);
                uint64_t fair = even < t->demand_bytes ? even : t->demand_bytes;

                ret_fair[order[k]] = fair;
                capacity_bytes -= fair;
                weights -= t->weight;
        }
}

/* Must a, further over by weight than b, shrink first? */
static bool gives_way_first(const struct share_tenant *a, uint64_t a_over,
        const struct share_tenant *b, uint64_t b_over)
{
        u128 a_scaled = (u128)a_over * b->weight, b_scaled = (u128)b_over * a->weight;

        if (a_scaled != b_scaled)
                return a_scaled > b_scaled;
        return a->priority < b->priority;
}

size_t share_furthest_over(
        const struct share_tenant *tenants, const uint64_t *fair, const uint8_t *skip, size_t n)
{
        size_t found = SIZE_MAX;

        for (size_t i = 0; i < n; i++) {
                assert(tenants[i].weight > 0);
                if (tenants[i].held_bytes <= fair[i] || (skip && skip[i]))
                        continue;
                if (found == SIZE_MAX ||
                        gives_way_first(&tenants[i], tenants[i].held_bytes - fair[i],
                                &tenants[found], tenants[found].held_bytes - fair[found]))
                        found = i;
        }
        return found;
}
