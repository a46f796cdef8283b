/* The exported metrics: for each list of the monitor socket a table of samples over the figures of
 * its rows, made of proto/figures.def. */
#ifndef KVL_EXPORTER_METRIC_H
#define KVL_EXPORTER_METRIC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "client/exporter/text.h"

struct metric_label {
        const char *name;
        size_t offset;    /* in a row: const char * */
        const char *none; /* shown for ""; NULL: "" */
};

#define METRIC_INFO_LABELS 5
#define METRIC_LABELS      2

/* A sample of each row. */
struct metric {
        const char *family; /* without the prefix and _total; NULL: the figure isn't exported */
        const char *help;   /* in one sample of a family, which stands for its place; else NULL */
        enum text_type type;
        struct text_label labels[METRIC_LABELS]; /* besides the table's; name NULL: none */
        size_t offset;  /* of the figure in the row; FIGURE_NONE: the row has no sample */
        bool or_zero;   /* FIGURE_NONE is 0 */
        bool or_inf;    /* FIGURE_NONE is +Inf: no limit */
        bool is_milli;  /* the figure is in thousandths of the family's unit */
        bool single;    /* sums over rows are meaningless */
        bool of_pool;   /* of the rows of dynamic pools, not of tenants' */
        bool no_sample; /* only a family's help */
        double (*derive)(const void *row);            /* computes it; NULL: the figure */
        struct metric_label info[METRIC_INFO_LABELS]; /* of TEXT_INFO, whose value is 1 */
};

#define METRIC_ROW_LABELS 3

struct metric_table {
        const char *name; /* of its rows, for people: "tenants" */
        unsigned list;    /* source of the rows (enum source_list) */
        const struct metric *metrics;
        size_t n_metrics;
        struct metric_label labels[METRIC_ROW_LABELS]; /* of each row; they identify it */
        bool (*wants)(const void *row);                /* NULL: takes all rows */
        bool of_pools;                                 /* takes the metrics `of_pool`, no others */
};

/* Whether the table has samples of the metric. */
bool metric_is_of(const struct metric_table *t, const struct metric *m);

/* Whether the row has a sample of a metric of the table. */
bool metric_exists_in(const struct metric *m, const void *row);

/* Returns the value of a metric in a row that has it. Not for TEXT_INFO. */
double metric_value(const struct metric *m, const void *row);

/* Returns a label's value in a row. Borrowed. */
const char *metric_label(const struct metric_label *l, const void *row);

/* Adds the labels that the metric itself has. */
void metric_add_labels(const struct metric *m, struct text_labels *labels);

extern const struct metric_table metric_tables[];
extern const size_t n_metric_tables;

#endif
