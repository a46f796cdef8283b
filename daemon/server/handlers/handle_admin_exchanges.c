/* ADMIN_EXCHANGES. */
#include <errno.h>

#include "base/clock.h"
#include "base/macros.h"
#include "daemon/core/exchange/exchange.h"
#include "daemon/core/state/tenant.h"
#include "daemon/core/exchange/exchange-io.h"
#include "daemon/remote/store/remote.h"
#include "daemon/server/handlers/admin-handlers.h"
#include "daemon/server/handlers/list-page.h"
#include "daemon/server/peers/server.h"
#include "daemon/server/peers/tenancy.h"
#include "daemon/server/services/remotes.h"
#include "proto/arena.h"
#include "proto/kvlease.pb-c.h"

static void fill_remote(Kvlease__V1__AdminExchange *row, struct remote_store *remote)
{
        struct remote_summary summary;
        struct remote_stats stats;

        remote_stats(remote, &stats);
        remote_summary(remote, &summary);
        row->is_known = stats.is_known;
        row->n_nodes = summary.n_nodes;
        row->n_nodes_open = summary.n_left_alone;
        row->rtt_usec = summary.rtt_nsec / NSEC_PER_USEC;
}

/* NULL: no memory. */
static Kvlease__V1__AdminExchangeDrop *make_drop(
        struct arena *arena, const struct exchange_counters *c, enum exchange_drop drop)
{
        Kvlease__V1__AdminExchangeDrop *m = arena_alloc(arena, sizeof(*m));

        if (!m)
                return NULL;
        kvlease__v1__admin_exchange_drop__init(m);
        m->reason = (char *)exchange_drop_name(drop);
        m->not_imported = c->not_imported[drop];
        m->not_exported = c->not_exported[drop];
        return m;
}

static bool fill_drops(
        struct arena *arena, Kvlease__V1__AdminExchange *row, const struct exchange_counters *c)
{
        row->drops = arena_alloc(arena, N_EXCHANGE_DROPS * sizeof(*row->drops));
        for (unsigned i = 0; row->drops && i < N_EXCHANGE_DROPS; i++) {
                row->drops[i] = make_drop(arena, c, (enum exchange_drop)i);
                if (!row->drops[i])
                        return false;
                row->n_drops++;
        }
        return row->drops;
}

static void fill_figures(Kvlease__V1__AdminExchange *row, const struct exchange_figures *f)
{
        const struct exchange_counters *c = &f->counters;

        row->may_write = f->may_write;
        row->is_sealed = f->is_sealed;
        row->n_namespaces = f->n_namespaces;
        row->n_namespaces_ready = f->n_ready;
        row->probes = c->probes;
        row->probed_pages = c->probed_pages;
        row->found_pages = c->found_pages;
        row->imported_pages = c->imported_pages;
        row->imported_bytes = c->imported_bytes;
        row->exported_pages = c->exported_pages;
        row->exported_bytes = c->exported_bytes;
        row->there_pages = c->there_pages;
        row->loads = c->loads;
        row->loads_lost = c->loads_lost;
        row->load_error_ppm = (uint64_t)(f->load_error * 1e6);
        row->import_bytes_per_sec = f->import_bytes_per_sec;
        row->prefill_tokens_per_sec = f->prefill_tokens_per_sec;
        row->epochs = c->epochs;
        row->followed = c->followed;
        row->session_records = c->session_records;
        row->sessions = c->sessions;
        row->n_imports = f->n_imports;
        row->n_texts = f->n_texts;
        row->bytes_under_way = f->bytes_under_way;
}

static ProtobufCMessage *make_exchange(struct request *rq, void *object)
{
        struct arena *arena = &rq->server->scratch.arena;
        Kvlease__V1__AdminExchange *row = arena_alloc(arena, sizeof(*row));
        struct tenancy *t = object;
        struct remote_store *remote = remotes_find(rq->server, t->config.remote.name);
        struct exchange_figures f;

        if (!row)
                return NULL;
        kvlease__v1__admin_exchange__init(row);
        row->tenant = t->config.name;
        row->remote = t->config.remote.name;
        (void)exchange_figures(t->tenant, &f);
        fill_figures(row, &f);
        if (remote)
                fill_remote(row, remote);
        return fill_drops(arena, row, &f.counters) ? &row->base : NULL;
}

int handle_ADMIN_EXCHANGES(struct request *rq)
{
        const Kvlease__V1__AdminListRequest *m = rq->message;
        Kvlease__V1__AdminExchangesReply *reply = rq->reply;
        struct rows rows = {0};
        struct list_page page = {0};
        int r = list_check_tenant(rq, m);

        list_for_each (t, &rq->server->tenancies.list, struct tenancy, link)
                if (r == 0 && t->id > m->after && list_wants(m, t->config.name) &&
                        t->tenant->exchange)
                        r = rows_add(&rows, t->id, t);
        r = rows_fill_page(rq, r, &rows, make_exchange, &page);
        reply->exchanges = (Kvlease__V1__AdminExchange **)page.messages;
        reply->n_exchanges = page.n;
        reply->next = page.next;
        return r;
}
