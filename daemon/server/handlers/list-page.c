#include "daemon/server/handlers/list-page.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/core/state/store.h"
#include "daemon/core/state/tenant.h"
#include "daemon/server/peers/server.h"
#include "proto/arena.h"

struct row {
        uint64_t id;
        void *object;
        void *copy; /* owned; the object, or NULL */
};

struct rows rows_begin(struct request *rq)
{
        return (struct rows){.rq = rq, .m = rq->message};
}

struct rows rows_begin_of_tenant(struct request *rq)
{
        struct rows r = rows_begin(rq);

        if (*r.m->tenant && !request_tenant(rq, r.m->tenant))
                r.result = -ENOENT;
        return r;
}

bool rows_want(const struct rows *r, const char *tenant)
{
        return !*r->m->tenant || strcmp(r->m->tenant, tenant) == 0;
}

static struct row *add_row(struct rows *r, uint64_t id)
{
        size_t size = r->size ? 2 * r->size : 64;
        struct row *rows;

        if (r->result < 0 || id <= r->m->after)
                return NULL;
        if (r->n == r->size) {
                rows = realloc(r->rows, size * sizeof(*rows));
                if (!rows) {
                        r->result = -ENOMEM;
                        return NULL;
                }
                r->rows = rows;
                r->size = size;
        }
        r->rows[r->n] = (struct row){.id = id};
        return &r->rows[r->n++];
}

void rows_add(struct rows *r, uint64_t id, void *object)
{
        struct row *row = add_row(r, id);

        if (row)
                row->object = object;
}

void rows_add_copy(struct rows *r, uint64_t id, const void *object, size_t bytes)
{
        struct row *row = add_row(r, id);

        if (!row)
                return;
        row->object = row->copy = malloc(bytes);
        if (row->copy)
                memcpy(row->copy, object, bytes);
        else
                r->result = -ENOMEM;
}

static int compare_rows(const void *a, const void *b)
{
        const struct row *x = a, *y = b;

        return (x->id > y->id) - (x->id < y->id);
}

int rows_fill_page(struct rows *rows, make_fn make, const struct figure_table *table)
{
        struct request *rq = rows->rq;
        struct arena *arena = &rq->server->scratch.arena;
        Kvlease__V1__AdminRowsReply *reply = rq->reply;
        void *row = arena_alloc(arena, table->size);
        struct figures_page page;
        int r = rows->result;

        if (r == 0)
                r = row ? figures_page_init(&page, table, arena) : -ENOMEM;
        if (r == 0 && rows->n > 0)
                qsort(rows->rows, rows->n, sizeof(*rows->rows), compare_rows);
        for (size_t i = 0; r == 0 && i < rows->n; i++) {
                figures_init(table, row);
                r = make(rq, rows->rows[i].object, row);
                if (r == 0)
                        r = figures_page_add(&page, row);
                if (r < 0 && i > 0) { /* the next page has it */
                        reply->next = rows->rows[i - 1].id;
                        break;
                }
        }
        if (r == 0 || reply->next) {
                figures_page_finish(&page, reply);
                r = 0;
        }
        for (size_t i = 0; i < rows->n; i++)
                free(rows->rows[i].copy);
        free(rows->rows);
        return r;
}
