/*
 * What each way to keep fewer bytes costs, as a table and as a picture.
 */
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
 *   int8, int4               all layers' pages go through the codec; where that isn't enough, the
 *                            window rule gives pages up
 *   layers by attention      what search_by_bytes() finds without codecs
 *   layers and codecs        what it finds with them
 */
struct curve {
        const char *name;
        struct curve_point points[CURVES_N_BUDGETS];
};

struct curves {
        struct reading exact;
        struct curve ways[CURVES_N_WAYS];
};

/* Reads the text once for each way and budget. Returns as reading_measure(); -ENOENT: nothing is so
 * small. said: as search_learn(). text->reference isn't
 * looked at. */
int curves_measure(const struct search *search, const struct text *text,
        void (*said)(uint32_t n_done, uint32_t n_all), struct curves *ret);

/* Rows of Markdown, with a head; a column for exact copies where the text has some. */
void curves_print_table(const struct curves *curves, FILE *to);

/* An SVG document: against the bytes the change of perplexity, or, where the text has exact copies,
 * which part of their bytes is found likeliest. */
void curves_draw(const struct curves *curves, FILE *to);
