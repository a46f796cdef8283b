#include "policy/compact.h"

#include <assert.h>

static uint32_t live_pages(const struct compact_set *set)
{
        assert(set->n_free <= set->n_usable);
        return set->n_usable - set->n_free;
}

uint64_t compact_scattered(const struct compact_set *sets, size_t n)
{
        uint64_t sum = 0;

        for (size_t i = 0; i < n; i++)
                if (live_pages(&sets[i]) > 0)
                        sum += sets[i].n_free;
        return sum;
}

size_t compact_choose(const struct compact_set *sets, size_t n)
{
        uint64_t scattered = compact_scattered(sets, n);
        size_t found = SIZE_MAX;

        for (size_t i = 0; i < n; i++) {
                const struct compact_set *s = &sets[i];

                if (live_pages(s) == 0 || live_pages(s) > s->n_usable / 4)
                        continue;
                if (s->n_movable != live_pages(s) || live_pages(s) > scattered - s->n_free)
                        continue;
                if (found == SIZE_MAX || live_pages(s) < live_pages(&sets[found]))
                        found = i;
        }
        return found;
}
