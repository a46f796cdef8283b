/*
 * What Prometheus reads: families of samples as text, in its own format 0.0.4 or as OpenMetrics
 * 1.0.0. A text is written once, from the front:
 *
 *   init -> (family -> sample ...) ... -> end -> data -> deinit
 *
 * Names are static and right as they are given. Values of labels may be anything: bytes that are no
 * UTF-8, and control characters, become U+FFFD. Without memory the text is failed, stays so, and
 * further writes do nothing. One thread.
 */
#ifndef KVL_EXPORTER_TEXT_H
#define KVL_EXPORTER_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/macros.h"

#define TEXT_PREFIX         "kvlease_" /* of every family of ours */
#define TEXT_PROCESS_PREFIX "process_" /* of those that every exporter has of its process */

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

/* Appends; a NULL name is no label. */
static inline void text_labels_add(struct text_labels *l, const char *name, const char *value)
{
        assert(l->n < TEXT_MAX_LABELS);
        if (name)
                l->at[l->n++] = (struct text_label){name, value};
}

void text_init(struct text *t, enum text_format format);
void text_deinit(struct text *t);

/* As HTTP says it. Static. */
const char *text_content_type(enum text_format format);

/* `name` without the prefix, and without the _total of a counter or the _info of an info; in base
 * units. `help` is a sentence. Both static. */
void text_family(struct text *t, const char *name, enum text_type type, const char *help);

/* The same, with TEXT_PROCESS_PREFIX. */
void text_family_of_process(
        struct text *t, const char *name, enum text_type type, const char *help);

/* Of the family begun last, but for histograms. Infinities and NaN are written as such. */
void text_sample(struct text *t, const struct text_labels *labels, double value);

/*
 * A histogram: counts[i] of values up to bounds[i] (ascending) and beyond bounds[i - 1], the last
 * of n + 1 counts of those beyond all bounds; not cumulative. sum of all values, in the family's
 * unit.
 */
void text_histogram(struct text *t, const struct text_labels *labels, const double *bounds,
        const uint64_t *counts, size_t n, double sum);

/* No more comes. */
void text_end(struct text *t);

/* Anything, as it is: pages of HTML are written with it, too. */
void text_bytes(struct text *t, const char *bytes, size_t len);
void text_printf(struct text *t, const char *format, ...) KVL_PRINTF(2, 3);

/* Text that may be anything, as a string of JSON with its quotes. */
void text_json(struct text *t, const char *value);

/* Text that may be anything, as content or quoted attribute of HTML. */
void text_html(struct text *t, const char *value);

#endif
