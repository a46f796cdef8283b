/*
 * Runs: FREE pages of a namespace, on its device, that have consecutive numbers, also over the
 * borders of sets that are bound one after the other. Found in the sets' bitmaps, for leases that
 * ask for them.
 *
 * A search goes through what there is in one turn of the loop, but looks at no more than
 * RUN_LOOK_MAX words, runs and sets: in a namespace that has more of them it doesn't find all
 * there is, and the next search goes on where it stopped. Loop thread only.
 */
#ifndef KVL_CORE_RUN_H
#define KVL_CORE_RUN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/core/objects/ns.h"

/* Below half a millisecond. Not tuned. */
#define RUN_LOOK_MAX 32768

struct run {
        uint32_t first, n; /* pages */
};

/*
 * The shortest run of at least n pages (n >= 1). False: none was found, *ret is the longest there
 * is (n 0: not even a page).
 */
bool run_find(struct ns *ns, uint32_t n, struct run *ret);

/*
 * Picks n pages in as few runs as a factor of two allows: the run that run_find() finds, else all
 * of those that are longest, up to a power of two, and of the next shorter ones what is lacking.
 * ret_pages: their numbers, room for n; they stay FREE. Returns how many were found: fewer than n
 * where there aren't so many, or the search was cut off.
 */
uint32_t run_pick(struct ns *ns, uint32_t n, uint32_t *ret_pages);

/* ---- the bitmaps ------------------------------------------------------------------------------
 */

static inline size_t run_words(uint32_t set_pages)
{
        return ((size_t)set_pages + 63) / 64;
}

static inline uint64_t run_bit(const struct extent_set *set, uint32_t page, uint64_t **ret_word)
{
        uint32_t at = page % set->ns->geometry.set_pages;

        *ret_word = &set->free_bits[at / 64];
        return UINT64_C(1) << at % 64;
}

/* The page became FREE, or is no more. */
static inline void run_mark(struct extent_set *set, uint32_t page, bool is_free)
{
        uint64_t *word, bit = run_bit(set, page, &word);

        *word = is_free ? *word | bit : *word & ~bit;
}

static inline bool run_is_marked(const struct extent_set *set, uint32_t page)
{
        uint64_t *word, bit = run_bit(set, page, &word);

        return *word & bit;
}

/* How many of the set are. */
uint32_t run_count_marks(const struct extent_set *set);

#endif
