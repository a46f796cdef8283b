#include "daemon/server/handlers/list-page.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/core/state/store.h"
#include "daemon/core/state/tenant.h"
#include "daemon/server/handlers/client-handlers.h"
#include "daemon/server/peers/server.h"
#include "proto/arena.h"

/* Bytes of rows in one reply: three quarters of a frame, so that the last row always fits. */
#define PAGE_BYTES (48 * 1024)

/* Largest overhead of a row besides its message; it bounds the rows of a page. */
#define ROW_HEAD_BYTES 8
#define PAGE_ROWS      (PAGE_BYTES / ROW_HEAD_BYTES)

int rows_add(struct rows *r, uint64_t id, void *object)
{
        if (r->n == r->size) {
                size_t size = r->size ? 2 * r->size : 64;
                struct row *rows = realloc(r->rows, size * sizeof(*rows));

                if (!rows)
                        return -ENOMEM;
                r->rows = rows;
                r->size = size;
        }
        r->rows[r->n++] = (struct row){id, object};
        return 0;
}

static int compare_rows(const void *a, const void *b)
{
        const struct row *x = a, *y = b;

        return (x->id > y->id) - (x->id < y->id);
}

int rows_fill_page(
        struct request *rq, int r, struct rows *rows, make_fn make, struct list_page *ret_page)
{
        struct arena *arena = &rq->server->scratch.arena;
        size_t n_most = MIN(rows->n, (size_t)PAGE_ROWS);
        struct list_page page = {.messages = arena_alloc(arena, n_most * sizeof(void *))};

        if (r == 0 && !page.messages && rows->n > 0)
                r = -ENOMEM;
        if (r == 0 && rows->n > 0)
                qsort(rows->rows, rows->n, sizeof(*rows->rows), compare_rows);
        for (size_t i = 0; i < rows->n && r == 0; i++) {
                ProtobufCMessage *m = make(rq, rows->rows[i].object);
                size_t bytes = m ? protobuf_c_message_get_packed_size(m) + ROW_HEAD_BYTES : 0;

                if (!m && page.n == 0)
                        r = -ENOMEM;
                if (!m || page.bytes + bytes > PAGE_BYTES) {
                        page.next = i > 0 ? rows->rows[i - 1].id : 0;
                        break;
                }
                page.messages[page.n++] = m;
                page.bytes += bytes;
        }
        free(rows->rows);
        *ret_page = page;
        return r;
}

bool list_wants(const Kvlease__V1__AdminListRequest *m, const char *tenant)
{
        return !*m->tenant || strcmp(m->tenant, tenant) == 0;
}

int list_check_tenant(struct request *rq, const Kvlease__V1__AdminListRequest *m)
{
        return !*m->tenant || request_tenant(rq, m->tenant) ? 0 : -ENOENT;
}
