/* ADMIN_SETS. */
#include "daemon/core/cache/nsset.h"
#include "daemon/core/state/ns.h"
#include "daemon/core/state/tenant.h"
#include "daemon/server/handlers/admin-handlers.h"
#include "daemon/server/handlers/list-page.h"
#include "daemon/server/peers/server.h"
#include "proto/arena.h"
#include "proto/kvlease.pb-c.h"

static int make_set(struct request *rq, void *object, void *ret)
{
        struct figures_set *row = ret;
        struct nsset *set = object;

        row->name = set->name;
        row->size = set->size;
        row->n_namespaces = set->n_members;
        row->keys_complete = set->n_complete;
        row->keys_incomplete = set->n_incomplete;
        row->dropped = set->n_dropped;
        for (uint32_t i = 0; i < set->size; i++)
                if (set->members[i]) {
                        row->tenant = set->members[i]->tenant->name;
                        row->charged_bytes += ns_charged_bytes(set->members[i], TIER_DEVICE);
                }
        return 0;
}

int handle_ADMIN_SETS(struct request *rq)
{
        const Kvlease__V1__AdminListRequest *m = rq->message;
        struct rows rows = {0};
        int r = list_check_tenant(rq, m);

        list_for_each (t, &rq->server->store.tenants, struct tenant, link)
                list_for_each (set, &t->nssets, struct nsset, link)
                        if (r == 0 && set->id > m->after && list_wants(m, t->name))
                                r = rows_add(&rows, set->id, set);
        return rows_fill_page(rq, r, &rows, make_set, &figures_table_set);
}
