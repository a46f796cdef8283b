#include "daemon/core/ground/pin-counts.h"

#include "base/array.h"
#include "base/macros.h"
#include "daemon/core/ground/page.h"

int pin_counts_reserve(struct pin_counts *c, uint32_t capacity_pages)
{
        void *counts = c->counts;
        int r = array_reserve(&counts, &c->len, capacity_pages, capacity_pages, sizeof(*c->counts));

        c->counts = counts;
        return r;
}

void pin_counts_deinit(struct pin_counts *c)
{
        array_free(c->counts, c->len, sizeof(*c->counts));
        *c = (struct pin_counts){0};
}

uint32_t pin_counts_next(const struct pin_counts *c, uint32_t *iter, uint32_t max)
{
        for (; max > 0 && *iter < c->len; max--)
                if (c->counts[(*iter)++] > 0)
                        return *iter - 1;
        return PAGE_NONE;
}
