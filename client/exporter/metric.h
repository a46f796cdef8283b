/* The exported metrics: for each list of the monitor socket a table of families, a line each, over
 * the fields of its rows. A new field is a new line in its list's metrics-*.c. */
#ifndef KVL_EXPORTER_METRIC_H
#define KVL_EXPORTER_METRIC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "client/exporter/text.h"

struct metric_label {
        const char *name;
        size_t offset;    /* in a row: char * */
        const char *none; /* shown for ""; NULL: "" */
};

#define METRIC_INFO_LABELS 5
#define METRIC_LABELS      2

/* A sample of each row. */
struct metric {
        const char *family; /* without the prefix and _total; NULL: the previous one */
        enum text_type type;
        const char *help;
        struct text_label labels[METRIC_LABELS]; /* besides the table's; name NULL: none */
        size_t part; /* offset of the row's pointer to the field's message; NULL there: no sample.
                      * 0: the field is in the row */
        size_t offset;
        uint8_t width;                     /* of the field: 4 or 8; UINT64_MAX (unlimited): +Inf */
        bool is_milli;                     /* the field is in thousandths of the family's unit */
        bool single;                       /* sums over rows are meaningless */
        double (*derive)(const void *row); /* computes it; NULL: the field */
        struct metric_label info[METRIC_INFO_LABELS]; /* of TEXT_INFO, whose value is 1 */
};

#define METRIC_ROW_LABELS 3

struct metric_table {
        const char *name;             /* of its rows, for people: "tenants" */
        const struct metric *metrics; /* the first one begins a family */
        size_t n_metrics;
        struct metric_label labels[METRIC_ROW_LABELS]; /* of each row; they identify it */
        bool (*wants)(const void *row);                /* NULL: takes all rows */
        /* Source of the rows (enum source_list). */
        unsigned list;
};

/* Whether the row has the figure: not if the figure is in a part that the row lacks. */
bool metric_exists_in(const struct metric *m, const void *row);

/* Returns the value of a metric in a row that has it. Not for TEXT_INFO. */
double metric_value(const struct metric *m, const void *row);

/* Returns a label's value in a row. Borrowed. */
const char *metric_label(const struct metric_label *l, const void *row);

/* Adds the labels that the metric itself has. */
void metric_add_labels(const struct metric *m, struct text_labels *labels);

/* Returns the metric that begins the family of metric `i` of the table. */
const struct metric *metric_family(const struct metric_table *t, size_t i);

extern const struct metric_table *const metric_tables[];
extern const size_t n_metric_tables;

#endif
