/*
 * Runs: FREE pages of a namespace's device with consecutive numbers, which may span sets that are
 * bound one after the other. They are searched in the sets' bitmaps, for leases that ask for them.
 *
 * A search takes one iteration of the event loop and looks at no more than RUN_LOOK_MAX words, runs
 * and sets. In a larger namespace it doesn't find all runs; the next search continues where it
 * stopped. Loop thread only.
 */
#ifndef KVL_CORE_RUN_H
#define KVL_CORE_RUN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/core/state/ns.h"

/* Takes less than half a millisecond. Not tuned. */
#define RUN_LOOK_MAX 32768

struct run {
        uint32_t first, n; /* pages */
};

/* Finds the shortest run of at least n pages (n >= 1). Returns false if there is none; *ret is the
 * longest run then (n 0: no FREE page). */
bool run_find(struct ns *ns, uint32_t n, struct run *ret);

/* Picks n pages in the fewest runs, within a factor of two: the run that run_find() finds, else the
 * longest runs, up to a power of two, and then shorter ones. ret_pages has space for n numbers; the
 * pages stay FREE. Returns how many it found: fewer than n if there are fewer, or if the search was
 * cut off. */
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

/* Notes that the page became FREE, or isn't FREE any more. */
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

/* Counts the marked pages of the set. */
uint32_t run_count_marks(const struct extent_set *set);

#endif
