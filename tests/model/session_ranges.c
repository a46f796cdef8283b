#include "tests/model/session_ranges.h"

/* Has a range any of the tokens from `first` on, before `end`? */
static bool range_has_any(
        const struct token_range *ranges, unsigned n, uint64_t first, uint64_t end)
{
        for (unsigned i = 0; i < n; i++)
                for (uint64_t token = first; token < end; token++)
                        if (token >= ranges[i].first && token < ranges[i].end)
                                return true;
        return false;
}

bool ranges_are_right(const struct text *t, const struct token_range *ranges, unsigned n)
{
        const struct token_range *last = &ranges[n - 1];
        uint64_t end = t->window_token;

        if (last->first > t->end || (last->end > t->end && last->end != TOKEN_RANGE_END))
                return false;
        if (!t->truncated)
                return true;
        if (range_has_any(ranges, n, t->head_end, t->window_token))
                return false;
        for (unsigned k = 0; k < t->window.n; k++) {
                const struct element *e = &t->window.e[k];

                if (range_has_any(ranges, n, end, e->end - e->tokens))
                        return false;
                end = e->end;
        }
        return true;
}

/* End of the kept part from the text's beginning. */
static uint64_t first_end_of(const struct token_range *ranges, unsigned n)
{
        uint64_t end = 0;

        for (unsigned i = 0; i < n && ranges[i].first == end; i++)
                end = ranges[i].end;
        return end;
}

/* Moves the kept pages of a list, from its page `from` on, to another one. Returns how many aren't
 * kept. */
static unsigned keep_some(const struct list *l, unsigned from, const struct token_range *ranges,
        unsigned n, struct list *to)
{
        unsigned n_left = 0;

        for (unsigned k = from; k < l->n; k++) {
                const struct element *e = &l->e[k];

                if (range_has_any(ranges, n, e->end - e->tokens, e->end))
                        to->e[to->n++] = *e;
                else
                        n_left++;
        }
        return n_left;
}

bool keep_ranges(struct text *t, const struct token_range *ranges, unsigned n, uint64_t *left)
{
        uint64_t total = t->truncated ? end_of(&t->window, t->window_token) : end_of(&t->head, 0);
        bool keeps_end = ranges[n - 1].end >= total;
        struct list window = {.n = 0};
        unsigned n_head = 0;

        if (t->head.n + t->window.n > MAX_LIST)
                return false;
        while (n_head < t->head.n &&
                t->head.e[n_head].end - t->head.e[n_head].tokens < first_end_of(ranges, n))
                n_head++;
        *left = keep_some(&t->head, n_head, ranges, n, &window);
        *left += keep_some(&t->window, 0, ranges, n, &window);
        if (*left == 0 && (!t->truncated || keeps_end))
                return true;
        if (!t->truncated || n_head < t->head.n)
                t->head_end = n_head > 0 ? t->head.e[n_head - 1].end : 0;
        t->head.n = n_head;
        t->window_token = window.n > 0 ? window.e[0].end - window.e[0].tokens : total;
        t->window = window;
        t->truncated = keeps_end || window.n > 0;
        t->end = keeps_end ? t->end : end_of(&window, t->head_end);
        return true;
}

/* Draws any ranges, in order or not. */
static unsigned draw_any_ranges(struct token_range *ranges)
{
        unsigned n = rnd(5);
        uint64_t at = 0;

        for (unsigned i = 0; i < n; i++) {
                uint64_t first = at + rnd(4 * PAGE_TOKENS);

                at = first + rnd(8 * PAGE_TOKENS);
                ranges[i] = (struct token_range){first, i + 1 == n && rnd(2) ? UINT64_MAX : at};
                at -= rnd(16) == 0;
        }
        return n;
}

unsigned draw_ranges(const struct text *t, struct token_range *ranges)
{
        unsigned n = 0, most = 1 + rnd(6);

        if (rnd(3) == 0)
                return draw_any_ranges(ranges);
        for (unsigned k = 0; k < t->head.n + t->window.n && n < MAX_RANGES; k++) {
                const struct element *e =
                        k < t->head.n ? &t->head.e[k] : &t->window.e[k - t->head.n];
                uint64_t first = e->end - e->tokens;

                if (rnd(most) == 0)
                        continue;
                if (n > 0 && rnd(2) && ranges[n - 1].end == first)
                        ranges[n - 1].end = e->end;
                else
                        ranges[n++] = (struct token_range){first, e->end};
        }
        if (n > 0 && ranges[n - 1].end == t->end && rnd(2))
                ranges[n - 1].end = UINT64_MAX;
        return n;
}

bool is_in_order(const struct token_range *ranges, unsigned n)
{
        for (unsigned i = 0; i < n; i++)
                if (ranges[i].first >= ranges[i].end ||
                        (i > 0 && ranges[i].first < ranges[i - 1].end))
                        return false;
        return n > 0;
}
