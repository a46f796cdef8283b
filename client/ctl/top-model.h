/*
 * What kvleasectl top shows: samples of things (tenants, namespaces, clients, regions), a row each,
 * and the rates between two of them. Pure: no daemon, no screen, no clock.
 *
 *   sample:  (begin, rows are added) -> rated (top_rates(), perhaps top_add_rates()) -> ratios
 *
 * A counter that is smaller than before began anew: what it counted since is taken for the
 * difference, so that no rate is negative. A row that wasn't there is new, and its counters began
 * at 0. Of another epoch (the daemon was restarted) there are no rates at all.
 */
#ifndef KVL_CTL_TOP_MODEL_H
#define KVL_CTL_TOP_MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum top_kind {
        TOP_TEXT,
        TOP_DEVICE, /* a text; lines have its beginning */
        TOP_COUNT,
        TOP_BYTES,
        TOP_SECONDS,
        TOP_RATE,      /* of a counter, a second */
        TOP_BYTE_RATE, /* of a counter of bytes */
        TOP_RATIO,     /* of the view's hits and misses */
};

struct top_column {
        const char *heading; /* and its name, in either case */
        const char *key;     /* of JSON */
        enum top_kind kind;
};

#define TOP_MAX_COLUMNS 18

struct top_view {
        const char *name; /* "tenants" */
        const struct top_column *columns;
        unsigned n_columns;    /* at most TOP_MAX_COLUMNS */
        unsigned n_names;      /* the first ones, which say whose row it is */
        unsigned default_sort; /* column */
        unsigned tenant;       /* column with the tenant's name */
        unsigned hits, misses; /* columns; of views with a TOP_RATIO */
};

struct top_cell {
        bool known;      /* false: "-" */
        char *text;      /* of texts: owned, as the daemon has it; NULL otherwise */
        uint64_t number; /* as read; of rates: the counter */
        double rate;     /* rates and ratios, once known */
};

struct top_row {
        char *id; /* owned; what the row is found by in the next sample */
        struct top_cell cells[TOP_MAX_COLUMNS];
};

struct top_sample {
        const struct top_view *view;
        uint64_t taken_nsec;  /* monotonic */
        uint64_t epoch;       /* the daemon's boot_epoch */
        bool has_rates;       /* there was one before it to compare with */
        struct top_row *rows; /* owned; by id once rated */
        size_t n_rows, n_allocated;
};

/* An empty sample. */
void top_sample_init(
        struct top_sample *s, const struct top_view *v, uint64_t taken_nsec, uint64_t epoch);
void top_sample_deinit(struct top_sample *s);

/* A row, borrowed until the next one is added. Copies the id. */
struct top_row *top_sample_add(struct top_sample *s, const char *id);

/* Copies the text, in place of one that was there. "" isn't known. */
void top_set_text(struct top_row *row, unsigned column, const char *text);

/* Of bytes UINT64_MAX isn't known: no limit. A counter is known once it is rated. */
void top_set_number(
        const struct top_view *v, struct top_row *row, unsigned column, uint64_t number);

/* Sorts `now` by id, and makes rates out of it and the sample before, which is rated. `before` may
 * be NULL or without rows' counters: then there are none. */
void top_rates(struct top_sample *now, const struct top_sample *before);

/*
 * Adds up rates of `from` (rated) in rows of `to` (rated): column from_columns[i] into
 * to_columns[i], which has no counter of its own. A row of `from` belongs to that row of `to` which
 * has the text of its column `by` for an id; TOP_ALL_ROWS: all to the one row.
 */
#define TOP_ALL_ROWS UINT32_MAX
void top_add_rates(struct top_sample *to, const unsigned *to_columns, const struct top_sample *from,
        const unsigned *from_columns, size_t n_columns, unsigned by);

/* Once all rates are there. A ratio of nothing isn't known. */
void top_ratios(struct top_sample *s);

/* Column by its heading, in either case; n_columns where there is none. */
unsigned top_find_column(const struct top_view *v, const char *name);

/* Which rows are shown, and in which order. */
struct top_order {
        unsigned column; /* to sort by: numbers from the largest, texts from A; what isn't known
                            last */
        bool is_reversed;
        const char *tenant; /* only of this one; NULL: of all. Borrowed, and so is the next */
        const char *filter; /* only with this in one of the texts, in either case; NULL: all */
};

/* Writes at most s->n_rows pointers; returns how many. Equal ones are sorted by id. */
size_t top_select(
        const struct top_sample *s, const struct top_order *order, const struct top_row **ret_rows);

#endif
