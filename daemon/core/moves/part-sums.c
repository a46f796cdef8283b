#include "daemon/core/moves/part-sums.h"

#include <stdlib.h>

#include "daemon/core/state/ns.h"
#include "daemon/tier/mover.h"

/* set.part_sums has a row for each page: its generation (0: unknown), and the sums. */

static uint32_t count_parts(const struct extent_set *set)
{
        const struct ns *ns = set->ns;

        return page_parts_count(
                &ns->codecs.of_pages, &ns->layout, tier_of_set(&ns->geometry, set->index));
}

static uint64_t *row_of(const struct extent_set *set, uint32_t page)
{
        uint32_t at = page % set->ns->geometry.set_pages;

        return set->part_sums + (size_t)at * (1 + count_parts(set));
}

bool part_sums_are_known(const struct extent_set *set, uint32_t page)
{
        return set->part_sums && row_of(set, page)[0] == set_page(set, page)->generation;
}

const uint64_t *part_sums_of(const struct extent_set *set, uint32_t page)
{
        return row_of(set, page) + 1;
}

void part_sums_note(struct extent_set *set, uint32_t page, const struct move_plane *parts)
{
        uint32_t n = count_parts(set);
        uint64_t *row;

        if (!set->part_sums)
                set->part_sums = calloc(
                        (size_t)set->ns->geometry.set_pages * (1 + n), sizeof(*set->part_sums));
        if (!set->part_sums)
                return;
        row = row_of(set, page);
        row[0] = set_page(set, page)->generation;
        for (uint32_t i = 0; i < n; i++)
                row[1 + i] = parts[i].sum;
}
