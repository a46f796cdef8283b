/*
 * Results on stdout. One table of columns describes a kind of thing. Lists (by libsmartcols),
 * blocks ("limit: 4 GiB") and JSON (by jansson) are printed from it.
 *
 * JSON keys are stable, snake_case, and contain the unit; numbers are numbers. An absent value ("no
 * limit", a ratio of nothing) is null, "-" in text. Text from the daemon may stem from any client:
 * nothing unprintable reaches the terminal.
 */
#ifndef KVL_CTL_SHOW_H
#define KVL_CTL_SHOW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <jansson.h>

#include "base/macros.h"

struct show_format {
        bool json;
        bool plain_numbers; /* sizes and times */
        bool headings;
};

enum column_kind {
        COLUMN_TEXT,    /* const char * */
        COLUMN_COUNT,   /* uint64_t, FIGURE_NONE: absent; as the next four */
        COLUMN_BYTES,   /* also FIGURE_NONE: no limit */
        COLUMN_SECONDS, /* a duration */
        COLUMN_MSEC,    /* a duration */
        COLUMN_BOOL,
        COLUMN_RATIO, /* 0..1, derived only */
};

#define VALUE_TEXT_MAX 160

struct value {
        bool present;
        const char *text; /* may point to buf */
        uint64_t number;  /* COUNT, BYTES, SECONDS, MSEC, BOOL */
        double ratio;
        char buf[VALUE_TEXT_MAX];
};

struct column {
        const char *heading; /* NULL: only in JSON */
        const char *key;     /* NULL: only in text */
        enum column_kind kind;
        bool detail; /* only in blocks and JSON, not in lists */
        bool brief;  /* not in blocks */
        /* For lists on narrow terminals (width.h). Columns with `spare` > 0 are left out, the
         * highest number first. Texts are cut in the middle down to `shortest` columns; 0: never,
         * as they are to be copied. Texts with `wraps` are wrapped into several lines. */
        uint8_t spare, shortest;
        bool wraps;
        /* In blocks an absent row is left out rather than shown as "-". */
        bool optional;
        const char *group; /* in blocks, a group of rows with this title starts here; else NULL */
        const char *what;  /* meaning of the JSON field, for manual pages; NULL: no text */
        bool zero_is_none; /* 0 is shown as an absent value: none, or never */
        size_t offset;     /* of the value in the row */
        /* Alternative: a function that computes the value. The row is borrowed. *ret is zeroed
         * before. */
        void (*derive)(const void *row, const struct show_format *f, struct value *ret);
        /* Alternative for JSON: a function that returns an object or a list, owned. */
        json_t *(*derive_json)(const void *row);
};

struct column_table {
        const char *plural; /* "tenants": JSON key of a list, and "no tenants" */
        const struct column *columns;
        size_t n_columns;
};

/* A list while it is filled. */
struct show_list;

/* Makes a list. Returns owned. Borrows both. */
struct show_list *show_list_new(const struct column_table *t, const struct show_format *f);
/* Copies the row. */
void show_list_add(struct show_list *l, const void *row);
/* Prints and frees the list. */
void show_list_print(struct show_list *l);
/* Frees a list in JSON form; its array is returned owned. */
json_t *show_list_take_array(struct show_list *l);
/* Frees without printing. NULL is ignored. */
void show_list_free(struct show_list *l);

/* Prints one thing: a block, wrapped at the terminal's width (width.h), or a JSON object. */
void show_object(const struct column_table *t, const struct show_format *f, const void *row);

/* Prints rows of a block, those of n headings in this order, as many as fit into max_lines lines.
 */
void show_rows(const struct column_table *t, const struct show_format *f, const void *row,
        const char *const *headings, size_t n, size_t max_lines);

/* Makes only the JSON object. Returns owned. */
json_t *show_object_json(
        const struct column_table *t, const struct show_format *f, const void *row);

/* Makes a list of strings, unprintable bytes as \xHH. Returns owned. */
json_t *show_texts(size_t n, char *const *texts);

/* Prints and takes a JSON object. */
void show_json(json_t *object);

/* Makes a JSON string, with bytes that aren't UTF-8 as \xHH. Returns owned. */
json_t *show_json_text(const char *text);

/* "42", "1.5 GiB" */
const char *show_bytes(const struct show_format *f, uint64_t bytes, char buf[32]);

/* "42", "1 min 5 s" */
const char *show_seconds(const struct show_format *f, uint64_t seconds, char buf[32]);

#endif
