/*
 * Cached pages that may leave their tier, by class and last use. Victims are chosen from these
 * lists. PURE. Not thread-safe.
 *
 * A *shelf* holds the pages of which one choice of a victim is made. Each shelf has a list for each
 * class, cost and interval of time.
 *
 * Time is cut into at most PGI_INTERVALS intervals, of PGI_FIRST_TICKS or more each. When there are
 * too many, the two neighbours whose ages differ least by ratio are joined. So intervals grow with
 * age, like the bins of hazard. Linking, unlinking, and finding the oldest and the youngest of a
 * class take a few steps. A list is in order of use, except for pages of pgi_link_exposed().
 */
#ifndef KVL_POLICY_PGI_LIST_H
#define KVL_POLICY_PGI_LIST_H

#include <assert.h>
#include <stdbool.h>
#include <stdint.h>

#include "policy/pgi-ghost.h"
#include "policy/pgi-lru.h"
#include "policy/pgi-table.h"
#include "policy/recompute.h"
#include "policy/tree.h"

/* Intervals of age: one for each bit of a word. For a cache that reaches back an hour there are
 * about five for each doubling of age. */
#define PGI_INTERVALS UINT32_C(64)

/* Two shelves a tier, of its leaves and of its other tips. The lowest tier has one, because its
 * tips are leaves. */
#define PGI_SHELVES (2 * TREE_TIERS - 1)

/* The policy's data about a cached page, in an array by page number. All zero: not cached. */
struct pgi_page {
        uint32_t prev_1, next_1;             /* neighbours in its list, plus one; 0: none */
        uint32_t tag;                        /* hash of its id (pgi-ghost.h); 0: not cached */
        uint32_t touched;                    /* ticks */
        uint32_t stamp : PGI_STAMP_BITS;     /* of pgi-lru.h */
        uint32_t length : 2;                 /* of its text up to its end: bin of PGI_LENGTHS */
        uint32_t hint : 4;                   /* of the text that ends here; pgi.c */
        uint32_t shelf_1 : 3;                /* its shelf plus one; 0: on none */
        uint32_t held : 1;                   /* pinned; held and locked pages are on no shelf */
        uint32_t accesses : PGI_ACCESS_BITS; /* saturates */
        uint32_t class : 8;
        uint32_t turn : 3; /* of the last request that ended here; 0: none did */
        uint32_t kid : 5;  /* its continuations; pgi-class.h */
        uint32_t n_locks : 2;
};
static_assert(sizeof(struct pgi_page) == 24, "docs/measure/PERFORMANCE.md has the bytes of a page");
static_assert(PGI_LENGTHS <= 4 && PGI_SHELVES <= 7, "bits");

/* Rows of one shelf and cost: the classes of the table, and PGI_PASSED. */
#define PGI_ROWS (PGI_PASSED + 1)

struct pgi_heads {
        uint32_t first_1, last_1; /* page plus one */
};

struct pgi_lists {
        struct pgi_heads *heads; /* owned; PGI_INTERVALS a row; 85 KiB a shelf and cost */
        uint64_t *used;          /* owned; bits of a row: its lists that aren't empty */
        uint32_t n_rows;         /* shelves * n_costs * PGI_ROWS: pgi_row() */
        uint32_t n_costs;        /* RECOMPUTE_BINS; 1: all pages cost the same */
        uint8_t *costs;          /* owned; bin of cost, by page. NULL if n_costs is 1 */
        uint32_t costs_len;
        uint32_t start[PGI_INTERVALS]; /* ticks, ascending */
        uint32_t n;
};

static inline uint32_t pgi_row(
        const struct pgi_lists *l, uint32_t shelf, uint32_t cost, uint32_t class)
{
        return (shelf * l->n_costs + cost) * PGI_ROWS + class;
}

/* n_costs: 1 or RECOMPUTE_BINS. Returns 0 or -ENOMEM. */
int pgi_lists_init(struct pgi_lists *l, uint32_t n_shelves, uint32_t n_costs);
void pgi_lists_deinit(struct pgi_lists *l); /* safe on a zeroed struct */
uint64_t pgi_lists_bytes(const struct pgi_lists *l);
/* Lets pages 0..n-1 have costs. Returns 0, or -ENOMEM (nothing changed). */
int pgi_lists_reserve(struct pgi_lists *l, uint32_t n);

/* Sets the bin of cost of a page that lies on no shelf. Ignored if all pages cost the same. */
static inline void pgi_set_cost(struct pgi_lists *l, uint32_t page, uint32_t bin)
{
        if (l->costs)
                l->costs[page] = (uint8_t)bin;
}

static inline uint32_t pgi_cost_bin(const struct pgi_lists *l, uint32_t page)
{
        return l->costs ? l->costs[page] : 0;
}

/* Cost of missing the page: 1 if all pages cost the same. */
static inline double pgi_cost(const struct pgi_lists *l, uint32_t page)
{
        return l->costs ? recompute_bin_cost(l->costs[page]) : 1;
}

/* Empties all lists. Can't fail. */
void pgi_lists_clear(struct pgi_lists *l);

/* Begins a new interval if the last one is PGI_FIRST_TICKS old or older. Returns true if that
 * joined two intervals, which renumbers the later ones. */
bool pgi_lists_advance(struct pgi_lists *l, struct pgi_page *pages, uint32_t now);

/* The interval of this time. At least one interval must exist. */
uint32_t pgi_interval_of(const struct pgi_lists *l, uint32_t touched);

/* Put a page on a shelf and return its interval. pgi_link_used(): at the end of its list.
 * pgi_link_exposed(): at the front if no page there is older, else at the end. */
uint32_t pgi_link_used(struct pgi_lists *l, struct pgi_page *pages, uint32_t page, uint32_t shelf);
uint32_t pgi_link_exposed(
        struct pgi_lists *l, struct pgi_page *pages, uint32_t page, uint32_t shelf);
void pgi_unlink(struct pgi_lists *l, struct pgi_page *pages, uint32_t page);
/* Puts `to`, a copy of `page`, in the place of `page` on its shelf. */
void pgi_relink_as(struct pgi_lists *l, struct pgi_page *pages, uint32_t page, uint32_t to);

/* First page of a list, which must not be empty. */
static inline uint32_t pgi_first(const struct pgi_lists *l, uint32_t row, uint32_t interval)
{
        return l->heads[row * PGI_INTERVALS + interval].first_1 - 1;
}

/* Debug: true if the neighbours of a page on a shelf, or the ends of its list, refer to it. */
bool pgi_lists_refer_to(
        const struct pgi_lists *l, const struct pgi_page *pages, uint32_t n_pages, uint32_t page);

/* Debug: NULL, or a static sentence naming what is not. */
const char *pgi_lists_check(
        const struct pgi_lists *l, const struct pgi_page *pages, uint32_t n_pages);

#endif
