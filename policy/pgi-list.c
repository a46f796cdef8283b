#include "policy/pgi-list.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/macros.h"

int pgi_lists_init(struct pgi_lists *l, uint32_t n_shelves, uint32_t n_costs)
{
        assert(n_costs == 1 || n_costs == RECOMPUTE_BINS);

        *l = (struct pgi_lists){.n_rows = n_shelves * n_costs * PGI_ROWS, .n_costs = n_costs};
        l->heads = calloc((size_t)l->n_rows * PGI_INTERVALS, sizeof(*l->heads));
        l->used = calloc(l->n_rows, sizeof(*l->used));
        if (l->heads && l->used)
                return 0;
        pgi_lists_deinit(l);
        return -ENOMEM;
}

void pgi_lists_deinit(struct pgi_lists *l)
{
        free(l->heads);
        free(l->used);
        array_free(l->costs, l->costs_len, sizeof(*l->costs));
        *l = (struct pgi_lists){0};
}

int pgi_lists_reserve(struct pgi_lists *l, uint32_t n)
{
        void *costs = l->costs;
        int r;

        if (l->n_costs == 1)
                return 0;
        r = array_reserve(&costs, &l->costs_len, n, NODE_NONE - 1, sizeof(*l->costs));
        l->costs = costs;
        return r;
}

uint64_t pgi_lists_bytes(const struct pgi_lists *l)
{
        return l->n_rows * (PGI_INTERVALS * sizeof(*l->heads) + sizeof(*l->used));
}

void pgi_lists_clear(struct pgi_lists *l)
{
        memset(l->heads, 0, (size_t)l->n_rows * PGI_INTERVALS * sizeof(*l->heads));
        memset(l->used, 0, l->n_rows * sizeof(*l->used));
        memset(l->start, 0, sizeof(l->start));
        l->n = 0;
}

uint32_t pgi_interval_of(const struct pgi_lists *l, uint32_t touched)
{
        uint32_t from = 0, to = l->n, middle;

        assert(l->n > 0);

        if (touched >= l->start[l->n - 1])
                return l->n - 1;
        while (to - from > 1) {
                middle = (from + to) / 2;
                if (l->start[middle] <= touched)
                        from = middle;
                else
                        to = middle;
        }
        return from;
}

static uint32_t row_of(const struct pgi_lists *l, const struct pgi_page *pages, uint32_t page)
{
        const struct pgi_page *p = &pages[page];

        return pgi_row(l, p->shelf_1 - 1U, pgi_cost_bin(l, page), p->class);
}

/* The list of a page that lies on a shelf. */
static struct pgi_heads *list_of(struct pgi_lists *l, const struct pgi_page *pages, uint32_t page,
        uint32_t *ret_row, uint32_t *ret_interval)
{
        *ret_row = row_of(l, pages, page);
        *ret_interval = pgi_interval_of(l, pages[page].touched);
        return &l->heads[*ret_row * PGI_INTERVALS + *ret_interval];
}

/* The second list follows the first one's end. */
static void append_list(struct pgi_page *pages, struct pgi_heads *to, const struct pgi_heads *what)
{
        if (what->first_1 == 0)
                return;
        if (to->first_1 == 0) {
                *to = *what;
                return;
        }
        pages[to->last_1 - 1].next_1 = what->first_1;
        pages[what->first_1 - 1].prev_1 = to->last_1;
        to->last_1 = what->last_1;
}

/* Merges bit i + 1 into bit i, and shifts the higher bits down by one. */
static uint64_t join_bits(uint64_t bits, uint32_t i)
{
        uint64_t low = bits & ((UINT64_C(2) << i) - 1), high = bits >> i >> 1;

        return low | (high & 1) << i | high >> 1 << i << 1;
}

