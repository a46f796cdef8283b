/*
 * The pages of the cache that may leave their tier, by class and by when they were last used: what
 * victims are chosen from. PURE. Not thread-safe.
 *
 * They lie on *shelves*: those that are chosen from together are on one. Each shelf has a list for
 * each class, cost and interval of time.
 *
 * Time is cut into at most PGI_INTERVALS intervals, of PGI_FIRST_TICKS or more each. For the next
 * one, the two neighbours become one whose joint age is told apart least by that: intervals grow
 * with age, as the bins of hazard do. So linking, unlinking and finding the oldest and the youngest
 * of a class cost a few steps, whatever becomes a leaf when. Within a list: in the order of use, as
 * far as merging and parents that become leaves allow.
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

/* Intervals of age: as many as a word has bits. In a cache that goes back an hour these are about
 * five for each doubling of age. */
#define PGI_INTERVALS UINT32_C(64)

/* For each tier those that are leaves, and those that are tips only; nothing lies below the last
 * tier, and a tip of it is a leaf. */
#define PGI_SHELVES (2 * TREE_TIERS - 1)

/* What the policy knows of a cached page; an array of them has one for each page number. All zero
 * where the page isn't cached. */
struct pgi_page {
        uint32_t prev_1, next_1; /* page plus one, in its list; 0: the end, or in none */
        uint32_t tag;            /* of its id, as ghosts have it (pgi-ghost.h); 0: not cached */
        uint32_t touched;        /* ticks */
        uint32_t stamp : PGI_STAMP_BITS;     /* of pgi-lru.h */
        uint32_t length : 2;                 /* of its text up to its end: bin of PGI_LENGTHS */
        uint32_t hint : 4;                   /* of the text that ends here; pgi.c */
        uint32_t shelf_1 : 3;                /* that it lies on, plus one; 0: on none */
        uint32_t held : 1;                   /* on no shelf, nor where it has locks */
        uint32_t accesses : PGI_ACCESS_BITS; /* saturates */
        uint32_t class : 8;
        uint32_t turn : 3; /* of the last request that ended here; 0: none did */
        uint32_t kid : 5;  /* what continues it; pgi-class.h */
        uint32_t n_locks : 2;
};
static_assert(sizeof(struct pgi_page) == 24, "docs/PERFORMANCE.md has the bytes of a page");
static_assert(PGI_LENGTHS <= 4 && PGI_SHELVES <= 7, "bits");

/* Of a shelf and a cost: the classes of the table, and PGI_PASSED. */
#define PGI_ROWS (PGI_PASSED + 1)

struct pgi_heads {
        uint32_t first_1, last_1; /* page plus one */
};

struct pgi_lists {
        struct pgi_heads *heads; /* owned; of each row PGI_INTERVALS; 84 KiB a shelf and cost */
        uint64_t *used;          /* owned; of each row a bit an interval: its list has something */
        uint32_t n_rows;         /* shelves * n_costs * PGI_ROWS: pgi_row() */
        uint32_t n_costs;        /* RECOMPUTE_BINS; 1: all pages cost the same */
        uint8_t *costs;          /* owned; of each page its bin of cost. NULL where n_costs is 1 */
        uint32_t costs_len;
        uint32_t start[PGI_INTERVALS]; /* ticks, ascending */
        uint32_t n;
};

static inline uint32_t pgi_row(
        const struct pgi_lists *l, uint32_t shelf, uint32_t cost, uint32_t class)
{
        return (shelf * l->n_costs + cost) * PGI_ROWS + class;
}

/* n_costs: 1 or RECOMPUTE_BINS. 0 or -ENOMEM. */
int pgi_lists_init(struct pgi_lists *l, uint32_t n_shelves, uint32_t n_costs);
void pgi_lists_deinit(struct pgi_lists *l); /* safe on a zeroed struct */
uint64_t pgi_lists_bytes(const struct pgi_lists *l);
/* Pages 0..n-1 may have costs from now on. 0 or -ENOMEM (unchanged). */
int pgi_lists_reserve(struct pgi_lists *l, uint32_t n);

/* A page that lies on no shelf has this bin of cost. Ignored where all pages cost the same. */
static inline void pgi_set_cost(struct pgi_lists *l, uint32_t page, uint32_t bin)
{
        if (l->costs)
                l->costs[page] = (uint8_t)bin;
}

static inline uint32_t pgi_cost_bin(const struct pgi_lists *l, uint32_t page)
{
        return l->costs ? l->costs[page] : 0;
}

/* What missing the page costs: 1 where all cost the same. */
static inline double pgi_cost(const struct pgi_lists *l, uint32_t page)
{
        return l->costs ? recompute_bin_cost(l->costs[page]) : 1;
}

/* Empty again. Can't fail. */
void pgi_lists_clear(struct pgi_lists *l);

/* A new interval from now on, where the last one has begun long enough ago. Returns true where
 * intervals have other numbers since. */
bool pgi_lists_advance(struct pgi_lists *l, struct pgi_page *pages, uint32_t now);

/* Which has this time. There is one. */
uint32_t pgi_interval_of(const struct pgi_lists *l, uint32_t touched);

/* In which interval it is linked: as the last in use; or, where the first isn't older, the first.
 */
uint32_t pgi_link_used(struct pgi_lists *l, struct pgi_page *pages, uint32_t page, uint32_t shelf);
uint32_t pgi_link_exposed(
        struct pgi_lists *l, struct pgi_page *pages, uint32_t page, uint32_t shelf);
void pgi_unlink(struct pgi_lists *l, struct pgi_page *pages, uint32_t page);
/* `to` has been copied from `page`, which lies on a shelf. */
void pgi_relink_as(struct pgi_lists *l, struct pgi_page *pages, uint32_t page, uint32_t to);

/* The first of a list that isn't empty. */
static inline uint32_t pgi_first(const struct pgi_lists *l, uint32_t row, uint32_t interval)
{
        return l->heads[row * PGI_INTERVALS + interval].first_1 - 1;
}

/* Debug: NULL, or a static sentence naming what is not. */
const char *pgi_lists_check(
        const struct pgi_lists *l, const struct pgi_page *pages, uint32_t n_pages);

#endif
