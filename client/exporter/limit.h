/*
 * Limits the rows of a table that are exported by name, so that names from clients (namespaces)
 * can't inflate Prometheus' storage or a scrape. The first `max` rows seen are named as long as
 * they exist; all others are summed under one name. A summed row gets a name, and a named row
 * another, only after it was removed. So no series changes its meaning.
 *
 * Counters of the sum never fall, even if one of its rows is removed: each row's growth is added
 * up. A few words of memory for each row. Not thread-safe.
 */
#ifndef KVL_EXPORTER_LIMIT_H
#define KVL_EXPORTER_LIMIT_H

#include <stdbool.h>
#include <stddef.h>

#include "base/list.h"
#include "base/map.h"
#include "client/exporter/metric.h"

#define LIMIT_OTHERS "(others)" /* the labels of the sum; no name can be that */

struct limit {
        const struct metric_table *table; /* borrowed */
        size_t max, n_named, n_rows;      /* rows of the last round */
        struct map index;                 /* from the hash of a row's labels to its entry */
        struct list_link entries;         /* owned */
        uint64_t round;
        double *sums; /* owned: of the unnamed rows, by metric */
};

/* Returns 0 or -ENOMEM. */
int limit_init(struct limit *l, const struct metric_table *table, size_t max);
void limit_deinit(struct limit *l);

/* Takes all rows of a scrape. Moves the named ones to the front of `rows`, in order; *ret_n_named
 * is their number. Returns 0 or -ENOMEM (nothing may be exported of this scrape). */
int limit_rows(struct limit *l, const void **rows, size_t n, size_t *ret_n_named);

/* Returns metric `i` summed over the unnamed rows, after limit_rows(). */
double limit_sum(const struct limit *l, size_t i);

#endif
