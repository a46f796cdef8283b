/*
 * Finds a plan by a text: the share of its pages that each layer keeps, and their codec.
 *
 * First, search_learn() tries every layer alone, with each share and each codec, while all others
 * keep everything. Each try is a reading, which takes time. A plan's loss is then assumed to be the
 * sum of its layers' losses, and of those of shares and codecs. Dynamic programming finds the plan
 * with the least loss within some bytes exactly. The sum is an estimate, so a caller with a bound
 * must read the text under the plan once more.
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
        /* Loss of one layer alone, in nats a byte: 0 or what it lost, plus its standard error, so
         * that uncertainty counts as loss. */
        double share_loss[PLAN_LAYERS_MAX][SEARCH_N_SHARES];
        double codec_loss[PLAN_LAYERS_MAX][N_CODECS];
};

/* Reads the text under rule KEEP_ATTENTION, for each share and codec of each layer once. said (or
 * NULL) is called after each. Returns as reading_measure(). */
int search_learn(const struct text *text, uint32_t page_tokens,
        void (*said)(uint32_t n_done, uint32_t n_all), struct search *ret);

/*
 * Finds the plan with the least expected loss that takes at most `part` (0..1) of all bytes.
 * with_codecs false: no codecs. ret_loss (or NULL): the expected loss in nats a byte. Returns false
 * if no plan is so small, or without memory (*ret_plan is unchanged).
 */
bool search_by_bytes(const struct search *search, bool with_codecs, double part,
        struct plan *ret_plan, double *ret_loss);

/* Finds the smallest plan, in steps of a percent, with an expected loss of at most `loss` nats a
 * byte. Returns false without memory. */
bool search_by_loss(const struct search *search, bool with_codecs, double loss,
        struct plan *ret_plan, double *ret_loss);
