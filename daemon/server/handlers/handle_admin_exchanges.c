/* ADMIN_EXCHANGES. */
#include <errno.h>

#include "base/clock.h"
#include "base/macros.h"
#include "daemon/exchange/exchange.h"
#include "daemon/core/state/tenant.h"
#include "daemon/remote/io/remote-io.h"
#include "daemon/server/handlers/list-page.h"
#include "daemon/server/peers/server.h"
#include "daemon/server/services/remotes.h"
#include "proto/arena.h"
#include "proto/kvlease.pb-c.h"

static void fill_remote(struct figures_exchange *row, struct remote_store *remote)
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

/* 0 or -ENOMEM. */
static int fill_drops(
        struct arena *arena, struct figures_exchange *row, const struct exchange_counters *c)
{
        struct figures_drop *drops = arena_alloc(arena, N_EXCHANGE_DROPS * sizeof(*drops));

        for (unsigned i = 0; drops && i < N_EXCHANGE_DROPS; i++)
                drops[i] = (struct figures_drop){exchange_drop_name((enum exchange_drop)i),
                        c->not_imported[i], c->not_exported[i]};
        row->drops = drops;
        row->n_drops = drops ? N_EXCHANGE_DROPS : 0;
        return drops ? 0 : -ENOMEM;
}

static void fill_figures(struct figures_exchange *row, const struct exchange_figures *f)
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

static int make_exchange(struct request *rq, void *object, void *ret)
{
        struct arena *arena = &rq->server->scratch.arena;
        struct figures_exchange *row = ret;
        struct tenancy *t = object;
        struct remote_store *remote = remotes_find(rq->server, t->config.remote.name);
        struct exchange_figures f;

        row->tenant = t->config.name;
        row->remote = t->config.remote.name;
        (void)exchange_figures(t->tenant, &f);
        fill_figures(row, &f);
        if (remote)
                fill_remote(row, remote);
        return fill_drops(arena, row, &f.counters);
}

int handle_ADMIN_EXCHANGES(struct request *rq)
{
        struct rows rows = rows_begin_of_tenant(rq);

        list_for_each (t, &rq->server->tenancies.list, struct tenancy, link)
                if (rows_want(&rows, t->config.name) && exchange_of(t->tenant))
                        rows_add(&rows, t->id, t);
        return rows_fill_page(&rows, make_exchange, &figures_table_exchange);
}
