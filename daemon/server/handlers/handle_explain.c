/* EXPLAIN, ADMIN_EXPLAIN. */
#include <errno.h>

#include "daemon/core/cache/history.h"
#include "daemon/exchange/forecast.h"
#include "daemon/core/state/group.h"
#include "daemon/core/state/tenant.h"
#include "daemon/server/handlers/handlers.h"
#include "daemon/server/peers/server.h"
#include "daemon/server/peers/peer.h"
#include "daemon/server/services/tenants.h"
#include "proto/arena.h"
#include "proto/kvlease.pb-c.h"

#define MAX_EXPLAIN_KEYS 256 /* kvlease.proto */

static int check_keys(struct request *rq, size_t len)
{
        if (len == 0 || len % KEY_BYTES != 0)
                return detail_set(&rq->detail, -EINVAL,
                        "keys has %zu bytes: 1 to %d keys of %d bytes are allowed", len,
                        MAX_EXPLAIN_KEYS, KEY_BYTES);
        if (len / KEY_BYTES > MAX_EXPLAIN_KEYS)
                return detail_set(&rq->detail, -EMSGSIZE,
                        "the request names %zu keys: at most %d are allowed in one",
                        len / KEY_BYTES, MAX_EXPLAIN_KEYS);
        return 0;
}

/* A tenant doesn't learn the names of others. */
static const char *name_of(const struct explanation *e, const struct tenant *asker)
{
        if (!e->by)
                return e->what;
        return !asker || asker == e->by ? e->by->name : "another tenant";
}

static void fill_explanation(const struct ns *ns, const struct explanation *e,
        const struct tenant *asker, Kvlease__V1__Explanation *ret)
{
        kvlease__v1__explanation__init(ret);
        ret->state = e->state;
        ret->page = e->page == PAGE_NONE ? 0 : e->page;
        if (e->page != PAGE_NONE)
                ret->tier = tier_of_page(&ns->geometry, e->page);
        ret->age_sec = e->age_sec;
        ret->unused_sec = e->unused_sec;
        ret->client_id = e->client_id;
        ret->by = (char *)name_of(e, asker);
}

/* asker: NULL, an administrator. */
static int explain_keys(struct request *rq, struct ns *ns, const ProtobufCBinaryData *keys,
        const struct tenant *asker)
{
        Kvlease__V1__ExplainReply *reply = rq->reply;
        struct arena *arena = &rq->server->scratch.arena;
        size_t n = keys->len / KEY_BYTES;
        uint64_t now_nsec = server_now(rq->server);
        Kvlease__V1__Explanation *rows;
        int r = check_keys(rq, keys->len);

        if (r < 0)
                return r;
        rows = arena_alloc(arena, n * sizeof(*rows));
        reply->explanations = arena_alloc(arena, n * sizeof(*reply->explanations));
        if (!rows || !reply->explanations)
                return -ENOMEM;
        for (size_t i = 0; i < n; i++) {
                struct explanation e;

                history_explain(ns, keys->data + i * KEY_BYTES, now_nsec, &e);
                fill_explanation(ns, &e, asker, &rows[i]);
                reply->explanations[i] = &rows[i];
        }
        reply->n_explanations = n;
        return 0;
}

static bool is_here(const Kvlease__V1__Explanation *row)
{
        return row->state == HISTORY_CACHED || row->state == HISTORY_PENDING;
}

/* Adds whether other hosts could have the missing part. */
static int add_forecast(struct request *rq, const struct ns *ns)
{
        Kvlease__V1__ExplainReply *reply = rq->reply;
        const struct tenancy *t = tenancy_find(rq->server, ns->tenant->name);
        enum exchange_forecast forecast;
        struct detail d;
        size_t n = 0;

        forecast = exchange_forecast(ns, t ? t->config.remote.name : "", &d);
        for (size_t i = 0; i < reply->n_explanations; i++) {
                if (is_here(reply->explanations[i]))
                        continue;
                reply->explanations[i]->outlook = (char *)exchange_forecast_name(forecast);
                n++;
        }
        if (n == 0)
                return 0;
        reply->outlook_detail = arena_strdup(&rq->server->scratch.arena, d.text);
        return reply->outlook_detail ? 0 : -ENOMEM;
}

int handle_EXPLAIN(struct request *rq)
{
        const Kvlease__V1__ExplainRequest *m = rq->message;
        struct ns *ns = rq->attach->ns;

        return explain_keys(rq, ns, &m->keys, ns->tenant);
}

int handle_ADMIN_EXPLAIN(struct request *rq)
{
        const Kvlease__V1__AdminExplainRequest *m = rq->message;
        struct ns *ns = request_ns(rq, m->tenant, m->ns);
        int r = ns ? explain_keys(rq, ns, &m->keys, NULL) : -ENOENT;

        return r < 0 ? r : add_forecast(rq, ns);
}
