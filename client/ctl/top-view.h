/* The views of kvleasectl top: their columns, and how a row is read from kvleased's messages. */
#ifndef KVL_CTL_TOP_VIEW_H
#define KVL_CTL_TOP_VIEW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "client/ctl/noun.h"
#include "proto/kvlease.pb-c.h"

/*
 * The model of kvleasectl top: samples of things (tenants, namespaces, clients, regions), a row
 * each, and the rates between two samples. Pure: no daemon, no screen, no clock.
 *
 *   sample:  (begin, rows are added) -> rated (top_rates(), perhaps top_add_rates()) -> ratios
 *
 * A counter that is smaller than before began anew: its whole value is the difference, so no rate
 * is negative. A new row's counters began at 0. Between samples of different epochs (the daemon was
 * restarted) there are no rates.
 */
enum top_kind {
        TOP_TEXT,
        TOP_DEVICE, /* a text; lines show its beginning */
        TOP_COUNT,
        TOP_BYTES,
        TOP_SECONDS,
        TOP_RATE,      /* of a counter, per second */
        TOP_BYTE_RATE, /* of a counter of bytes, per second */
        TOP_RATIO,     /* of the view's hits and misses */
};

struct top_column {
        const char *heading; /* also its name, in either case */
        const char *key;     /* of JSON */
        enum top_kind kind;
        bool is_figure; /* read from the daemon's row; else computed */
        size_t offset;  /* of the figure, in the row's struct of proto/figures.h */
};

#define TOP_MAX_COLUMNS 18

struct top_view {
        const char *name; /* "tenants" */
        const struct top_column *columns;
        unsigned n_columns;    /* at most TOP_MAX_COLUMNS */
        unsigned n_names;      /* the first columns, which name the row */
        unsigned default_sort; /* column */
        unsigned tenant;       /* column with the tenant's name */
        unsigned hits, misses; /* columns, if there is a TOP_RATIO */
};

struct top_cell {
        bool known;      /* false: "-" */
        char *text;      /* texts: owned, as the daemon sends it; else NULL */
        uint64_t number; /* as read; for rates: the counter */
        double rate;     /* for rates and ratios, once known */
};

struct top_row {
        char *id; /* owned; identifies the row in the next sample */
        struct top_cell cells[TOP_MAX_COLUMNS];
};

struct top_sample {
        const struct top_view *view;
        uint64_t taken_nsec;  /* monotonic */
        uint64_t epoch;       /* the daemon's boot_epoch */
        bool has_rates;       /* there was an earlier one to compare with */
        struct top_row *rows; /* owned; sorted by id once rated */
        size_t n_rows, n_allocated;
};

/* Makes an empty sample. */
void top_sample_init(
        struct top_sample *s, const struct top_view *v, uint64_t taken_nsec, uint64_t epoch);
void top_sample_deinit(struct top_sample *s);

/* Adds a row, borrowed until the next one is added. Copies the id. */
struct top_row *top_sample_add(struct top_sample *s, const char *id);

/* Copies the text, replacing an earlier one. "" is unknown. */
void top_set_text(struct top_row *row, unsigned column, const char *text);

/* Sets a number. For bytes UINT64_MAX is unknown: no limit. A counter is known once it is rated. */
void top_set_number(
        const struct top_view *v, struct top_row *row, unsigned column, uint64_t number);

/* Sorts `now` by id, and computes rates from it and `before`, which is rated. Without `before`
 * (NULL), or without its rows' counters, there are none. */
void top_rates(struct top_sample *now, const struct top_sample *before);

/* Adds up rates of `from` (rated) in rows of `to` (rated): column from_columns[i] into
 * to_columns[i], which has no counter of its own. A row of `from` belongs to the row of `to` whose
 * id is the text of its column `by`. TOP_ALL_ROWS: all belong to the one row. */
#define TOP_ALL_ROWS UINT32_MAX
void top_add_rates(struct top_sample *to, const unsigned *to_columns, const struct top_sample *from,
        const unsigned *from_columns, size_t n_columns, unsigned by);

/* Computes ratios, once all rates are there. A ratio of nothing is unknown. */
void top_ratios(struct top_sample *s);

/* Returns the column with this heading, in either case; n_columns: none. */
unsigned top_find_column(const struct top_view *v, const char *name);

/* Selection and order of rows. */
struct top_order {
        unsigned column; /* to sort by: largest number, then A, first; unknown last */
        bool is_reversed;
        const char *tenant; /* only this one's rows; NULL: all. Borrowed, as the next */
        const char *filter; /* only rows with this in a text, in either case; NULL: all */
};

/* Writes at most s->n_rows pointers; returns how many. Equal rows are sorted by id. */
size_t top_select(
        const struct top_sample *s, const struct top_order *order, const struct top_row **ret_rows);

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
