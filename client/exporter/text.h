/*
 * Prometheus' input: families of samples as text, in its own format 0.0.4 or as OpenMetrics 1.0.0.
 * A text is written once, from the front:
 *
 *   init -> (family -> sample ...) ... -> end -> data -> deinit
 *
 * Names are static and must be right. Values of labels may be anything: bytes that are no UTF-8,
 * and control characters, become U+FFFD. If memory runs out the text is failed, stays so, and
 * further writes do nothing. Not thread-safe.
 */
#ifndef KVL_EXPORTER_TEXT_H
#define KVL_EXPORTER_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/macros.h"

#define TEXT_PREFIX         "kvlease_" /* of our families */
#define TEXT_PROCESS_PREFIX "process_" /* of families that all exporters have of their process */

enum text_format { TEXT_PROMETHEUS, TEXT_OPENMETRICS };

enum text_type { TEXT_GAUGE, TEXT_COUNTER, TEXT_INFO, TEXT_HISTOGRAM };

struct text {
        char *data; /* owned, NUL-terminated once something was written */
        size_t len, size;
        bool failed;
        enum text_format format;
        const char *prefix;  /* of the family's name; static */
        const char *name;    /* of the family, without prefix and _total; borrowed */
        enum text_type type; /* of the family */
};

struct text_label {
        const char *name, *value;
};

#define TEXT_MAX_LABELS 8

struct text_labels {
        struct text_label at[TEXT_MAX_LABELS];
        size_t n;
};

/* Appends; NULL name: nothing. */
static inline void text_labels_add(struct text_labels *l, const char *name, const char *value)
{
        assert(l->n < TEXT_MAX_LABELS);
        if (name)
                l->at[l->n++] = (struct text_label){name, value};
}

void text_init(struct text *t, enum text_format format);
void text_deinit(struct text *t);

/* Returns the HTTP content type. Static. */
const char *text_content_type(enum text_format format);

/* Begins a family. `name`: in base units, without the prefix, a counter's _total or an info's
 * _info. `help` is a sentence. Both static. */
void text_family(struct text *t, const char *name, enum text_type type, const char *help);

/* Does text_family() with TEXT_PROCESS_PREFIX. */
void text_family_of_process(
        struct text *t, const char *name, enum text_type type, const char *help);

/* Adds a sample to the family begun last, except for histograms. Infinities and NaN are written as
 * such. */
void text_sample(struct text *t, const struct text_labels *labels, double value);

/* Adds a histogram: counts[i] of values up to bounds[i] (ascending) and beyond bounds[i - 1]. The
 * last of n + 1 counts is of those beyond all bounds; counts aren't cumulative. sum: of all values,
 * in the family's unit. */
void text_histogram(struct text *t, const struct text_labels *labels, const double *bounds,
        const uint64_t *counts, size_t n, double sum);

/* Ends the text. */
void text_end(struct text *t);

/* Append anything unchanged; pages of HTML are written by them, too. */
void text_bytes(struct text *t, const char *bytes, size_t len);
void text_printf(struct text *t, const char *format, ...) KVL_PRINTF(2, 3);

/* Appends any text as a string of JSON with its quotes. */
void text_json(struct text *t, const char *value);

/* Appends any text as content or quoted attribute of HTML. */
void text_html(struct text *t, const char *value);

#endif
