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
#include "proto/kvlease.pb-c.h"

/* Objects to list, by id. */
struct row {
        uint64_t id;
        void *object; /* borrowed */
};

struct rows {
        struct row *rows; /* owned */
        size_t n, size;
};

/* A reply's list as it fills; all of it borrowed from the arena. */
struct list_page {
        ProtobufCMessage **messages;
        size_t n, bytes;
        uint64_t next;
};

/* In any order. 0 or -ENOMEM. */
int rows_add(struct rows *r, uint64_t id, void *object);

/* Makes the message of one object in the arena. NULL: no memory. */
typedef ProtobufCMessage *(*make_fn)(struct request *rq, void *object);

/*
 * Fills *ret_page with the rows that fit, and frees the rows. Returns 0 or -ENOMEM; or `r`, if it
 * is < 0 because collecting the rows failed.
 */
int rows_fill_page(
        struct request *rq, int r, struct rows *rows, make_fn make, struct list_page *ret_page);

/* True if the request wants objects of this tenant. */
bool list_wants(const Kvlease__V1__AdminListRequest *m, const char *tenant);

/* Returns 0, or -ENOENT with the sentence: there is no such tenant. */
int list_check_tenant(struct request *rq, const Kvlease__V1__AdminListRequest *m);

#endif
