/* Costs of the ways to keep fewer bytes, as a table and as a picture. */
#pragma once

#include <stdio.h>

#include "lab/tune/search.h"

#define CURVES_BUDGETS         \
        {                      \
                75, 50, 35, 25 \
        } /* percent of all bytes */
#define CURVES_N_BUDGETS 4
#define CURVES_N_WAYS    7

struct curve_point {
        struct plan plan;
        struct reading reading;
};

/*
 *   last-k, window, stride   all layers keep the same share of their pages, by that rule (keep.h)
 *   int8, int4               all layers' pages go through the codec; if that isn't enough, the
 *                            window rule gives pages up
 *   layers by attention      the plan of search_by_bytes() without codecs
 *   layers and codecs        the plan of search_by_bytes() with codecs
 */
struct curve {
        const char *name;
        struct curve_point points[CURVES_N_BUDGETS];
};

struct curves {
        struct reading exact;
        struct curve ways[CURVES_N_WAYS];
};

/* Reads the text once for each way and budget. Returns as reading_measure(); -ENOENT: no plan is so
 * small. said: as in search_learn(). Ignores text->reference. */
int curves_measure(const struct search *search, const struct text *text,
        void (*said)(uint32_t n_done, uint32_t n_all), struct curves *ret);

/* Prints rows of Markdown, with a head, and a column for exact copies if the text has some. */
void curves_print_table(const struct curves *curves, FILE *to);

/* Draws an SVG document, by bytes: the change of perplexity, or, for a text with exact copies, the
 * share of their bytes that is found likeliest. */
void curves_draw(const struct curves *curves, FILE *to);
