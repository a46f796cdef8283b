/* ADMIN_REMOTES. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/macros.h"
#include "daemon/remote/io/remote-io.h"
#include "daemon/server/handlers/list-page.h"
#include "daemon/server/peers/server.h"
#include "daemon/server/services/remotes.h"
#include "proto/arena.h"
#include "proto/kvlease.pb-c.h"

/* A remote, and one of its nodes. */
struct remote_row {
        const char *name;           /* borrowed of the configuration */
        struct remote_store *store; /* borrowed; NULL: it isn't open */
        uint64_t now_nsec;
        bool has_node;
        struct remote_node_stats node;
};

/* Rows of a remote: its nodes, or one row if it has none. */
#define ROWS_MAX (REMOTE_NODES_MAX + 1)

static void fill_remote(struct figures_node *m, struct remote_store *store, struct arena *arena)
{
        struct remote_summary summary;
        struct remote_stats stats;

        remote_summary(store, &summary);
        remote_stats(store, &stats);
        m->state = remote_state_name(summary.state);
        m->is_cluster = stats.is_cluster;
        m->slots_served = stats.n_served;
        if (summary.fault[0])
                m->slots_error = arena_strdup(arena, summary.fault);
        else if (stats.refresh_error < 0)
                m->slots_error = remote_error_text(stats.refresh_error);
        m->reads = stats.n_hits;
        m->reads_failed = stats.n_misses;
        m->writes = stats.n_written;
        m->writes_refused = stats.n_refused;
}

static void fill_node(struct figures_node *m, const struct remote_node_stats *n, uint64_t now_nsec)
{
        m->slots = n->n_slots;
        m->connections = n->n_connections;
        m->breaker = breaker_state_name(n->breaker);
        if (n->breaker == BREAKER_OPEN)
                m->open_left_msec = minus_u64(n->open_until_nsec, now_nsec) / NSEC_PER_MSEC;
        m->rtt_usec = n->rtt_nsec / NSEC_PER_USEC;
        m->bytes_read = n->bytes_in;
        m->bytes_written = n->bytes_out;
        m->answers = n->n_ops;
        m->errors = n->n_errors;
        m->timeouts = n->n_timeouts;
        m->losses = n->n_losses;
        m->trips = n->n_trips;
        if (n->last_error < 0)
                m->last_error = remote_error_text(n->last_error);
}

static int make_row(struct request *rq, void *object, void *ret)
{
        struct arena *arena = &rq->server->scratch.arena;
        struct figures_node *m = ret;
        char *address = arena_alloc(arena, REMOTE_NAME_BYTES);
        const struct remote_row *row = object;

        if (!address)
                return -ENOMEM;
        m->remote = row->name;
        m->state = "not-open";
        if (row->store)
                fill_remote(m, row->store, arena);
        if (row->has_node) {
                memcpy(address, row->node.name, REMOTE_NAME_BYTES);
                m->address = address;
                fill_node(m, &row->node, row->now_nsec);
        }
        return 0;
}

/* True if this is the remote of the wanted tenant. */
static bool wants_remote(const struct server *s, const char *tenant, const char *remote)
{
        if (!*tenant)
                return true;
        list_for_each (t, &s->tenancies.list, struct tenancy, link)
                if (strcmp(t->config.name, tenant) == 0)
                        return strcmp(t->config.remote.name, remote) == 0;
        return false;
}

/* Adds rows of remote number `at`. A node's place in the store is part of its row's id. By the next
 * page another node may have the place, and is listed there. */
static void add_remote(struct rows *rows, size_t at)
{
        const struct server *s = rows->rq->server;
        struct remote_row row = {.name = s->config.remotes[at].name,
                .store = remotes_find(s, s->config.remotes[at].name),
                .now_nsec = clock_now_nsec()};
        const uint64_t id = at * ROWS_MAX + 1;
        unsigned iter = 0;

        while (row.store && remote_node_next(row.store, &iter, &row.node)) {
                row.has_node = true;
                rows_add_copy(rows, id + iter, &row, sizeof(row));
        }
        if (!row.has_node)
                rows_add_copy(rows, id, &row, sizeof(row));
}

int handle_ADMIN_REMOTES(struct request *rq)
{
        struct rows rows = rows_begin_of_tenant(rq);
        const struct config *c = &rq->server->config;

        for (size_t i = 0; i < c->n_remotes; i++)
                if (wants_remote(rq->server, rows.m->tenant, c->remotes[i].name))
                        add_remote(&rows, i);
        return rows_fill_page(&rows, make_row, &figures_table_node);
}