static void join_intervals(struct pgi_lists *l, struct pgi_page *pages, uint32_t i)
{
        uint32_t n_after = l->n - i - 2;

        for (uint32_t row = 0; row < l->n_rows; row++) {
                struct pgi_heads *h = &l->heads[row * PGI_INTERVALS + i];

                if (l->used[row] >> i >> 1 == 0)
                        continue;
                append_list(pages, h, h + 1);
                memmove(h + 1, h + 2, n_after * sizeof(*h));
                h[n_after + 1] = (struct pgi_heads){0};
                l->used[row] = join_bits(l->used[row], i);
        }
        memmove(&l->start[i + 1], &l->start[i + 2], n_after * sizeof(*l->start));
        l->n--;
}

/* For intervals i and i + 1: the age of their older end, divided by that of their younger end. */
static double age_ratio(const struct pgi_lists *l, uint32_t i, uint32_t now)
{
        uint32_t end = i + 2 < l->n ? l->start[i + 2] : now;

        return (double)(now - l->start[i] + PGI_FIRST_TICKS) / (now - end + PGI_FIRST_TICKS);
}

static uint32_t least_spread(const struct pgi_lists *l, uint32_t now)
{
        uint32_t best = 0;

        for (uint32_t i = 1; i + 1 < l->n; i++)
                if (age_ratio(l, i, now) < age_ratio(l, best, now))
                        best = i;
        return best;
}

bool pgi_lists_advance(struct pgi_lists *l, struct pgi_page *pages, uint32_t now)
{
        bool full = l->n == PGI_INTERVALS;

        if (l->n > 0 && now - l->start[l->n - 1] < PGI_FIRST_TICKS)
                return false;
        if (full)
                join_intervals(l, pages, least_spread(l, now));
        l->start[l->n++] = now;
        return full;
}

static void link_first(struct pgi_heads *h, struct pgi_page *pages, uint32_t page)
{
        pages[page].next_1 = h->first_1;
        *(h->first_1 ? &pages[h->first_1 - 1].prev_1 : &h->last_1) = page + 1;
        h->first_1 = page + 1;
}

static void link_last(struct pgi_heads *h, struct pgi_page *pages, uint32_t page)
{
        pages[page].prev_1 = h->last_1;
        *(h->last_1 ? &pages[h->last_1 - 1].next_1 : &h->first_1) = page + 1;
        h->last_1 = page + 1;
}

uint32_t pgi_link_used(struct pgi_lists *l, struct pgi_page *pages, uint32_t page, uint32_t shelf)
{
        struct pgi_page *p = &pages[page];
        uint32_t row, interval;

        assert(p->shelf_1 == 0);
        p->shelf_1 = (shelf + 1) & 7;
        link_last(list_of(l, pages, page, &row, &interval), pages, page);
        l->used[row] |= UINT64_C(1) << interval;
        return interval;
}

uint32_t pgi_link_exposed(
        struct pgi_lists *l, struct pgi_page *pages, uint32_t page, uint32_t shelf)
{
        struct pgi_page *p = &pages[page];
        uint32_t row, interval;
        struct pgi_heads *h;

        assert(p->shelf_1 == 0);
        p->shelf_1 = (shelf + 1) & 7;
        h = list_of(l, pages, page, &row, &interval);
        if (h->first_1 == 0 || pages[h->first_1 - 1].touched < p->touched)
                link_last(h, pages, page);
        else
                link_first(h, pages, page);
        l->used[row] |= UINT64_C(1) << interval;
        return interval;
}

void pgi_unlink(struct pgi_lists *l, struct pgi_page *pages, uint32_t page)
{
        struct pgi_page *p = &pages[page];
        uint32_t row, interval;
        struct pgi_heads *h;

        assert(p->shelf_1 != 0);
        h = list_of(l, pages, page, &row, &interval);
        *(p->prev_1 ? &pages[p->prev_1 - 1].next_1 : &h->first_1) = p->next_1;
        *(p->next_1 ? &pages[p->next_1 - 1].prev_1 : &h->last_1) = p->prev_1;
        p->prev_1 = p->next_1 = 0;
        if (h->first_1 == 0)
                l->used[row] &= ~(UINT64_C(1) << interval);
        p->shelf_1 = 0;
}

