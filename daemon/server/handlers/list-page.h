/*
 * Lists of administration, a page at a time. Rows are in order of an id that is never reused. The
 * cursor is the id of the last row sent, so objects made or removed between two pages repeat no
 * row.
 */
#ifndef KVL_SERVER_LIST_PAGE_H
#define KVL_SERVER_LIST_PAGE_H

#include <stdbool.h>

#include "daemon/server/handlers/admin-handlers.h"
#include "daemon/server/peers/peer.h"
#include "proto/figures.h"

/* Objects to list, by id. */
struct row {
        uint64_t id;
        void *object; /* borrowed */
};

struct rows {
        struct row *rows; /* owned */
        size_t n, size;
};

/* In any order. 0 or -ENOMEM. */
int rows_add(struct rows *r, uint64_t id, void *object);

/* Fills an empty row of a table (proto/figures.h); its texts live as long as the answer. Returns 0
 * or -ENOMEM. */
typedef int (*make_fn)(struct request *rq, void *object, void *ret_row);

/*
 * Fills the reply with the rows that fit, and frees the rows. Returns 0 or -ENOMEM; or `r`, if it
 * is < 0 because collecting the rows failed.
 */
int rows_fill_page(struct request *rq, int r, struct rows *rows, make_fn make,
        const struct figure_table *table);

/* True if the request wants objects of this tenant. */
bool list_wants(const Kvlease__V1__AdminListRequest *m, const char *tenant);

/* Returns 0, or -ENOENT with the sentence: there is no such tenant. */
int list_check_tenant(struct request *rq, const Kvlease__V1__AdminListRequest *m);

#endif
