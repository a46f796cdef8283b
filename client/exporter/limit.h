/*
 * Which rows of a table are told by name, so that what clients make up (namespaces) bounds neither
 * what Prometheus has to store nor how long a scrape is: the first `max` that were met, for as long
 * as they are there; all others are summed under one name. A row keeps its place: a name comes
 * back, and a row that was summed gets a name of its own, only after it was gone. So no series
 * changes its meaning.
 *
 * Counters of the rest never fall, also when one of it goes: what each row grew by is added up.
 * Holds a few words for each row there is. One thread.
 */
#ifndef KVL_EXPORTER_LIMIT_H
#define KVL_EXPORTER_LIMIT_H

#include <stdbool.h>
#include <stddef.h>

#include "base/list.h"
#include "base/map.h"
#include "client/exporter/metric.h"

#define LIMIT_OTHERS "(others)" /* the labels of what is summed; no name can be that */

struct limit {
        const struct metric_table *table; /* borrowed */
        size_t max, n_named, n_rows;      /* rows of the last round */
        struct map index;                 /* hash of a row's labels to its entry */
        struct list_link entries;         /* owned */
        uint64_t round;
        double *sums; /* owned: of the rest, by metric */
};

/* 0 or -ENOMEM. */
int limit_init(struct limit *l, const struct metric_table *table, size_t max);
void limit_deinit(struct limit *l);

/*
 * The rows of a scrape, all of them. Those told by name are moved to the front, in order, over what
 * stood there;
 * *ret_n_named is their number. 0 or -ENOMEM, after which nothing is to be told of this scrape.
 */
int limit_rows(struct limit *l, const void **rows, size_t n, size_t *ret_n_named);

/* After that: metric `i` summed over the rows that have no name. */
double limit_sum(const struct limit *l, size_t i);

#endif
