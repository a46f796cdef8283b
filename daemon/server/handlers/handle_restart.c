/* ADMIN_RESTART: restarts the daemon, or reports how much of the cache would survive. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/macros.h"
#include "daemon/core/state/state-root.h"
#include "daemon/core/life/sizing.h"
#include "daemon/core/state/ns.h"
#include "daemon/core/state/store.h"
#include "daemon/core/state/tenant.h"
#include "daemon/server/handlers/handlers.h"
#include "daemon/server/peers/keeping.h"
#include "daemon/server/peers/server.h"
#include "daemon/server/peers/peer.h"
#include "daemon/server/services/stop.h"
#include "daemon/server/services/next-config.h"
#include "proto/kvlease.pb-c.h"

#define LOSSES_BYTES (32 * 1024) /* of an answer's 64 KiB; not tuned */

static void lose_memory(struct sentences *losses, const struct server *s)
{
        struct holding all = holding_count(s, NULL, NULL);
        char why[128];

        if (!keeping_is_on(&s->keeping)) {
                holding_lose(losses, &all,
                        s->keeping.why_not ? s->keeping.why_not : "keep_state is off");
                return;
        }
        list_for_each (pool, &s->store.pools, struct pool, link) {
                struct holding h = holding_count(s, pool, NULL);

                if (pool->props->survives_restart)
                        continue;
                snprintf(why, sizeof(why),
                        "memory of %s is handed over as cudaipc, and ends with kvleased",
                        pool->props->name);
                holding_lose(losses, &h, why);
        }
}

/* True if a part of the peer's namespaces ends with this process. */
static bool is_lost(const struct server *s, const struct peer *p)
{
        if (!keeping_is_on(&s->keeping))
                return true;
        list_for_each (a, &p->member->attachments, struct attach, member_link)
                if (!a->ns->device.pool->props->survives_restart)
                        return true;
        return false;
}

static void count_clients(const struct server *s, Kvlease__V1__AdminRestartReply *reply)
{
        list_for_each (p, &s->peers.list, struct peer, links.all) {
                if (!p->member)
                        continue;
                if (is_lost(s, p))
                        reply->clients_lost++;
                else
                        reply->clients_kept++;
        }
}

static void lose_the_rest(struct sentences *losses, const struct server *s)
{
        if (s->recorder.on)
                sentences_add(losses,
                        "the recording of traffic ends: begin another one with: kvleasectl trace record on");
        list_for_each (t, &s->store.tenants, struct tenant, link)
                if (t->sizing.sizer && sizing_reserved(t) != t->attrs.reserve_bytes)
                        sentences_add(losses,
                                "tenant %s: what the sizer reserved beyond its minimum; it starts over",
                                t->name);
}

static void restart_server(struct peer *p)
{
        server_restart(p->server);
}

static int begin_restart(struct request *rq, const Kvlease__V1__AdminRestartRequest *m, bool loses)
{
        if (!getenv("NOTIFY_SOCKET"))
                return detail_set(&rq->detail, -EOPNOTSUPP,
                        "kvleased would not be started again: it runs neither as a service nor "
                        "under kvleased --keep; stop it and start it where you did");
        if (loses && !m->force)
                return detail_set(&rq->detail, -EBUSY,
                        "a restart would lose something: look with kvleasectl restart --check, or say --force");
        rq->after = restart_server;
        return 0;
}

int handle_ADMIN_RESTART(struct request *rq)
{
        const Kvlease__V1__AdminRestartRequest *m = rq->message;
        Kvlease__V1__AdminRestartReply *reply = rq->reply;
        struct server *s = rq->server;
        struct sentences l;
        struct holding all = holding_count(s, NULL, NULL);

        if (sentences_init(&l, &s->scratch.arena, LOSSES_BYTES) < 0)
                return detail_set(&rq->detail, -ENOMEM, "no memory for the answer");
        lose_memory(&l, s);
        if (m->config || !m->check)
                next_config_losses(s, &l);
        count_clients(s, reply);
        lose_the_rest(&l, s);
        if (reply->clients_lost > 0)
                sentences_add(&l, "%u client%s must connect anew", reply->clients_lost,
                        PLURAL(reply->clients_lost));
        reply->keeps_state = keeping_is_on(&s->keeping);
        reply->state_layout = STATE_LAYOUT_VERSION;
        reply->kept_fds = keeping_count(s);
        reply->kept_max = s->keeping.max;
        reply->pages = all.n_pages;
        reply->bound_bytes = all.n_bytes;
        reply->sessions = all.n_sessions;
        reply->losses = l.texts;
        reply->n_losses = l.n;
        reply->more_losses = (uint32_t)l.n_more;
        return m->check ? 0 : begin_restart(rq, m, l.n + l.n_more > 0);
}
