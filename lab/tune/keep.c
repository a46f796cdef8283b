#include "lab/tune/keep.h"

#include <stddef.h>

#include "client/examples/decoder/scores.h"

/* The choice of pages to keep; the newest page always stays. */
struct choice {
        const bool *is_kept;
        uint32_t n_pages, n_kept, newest;
        const struct scores *scores;
        uint32_t layer;
};

static uint32_t next_kept(const struct choice *c, uint32_t from)
{
        while (!c->is_kept[from])
                from++;
        return from;
}

static uint32_t choose_oldest(const struct choice *c)
{
        return next_kept(c, 0);
}

static uint32_t choose_behind_first(const struct choice *c)
{
        uint32_t next = next_kept(c, 1);

        return next < c->newest ? next : choose_oldest(c);
}

/* Looks between the first kept page and the newest. Returns the oldest of equal ones. */
static uint32_t choose_most_crowded(const struct choice *c)
{
        uint32_t before = next_kept(c, 0), best = before, least = UINT32_MAX;

        for (uint32_t page = next_kept(c, before + 1); page < c->newest;) {
                uint32_t after = next_kept(c, page + 1);

                if (after - before < least) {
                        least = after - before;
                        best = page;
                }
                before = page;
                page = after;
        }
        return best;
}

static uint32_t choose_least_attended(const struct choice *c)
{
        return scores_least(c->scores, c->layer, c->is_kept, c->n_pages);
}

static uint32_t (*const rules[])(const struct choice *c) = {
        [KEEP_LAST] = choose_oldest,
        [KEEP_WINDOW] = choose_behind_first,
        [KEEP_STRIDE] = choose_most_crowded,
        [KEEP_ATTENTION] = choose_least_attended,
};

uint32_t keep_next_to_go(enum keep_rule rule, const bool *is_kept, uint32_t n_pages,
        const struct scores *scores, uint32_t layer)
{
        struct choice c = {
                .is_kept = is_kept, .n_pages = n_pages, .scores = scores, .layer = layer};

        for (uint32_t i = 0; i < n_pages; i++) {
                if (!is_kept[i])
                        continue;
                c.n_kept++;
                c.newest = i;
        }
        return c.n_kept < 2 ? KEEP_NONE : rules[rule](&c);
}
