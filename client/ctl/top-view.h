/* The views of kvleasectl top: their columns, and how a row is read from kvleased's messages. */
#ifndef KVL_CTL_TOP_VIEW_H
#define KVL_CTL_TOP_VIEW_H

#include "client/ctl/noun.h"
#include "client/ctl/top-model.h"
#include "proto/kvlease.pb-c.h"

enum top_view_id { TOP_TENANTS, TOP_NAMESPACES, TOP_CLIENTS, TOP_REGIONS, TOP_N_VIEWS };

extern const struct top_view top_views[TOP_N_VIEWS];

/* Totals of the daemon: one row, in the lines above. */
extern const struct top_view top_totals;

/* Returns the list that a view is read from. */
const struct noun *top_noun(enum top_view_id v);

/* Adds a row of top_noun(v) to the sample. */
void top_read(enum top_view_id v, const void *row, struct top_sample *to);

/* Adds the one row of top_totals. n_leases: answered LEASE requests. */
void top_read_totals(const struct figures_status *s, uint64_t n_leases, struct top_sample *to);

/* Once all counters are rated: computes the hits of tenants and the tokens of all from those of
 * namespaces, then all ratios. `tenants` may be NULL. */
void top_sum_up(
        struct top_sample *totals, struct top_sample *tenants, struct top_sample *namespaces);

#endif
