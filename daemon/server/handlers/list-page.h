/*
 * Lists of administration, a page at a time. Rows are in order of an id that is never reused. The
 * cursor is the id of the last row sent, so objects made or removed between two pages repeat no
 * row.
 */
#ifndef KVL_SERVER_LIST_PAGE_H
#define KVL_SERVER_LIST_PAGE_H

#include <stdbool.h>

#include "daemon/server/handlers/handlers.h"
#include "daemon/server/peers/peer.h"
#include "proto/figures.h"

struct row;

/* Objects to list for a request. */
struct rows {
        struct request *rq; /* borrowed */
        const Kvlease__V1__AdminListRequest *m;
        struct row *rows; /* owned */
        size_t n, size;
        int result; /* 0; else the request is refused */
};

/* Begins a list of all objects, whatever tenant the request names. */
struct rows rows_begin(struct request *rq);

/* Begins a list of the tenant that the request names, which must exist, or of all tenants. */
struct rows rows_begin_of_tenant(struct request *rq);

/* True if the request wants objects of this tenant. Objects of no tenant have "". */
bool rows_want(const struct rows *r, const char *tenant);

/* Adds an object behind the cursor, in any order; others are skipped. A borrowed object must live
 * as long as the request. Failures are noted in `result`. */
void rows_add(struct rows *r, uint64_t id, void *object);
void rows_add_copy(struct rows *r, uint64_t id, const void *object, size_t bytes);

/* Fills an empty row of a table (proto/figures.h); its texts live as long as the answer. Returns 0
 * or -ENOMEM. */
typedef int (*make_fn)(struct request *rq, void *object, void *ret_row);

/* Fills the reply with the rows that fit, and frees the rows. Returns `result`, or -ENOMEM. */
int rows_fill_page(struct rows *r, make_fn make, const struct figure_table *table);

#endif
