#include "daemon/server/handlers/list-page.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/core/state/store.h"
#include "daemon/core/state/tenant.h"
#include "daemon/server/handlers/client-handlers.h"
#include "daemon/server/peers/server.h"
#include "proto/arena.h"

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

int rows_fill_page(struct request *rq, int r, struct rows *rows, make_fn make,
        const struct figure_table *table)
{
        struct arena *arena = &rq->server->scratch.arena;
        Kvlease__V1__AdminRowsReply *reply = rq->reply;
        void *row = arena_alloc(arena, table->size);
        struct figures_page page;

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
        free(rows->rows);
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
