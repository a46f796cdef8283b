#include "policy/pgi-list.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/macros.h"

#define HEADS (PGI_CLASSES * PGI_INTERVALS)

int pgi_lists_init(struct pgi_lists *l)
{
        *l = (struct pgi_lists){.heads = calloc(HEADS, sizeof(*l->heads))};
        return l->heads ? 0 : -ENOMEM;
}

void pgi_lists_deinit(struct pgi_lists *l)
{
        free(l->heads);
        *l = (struct pgi_lists){0};
}

uint64_t pgi_lists_bytes(void)
{
        return (uint64_t)HEADS * sizeof(struct pgi_heads);
}

void pgi_lists_clear(struct pgi_lists *l)
{
        struct pgi_heads *heads = l->heads;

        memset(heads, 0, HEADS * sizeof(*heads));
        *l = (struct pgi_lists){.heads = heads};
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

static struct pgi_heads *list_of(
        struct pgi_lists *l, const struct pgi_page *p, uint32_t *ret_interval)
{
        *ret_interval = pgi_interval_of(l, p->touched);
        return &l->heads[p->class * PGI_INTERVALS + *ret_interval];
}

/* The second list follows the first one's end. */
static void append(struct pgi_page *pages, struct pgi_heads *to, const struct pgi_heads *what)
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

/* Bit i + 1 joins bit i, those above come down by one. */
static uint64_t join_bits(uint64_t bits, uint32_t i)
{
        uint64_t low = bits & ((UINT64_C(2) << i) - 1), high = bits >> i >> 1;

        return low | (high & 1) << i | high >> 1 << i << 1;
}

static void join(struct pgi_lists *l, struct pgi_page *pages, uint32_t i)
{
        uint32_t n_after = l->n - i - 2;

        for (uint32_t c = 0; c < PGI_CLASSES; c++) {
                struct pgi_heads *h = &l->heads[c * PGI_INTERVALS + i];

                if (l->used[c] >> i >> 1 == 0)
                        continue;
                append(pages, h, h + 1);
                memmove(h + 1, h + 2, n_after * sizeof(*h));
                h[n_after + 1] = (struct pgi_heads){0};
                l->used[c] = join_bits(l->used[c], i);
        }
        memmove(&l->start[i + 1], &l->start[i + 2], n_after * sizeof(*l->start));
        l->n--;
}

/* Of a pair: the age of its older end by that of its younger end. */
static double spread(const struct pgi_lists *l, uint32_t i, uint32_t now)
{
        uint32_t end = i + 2 < l->n ? l->start[i + 2] : now;

        return (double)(now - l->start[i] + PGI_FIRST_TICKS) / (now - end + PGI_FIRST_TICKS);
}

static uint32_t least_spread(const struct pgi_lists *l, uint32_t now)
{
        uint32_t best = 0;

        for (uint32_t i = 1; i + 1 < l->n; i++)
                if (spread(l, i, now) < spread(l, best, now))
                        best = i;
        return best;
}

bool pgi_lists_advance(struct pgi_lists *l, struct pgi_page *pages, uint32_t now)
{
        bool full = l->n == PGI_INTERVALS;

        if (l->n > 0 && now - l->start[l->n - 1] < PGI_FIRST_TICKS)
                return false;
        if (full)
                join(l, pages, least_spread(l, now));
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

uint32_t pgi_link_used(struct pgi_lists *l, struct pgi_page *pages, uint32_t page)
{
        struct pgi_page *p = &pages[page];
        uint32_t interval;

        assert(!p->linked);
        link_last(list_of(l, p, &interval), pages, page);
        p->linked = 1;
        l->used[p->class] |= UINT64_C(1) << interval;
        return interval;
}

uint32_t pgi_link_exposed(struct pgi_lists *l, struct pgi_page *pages, uint32_t page)
{
        struct pgi_page *p = &pages[page];
        uint32_t interval;
        struct pgi_heads *h = list_of(l, p, &interval);

        if (h->first_1 == 0 || pages[h->first_1 - 1].touched < p->touched)
                return pgi_link_used(l, pages, page);
        assert(!p->linked);
        link_first(h, pages, page);
        p->linked = 1;
        return interval;
}

void pgi_unlink(struct pgi_lists *l, struct pgi_page *pages, uint32_t page)
{
        struct pgi_page *p = &pages[page];
        uint32_t interval;
        struct pgi_heads *h = list_of(l, p, &interval);

        assert(p->linked);
        *(p->prev_1 ? &pages[p->prev_1 - 1].next_1 : &h->first_1) = p->next_1;
        *(p->next_1 ? &pages[p->next_1 - 1].prev_1 : &h->last_1) = p->prev_1;
        p->prev_1 = p->next_1 = 0;
        p->linked = 0;
        if (h->first_1 == 0)
                l->used[p->class] &= ~(UINT64_C(1) << interval);
}

void pgi_relink_as(struct pgi_lists *l, struct pgi_page *pages, uint32_t page, uint32_t to)
{
        struct pgi_page *p = &pages[to];
        uint32_t interval;
        struct pgi_heads *h = list_of(l, p, &interval);

        assert(p->linked && pages[page].linked);
        *(p->prev_1 ? &pages[p->prev_1 - 1].next_1 : &h->first_1) = to + 1;
        *(p->next_1 ? &pages[p->next_1 - 1].prev_1 : &h->last_1) = to + 1;
}

/* Number of pages in the list, or UINT32_MAX where it isn't one. */
static uint32_t list_length(const struct pgi_lists *l, const struct pgi_page *pages,
        uint32_t n_pages, uint32_t class, uint32_t interval)
{
        const struct pgi_heads *h = &l->heads[class * PGI_INTERVALS + interval];
        uint32_t n = 0, last_1 = 0;

        for (uint32_t at_1 = h->first_1; at_1 != 0; at_1 = pages[at_1 - 1].next_1) {
                if (at_1 > n_pages || n++ > n_pages || pages[at_1 - 1].prev_1 != last_1 ||
                        !pages[at_1 - 1].linked || pages[at_1 - 1].class != class ||
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
        for (uint32_t c = 0; c < PGI_CLASSES; c++)
                for (uint32_t i = 0; i < PGI_INTERVALS; i++) {
                        n = list_length(l, pages, n_pages, c, i);
                        if (n == UINT32_MAX)
                                return "a list has pages that aren't of its class and time";
                        if ((n > 0) != (l->used[c] >> i & 1))
                                return "a list and its bit disagree";
                        n_linked += n;
                }
        for (uint32_t i = 0; i < n_pages; i++)
                n_linked -= pages[i].linked;
        return n_linked == 0 ? NULL : "a page is linked and in no list";
}
