#include "policy/share.h"

#include <assert.h>
#include <stdbool.h>

/* Is `a` further over its share than `b`? */
static bool is_further_over(const struct share_tenant *a, const struct share_tenant *b)
{
        unsigned __int128 a_scaled = (unsigned __int128)a->charged_bytes * b->weight;
        unsigned __int128 b_scaled = (unsigned __int128)b->charged_bytes * a->weight;

        if (a_scaled != b_scaled)
                return a_scaled > b_scaled;
        return a->priority < b->priority;
}

size_t share_furthest_over(const struct share_tenant *tenants, size_t n)
{
        size_t found = SIZE_MAX;

        for (size_t i = 0; i < n; i++) {
                assert(tenants[i].weight > 0);
                if (tenants[i].charged_bytes == 0)
                        continue;
                if (found == SIZE_MAX || is_further_over(&tenants[i], &tenants[found]))
                        found = i;
        }
        return found;
}
