/* State of an instance, shared by PGI's files only. */
#ifndef KVL_POLICY_PGI_IMPL_H
#define KVL_POLICY_PGI_IMPL_H

#include <assert.h>
#include <stdbool.h>
#include <stdint.h>

#include "policy/pgi-class.h"
#include "policy/pgi-clock.h"
#include "policy/pgi-ending.h"
#include "policy/pgi-ghost.h"
#include "policy/pgi-list.h"
#include "policy/pgi-lru.h"
#include "policy/pgi-run.h"
#include "policy/pgi-table.h"
#include "policy/tree.h"

/* Rank of a list: its interval of age, and its index. The lowest index is evicted first; among
 * equals, the older list. */
struct rank {
        uint32_t interval;
        float index;
};

/* The list of a shelf that victims come from, until it is empty. */
struct choice {
        bool made, by_age;
        uint32_t row; /* of pgi_row() */
        struct rank rank;
        uint32_t at;                  /* ticks */
        uint32_t bins[PGI_INTERVALS]; /* age bin of each interval at `at` */
};

struct pgi {
        const struct tree *tree; /* borrowed */
        uint32_t page_tokens;
        uint32_t crossover;     /* tokens; 0: all pages cost the same */
        struct pgi_page *pages; /* owned */
        uint32_t n_pages, n_cached;
        struct pgi_ghosts ghosts;
        struct pgi_lists lists;
        struct pgi_table table;
        struct pgi_lru lru;
        struct choice choices[PGI_SHELVES];
        uint32_t n_shelves;
        struct pgi_run *runs;        /* owned, PGI_RUNS */
        struct pgi_endings *endings; /* owned */
        uint32_t max_ghosts;
        struct pgi_clock clock;
        uint32_t since, rebuild_after; /* requests */
        uint32_t n_used;               /* pages, since the last request was over */
        double request_pages;          /* pages a request uses, mean of the last requests */
        bool counting;                 /* a pass is going on */
        uint32_t count_at;             /* its next page, then ghost */
};

/* True once ghosts, lists and tables exist. A namespace without pages needs none. */
static inline bool is_made(const struct pgi *p)
{
        return p->runs;
}

/* Age of a page used at `touched`; 0 if that is later than now. */
static inline uint32_t pgi_age_of(uint32_t touched, uint32_t now)
{
        return touched < now ? now - touched : 0;
}

static inline struct pgi_page *pgi_page_of(const struct pgi *p, uint32_t node)
{
        assert(node < p->n_pages && p->pages[node].tag != 0);
        return &p->pages[node];
}

/* Class of a page; body: its class if it is in the body of a text. */
static inline uint32_t pgi_class_with_body(const struct pgi_page *page, uint32_t body)
{
        if (page->class == PGI_PARTIAL || page->class == PGI_PASSED)
                return page->class;
        return page->kid == PGI_KIDS ? pgi_shared_class(page->accesses) : body;
}

static inline void pgi_count_use(struct pgi *p, struct pgi_page *page)
{
        pgi_clock_used(&p->clock);
        p->n_used++;
        if (page->accesses < PGI_MAX_ACCESSES)
                page->accesses++;
}

/* When a cached page was used last, for pgi-lru.h. */
static inline uint32_t stamp_of(const struct pgi *p, const struct pgi_page *page)
{
        return pgi_lru_stamp(&p->lru, page->stamp);
}

static inline void pgi_set_stamp(struct pgi_page *page, uint32_t stamp)
{
        page->stamp = stamp & PGI_STAMP_MASK;
}

/* The shelf of a tip, which may be a leaf. The last tier has one shelf. */
static inline uint32_t shelf_for(const struct pgi *p, uint32_t node, bool is_leaf)
{
        return 2 * tree_tier(p->tree, node) + !is_leaf;
}

/* Only idle tips without locks lie on shelves. */
static inline bool is_candidate(const struct pgi *p, uint32_t node)
{
        return !p->pages[node].held && p->pages[node].n_locks == 0 && tree_is_tip(p->tree, node);
}

#endif