void pgi_relink_as(struct pgi_lists *l, struct pgi_page *pages, uint32_t page, uint32_t to)
{
        struct pgi_page *p = &pages[to];
        uint32_t row, interval;
        struct pgi_heads *h;

        assert(p->shelf_1 != 0 && pages[page].shelf_1 == p->shelf_1);
        h = list_of(l, pages, to, &row, &interval);
        *(p->prev_1 ? &pages[p->prev_1 - 1].next_1 : &h->first_1) = to + 1;
        *(p->next_1 ? &pages[p->next_1 - 1].prev_1 : &h->last_1) = to + 1;
}

/* Is it on the same list? page_1: 0 if there is none. */
static bool is_neighbour(const struct pgi_lists *l, const struct pgi_page *pages, uint32_t n_pages,
        uint32_t page_1, const struct pgi_heads *list)
{
        uint32_t row, interval;

        return page_1 == 0 ||
               (page_1 <= n_pages && pages[page_1 - 1].shelf_1 != 0 &&
                       list_of((struct pgi_lists *)l, pages, page_1 - 1, &row, &interval) == list);
}

bool pgi_lists_refer_to(
        const struct pgi_lists *l, const struct pgi_page *pages, uint32_t n_pages, uint32_t page)
{
        const struct pgi_page *p = &pages[page];
        const struct pgi_heads *h;
        uint32_t row, interval;

        if (l->n == 0)
                return false;
        h = list_of((struct pgi_lists *)l, pages, page, &row, &interval);
        if (!is_neighbour(l, pages, n_pages, p->prev_1, h) ||
                !is_neighbour(l, pages, n_pages, p->next_1, h) || !(l->used[row] >> interval & 1))
                return false;
        return (p->prev_1 ? pages[p->prev_1 - 1].next_1 : h->first_1) == page + 1 &&
               (p->next_1 ? pages[p->next_1 - 1].prev_1 : h->last_1) == page + 1;
}

/* Returns the number of pages in the list; UINT32_MAX: the list is inconsistent. */
static uint32_t list_length(const struct pgi_lists *l, const struct pgi_page *pages,
        uint32_t n_pages, uint32_t row, uint32_t interval)
{
        const struct pgi_heads *h = &l->heads[row * PGI_INTERVALS + interval];
        uint32_t n = 0, last_1 = 0;

        for (uint32_t at_1 = h->first_1; at_1 != 0; at_1 = pages[at_1 - 1].next_1) {
                if (at_1 > n_pages || n++ > n_pages || pages[at_1 - 1].prev_1 != last_1 ||
                        pages[at_1 - 1].shelf_1 == 0 || row_of(l, pages, at_1 - 1) != row ||
                        pgi_interval_of(l, pages[at_1 - 1].touched) != interval)
                        return UINT32_MAX;
                last_1 = at_1;
        }
        return last_1 == h->last_1 ? n : UINT32_MAX;
}

const char *pgi_lists_check(
        const struct pgi_lists *l, const struct pgi_page *pages, uint32_t n_pages)
{
        uint32_t n_linked = 0, n;

        for (uint32_t i = 1; i < l->n; i++)
                if (l->start[i] <= l->start[i - 1])
                        return "intervals are not in order";
        for (uint32_t row = 0; row < l->n_rows; row++)
                for (uint32_t i = 0; i < PGI_INTERVALS; i++) {
                        n = list_length(l, pages, n_pages, row, i);
                        if (n == UINT32_MAX)
                                return "a list has pages that aren't of its shelf, class and time";
                        if ((n > 0) != (l->used[row] >> i & 1))
                                return "a list and its bit disagree";
                        n_linked += n;
                }
        for (uint32_t i = 0; i < n_pages; i++)
                n_linked -= pages[i].shelf_1 != 0;
        return n_linked == 0 ? NULL : "a page lies on a shelf and is in no list";
}
