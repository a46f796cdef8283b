/*
 * Compares PGI with plain LRU of the same size: LRU's hits, and whether PGI does worse. PURE. Not
 * thread-safe.
 *
 * LRU keeps the most recently used pages, as many as fit. Leaf-first doesn't change that, as a
 * request that uses a page uses its ancestors. So no shadow of the cache is needed, only a line in
 * time: pages used since are in, others out. Time is cut into epochs in which a part of the cache's
 * size of different pages is used. Each known page has the epoch of its last use as its *stamp*.
 * This counts pages by epoch from the line on. It moves the line when they are more than the cached
 * pages, never back: pages that LRU dropped are lost to it.
 *
 * Each use of a known page is a hit of LRU's, of ours, of both or of neither. It counts with the
 * cost of a miss of the page. PGI is *behind* while recent requests show a loss that is larger than
 * chance and than LOSS_SHARE. Chance: requests' differences add up like a random walk, whose
 * variance is the sum of their squares.
 */
#ifndef KVL_POLICY_PGI_LRU_H
#define KVL_POLICY_PGI_LRU_H

#include <stdbool.h>
#include <stdint.h>

#define PGI_EPOCHS UINT32_C(1024) /* between the line and now; older ones count as one */

struct pgi_lru {
        uint32_t counts[PGI_EPOCHS]; /* [epoch % PGI_EPOCHS], line..current */
        uint32_t line, current;      /* epochs */
        uint32_t base;               /* stamps from here to the line count as the line's */
        uint64_t n;                  /* sum of counts: LRU's cached pages */
        uint64_t hits;               /* LRU's, lately */
        double request;              /* cost of our hits less LRU's, since the last judgement */
        double lead, variance;       /* of the requests before */
        bool behind;
};

/* All zero is the initial state. */

/* Counts a use of a page by a request that found it cached or not (`ours`). *stamp: in: of its last
 * use; out: of this one. base: of pgi_lru when the request began, which says whether LRU had the
 * page then; later uses, also by this request, may have displaced it. cost: of a miss; 1 if all
 * pages cost the same. capacity: pages cached. Amortised O(1). */
void pgi_lru_used(struct pgi_lru *l, uint32_t base, uint32_t *stamp, bool ours, double cost,
        uint32_t capacity);

/* The first use of a page. */
void pgi_lru_first(struct pgi_lru *l, uint32_t *ret_stamp, uint32_t capacity);

/* True if LRU would have the page. Stamps wrap: after 2^31 epochs without a use, a page counts as
 * one that LRU has, which costs a page less in its count. */
static inline bool pgi_lru_has(const struct pgi_lru *l, uint32_t stamp)
{
        return (int32_t)(stamp - l->base) >= 0;
}

/* Bits of a stamp stored with cached pages. They suffice if stamps are renewed (pgi_lru_renewed())
 * once in 2^21 epochs, in which 8,192 times the cached pages are used. */
#define PGI_STAMP_BITS 22
#define PGI_STAMP_MASK ((UINT32_C(1) << PGI_STAMP_BITS) - 1)

/* The stamp that has these bits: of one of the last 2^22 epochs. */
static inline uint32_t pgi_lru_stamp(const struct pgi_lru *l, uint32_t bits)
{
        return l->current - ((l->current - bits) & PGI_STAMP_MASK);
}

/* An equivalent stamp, whose bits stay valid for at least 2^21 epochs more: LRU never regains a
 * page that it dropped. */
static inline uint32_t pgi_lru_renewed(const struct pgi_lru *l, uint32_t stamp)
{
        return l->current - stamp > PGI_STAMP_MASK / 2 ? l->base - 1 : stamp;
}

/* A request has ended: updates `behind`. */
void pgi_lru_judge(struct pgi_lru *l, uint32_t capacity);

/* The page is forgotten. */
void pgi_lru_forget(struct pgi_lru *l, uint32_t stamp);

#endif
