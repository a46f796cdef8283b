/*
 * Finds a plan: which share of its pages each layer keeps, and in which codec, by what a text says.
 *
 * First every layer is tried alone, with each share and each codec, while all others keep
 * everything (`search_learn()`, the part that takes time: a reading each). What a plan loses is
 * then taken to be the sum of what its layers lose, and of what shares and codecs do, and the plan
 * that loses least within some bytes is found exactly, by dynamic programming. Sums are a guess:
 * who has a bound reads the text under the plan once more.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "lab/tune/reading.h"

/* Percent of a layer's pages; the first is everything. */
#define SEARCH_SHARES                           \
        {                                       \
                100, 75, 60, 50, 40, 30, 20, 10 \
        }
#define SEARCH_N_SHARES 8
#define SEARCH_HALF     3 /* 50 % */

struct search {
        struct model_shape shape;
        uint32_t page_tokens;
        struct reading exact; /* everything kept, as it is */
        /* Nats a byte more than that, of one layer alone: what it lost, or 0 where it gained, and
         * the standard error of that, so that what isn't known counts as lost. */
        double share_loss[PLAN_LAYERS_MAX][SEARCH_N_SHARES];
        double codec_loss[PLAN_LAYERS_MAX][N_CODECS];
};

/* Reads the text under rule KEEP_ATTENTION, for each share and codec of each layer once. `said`
 * (NULL: nobody) is told after each. Returns as reading_measure(). */
int search_learn(const struct text *text, uint32_t page_tokens,
        void (*said)(uint32_t n_done, uint32_t n_all), struct search *ret);

/*
 * The plan that is expected to lose least of those that take at most `part` (0..1) of all bytes;
 * with_codecs false: all pages as they are. *ret_loss (may be NULL): nats a byte that it is
 * expected to lose. False: no plan is so small, or no memory; then *ret_plan is as before.
 */
bool search_by_bytes(const struct search *search, bool with_codecs, double part,
        struct plan *ret_plan, double *ret_loss);

/* The smallest plan, in steps of a percent, that is expected to lose at most so many nats a byte.
 * False: no memory. */
bool search_by_loss(const struct search *search, bool with_codecs, double loss,
        struct plan *ret_plan, double *ret_loss);
