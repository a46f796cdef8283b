/*
 * Figures on the wire: the lists of figures.def. A reply (AdminRowsReply) has a table for the list,
 * and one for each list whose rows belong to rows of the first. A table names its columns, so that
 * each side may know figures that the other lacks.
 *
 * In memory a row is a struct figures_SCOPE: numbers are uint64_t, texts aren't NULL unless their
 * kind is TEXT_OR_NONE.
 */
#ifndef KVL_PROTO_FIGURES_H
#define KVL_PROTO_FIGURES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/arena.h"
#include "proto/kvlease.pb-c.h"

#define FIGURE_NONE UINT64_MAX /* an absent number, or no limit */

/* Contents of a tier below devices: of all tenants, of one, or of a namespace. */
struct figures_tier {
        uint64_t limit_bytes; /* of all tenants: the budget; of a namespace: 0 */
        uint64_t charged_bytes, n_sets, pages_sealed, pages_detached, pages_free;
        uint64_t arrived, damaged;          /* pages of the namespaces there are */
        uint64_t read_bytes, written_bytes; /* of disks */
        uint64_t errors, late;              /* operations of disks */
};

/* Prefetched pages of one kind. */
struct figures_prefetch {
        uint64_t begun, useful, wasted, given_up, at_stake;
        uint64_t window; /* so many may be at stake; 0: none now. Not of what was named */
};

#define FIELD_COUNT        uint64_t
#define FIELD_BYTES        uint64_t
#define FIELD_SECONDS      uint64_t
#define FIELD_MSEC         uint64_t
#define FIELD_BOOL         uint64_t
#define FIELD_TEXT         const char *
#define FIELD_TEXT_OR_NONE const char *

#define LIST(scope, ...) struct figures_##scope {
#define LIST_END(...) \
        }             \
        ;
#define FIGURE(name, kind, ...) FIELD_##kind name;
#define PART(...)
#define HIDDEN FIGURE
#define HIDDEN_PART(...)
#define HAS(type, part) struct type part;
#define ROWS(of, name)                   \
        const struct figures_##of *name; \
        size_t n_##name;
#include "proto/figures.def"

struct figure {
        const char *name;
        uint16_t offset;
        bool is_text, may_be_none; /* may_be_none: a text that may be NULL */
};

struct figure_table;

/* Rows of another list that belong to a row: a pointer and a number at these offsets. */
struct figure_rows {
        const char *name; /* NULL: the end */
        const struct figure_table *table;
        size_t rows_offset, n_offset;
};

struct figure_table {
        const char *name; /* "tenants" */
        const struct figure *figures;
        size_t n_figures, size; /* size: bytes of the struct */
        const struct figure_rows *parts;
};

#define LIST(scope, ...) extern const struct figure_table figures_table_##scope;
#define LIST_END(...)
#include "proto/figures.def"

/* Makes an empty row: numbers are 0, texts "". */
void figures_init(const struct figure_table *t, void *row);

/* ---- sending --------------------------------------------------------------------------------- */

/* A reply while it fills. All memory is the arena's. */
struct figures_page {
        const struct figure_table *table;
        struct arena *arena;
        Kvlease__V1__AdminTable **tables; /* the list, and its parts */
        size_t n_tables, bytes;
};

/* Returns 0 or -ENOMEM. */
int figures_page_init(struct figures_page *p, const struct figure_table *t, struct arena *a);

/* Adds a row, whose texts are borrowed. Returns 0; -ENOSPC: the page is full; -ENOMEM. */
int figures_page_add(struct figures_page *p, const void *row);

/* Sets the tables of the reply. */
void figures_page_finish(struct figures_page *p, Kvlease__V1__AdminRowsReply *reply);

/* ---- receiving ------------------------------------------------------------------------------- */

/* Reads the rows of a list from a reply of any peer. Returns 0: *ret_rows is an array of *ret_n
 * structs in the arena, whose texts are borrowed from the reply; -EPROTO: the reply isn't one of
 * this list; -ENOMEM. */
int figures_read(const Kvlease__V1__AdminRowsReply *reply, const struct figure_table *t,
        struct arena *a, const void **ret_rows, size_t *ret_n);

#endif
