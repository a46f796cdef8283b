/*
 * Which pages a layer gives up: one rule, asked for one page at a time, as a text grows. What was
 * given up doesn't come back, so each rule chooses among what is kept. No state, any thread.
 *
 *   last        the oldest goes: what is kept is the end of the text
 *   window      the oldest but the first page of the text goes, which heads look at when nothing
 *               else concerns them
 *   stride      the page goes whose neighbours are closest to each other: what is kept lies as
 *               evenly as it can
 *   attention   the page of scores_least() goes
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct scores;

enum keep_rule { KEEP_LAST, KEEP_WINDOW, KEEP_STRIDE, KEEP_ATTENTION, N_KEEP_RULES };

#define KEEP_NONE UINT32_MAX

/*
 * The page that goes next, of those below n_pages that is_kept says are there: never the last of
 * them. KEEP_NONE: there are fewer than two. scores: of KEEP_ATTENTION, of `layer`; else unused.
 * O(n_pages).
 */
uint32_t keep_next_to_go(enum keep_rule rule, const bool *is_kept, uint32_t n_pages,
        const struct scores *scores, uint32_t layer);
