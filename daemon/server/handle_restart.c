/* ADMIN_RESTART: what the daemon that comes after this one finds, and the way there. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/parse.h"
#include "daemon/core/ns.h"
#include "daemon/core/session.h"
#include "daemon/core/sizing.h"
#include "daemon/core/state.h"
#include "daemon/core/store.h"
#include "daemon/core/tenant.h"
#include "daemon/server/dispatch.h"
#include "daemon/server/peer.h"
#include "daemon/server/server.h"
#include "proto/kvlease.pb-c.h"

#define LOSSES_MAX 64 /* sentences; the last one says that there are more */
#define LOSS_BYTES 256

struct losses {
        struct arena *arena;
        char **texts; /* of the arena */
        size_t n, n_more;
};

KVL_PRINTF(2, 3) static void lose(struct losses *l, const char *format, ...)
{
        char *text = l->n + 1 < LOSSES_MAX ? arena_alloc(l->arena, LOSS_BYTES) : NULL;
        va_list args;

        if (!text) {
                l->n_more++;
                return;
        }
        va_start(args, format);
        vsnprintf(text, LOSS_BYTES, format, args);
        va_end(args);
        l->texts[l->n++] = text;
}

struct holding {
        uint64_t n_pages, n_bytes; /* cached, and the memory that is bound for it */
        uint64_t n_sessions;
};

/* Of one device; NULL: of all. */
static struct holding count_holding(const struct server *s, const struct pool *pool)
{
        struct holding h = {0};

        list_for_each (t, &s->store.tenants, struct tenant, link)
                list_for_each (ns, &t->namespaces, struct ns, link) {
                        if (pool && ns->device.pool != pool)
                                continue;
                        h.n_pages += ns_count_findable(ns);
                        h.n_bytes += ns_all_bytes(ns);
                        h.n_sessions += sessions_count(ns);
                }
        return h;
}

static void lose_holding(struct losses *l, const struct holding *h, const char *why)
{
        char bytes[FORMAT_BYTES_MAX];

        if (h->n_bytes > 0 || h->n_sessions > 0)
                lose(l, "%llu cached pages (%s) and %llu sessions: %s",
                        (unsigned long long)h->n_pages, format_bytes(h->n_bytes, bytes),
                        (unsigned long long)h->n_sessions, why);
}

static void lose_memory(struct losses *l, const struct server *s)
{
        struct holding all = count_holding(s, NULL);
        char why[128];

        if (!keeping_is_on(&s->keeping)) {
                lose_holding(
                        l, &all, s->keeping.why_not ? s->keeping.why_not : "keep_state is off");
                return;
        }
        list_for_each (pool, &s->store.pools, struct pool, link) {
                struct holding h = count_holding(s, pool);

                if (pool->props->survives_restart)
                        continue;
                snprintf(why, sizeof(why),
                        "memory of %s is handed over as cudaipc, and ends with kvleased",
                        pool->props->name);
                lose_holding(l, &h, why);
        }
}

/* Does what it has open end with this process? */
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
        list_for_each (p, &s->peers, struct peer, link) {
                if (!p->member)
                        continue;
                if (is_lost(s, p))
                        reply->clients_lost++;
                else
                        reply->clients_kept++;
        }
}

static void lose_the_rest(struct losses *l, const struct server *s)
{
        if (s->recorder.on)
                lose(l, "the recording of traffic ends: begin another one with: kvleasectl trace "
                        "record on");
        list_for_each (t, &s->store.tenants, struct tenant, link)
                if (t->sizing.sizer && sizing_reserved(t) != t->attrs.reserve_bytes)
                        lose(l,
                                "tenant %s: what the sizer reserved beyond its minimum; it starts "
                                "over",
                                t->name);
}

static void restart(struct peer *p)
{
        server_restart(p->server);
}

static int begin_restart(struct request *rq, const Kvlease__V1__AdminRestartRequest *m, bool loses)
{
        if (!getenv("NOTIFY_SOCKET"))
                return detail_set(&rq->detail, -EOPNOTSUPP,
                        "nobody would start kvleased again: it runs neither as a service nor under "
                        "kvleased --keep; stop it and start it where you did");
        if (loses && !m->force)
                return detail_set(&rq->detail, -EBUSY,
                        "a restart would lose something: look with kvleasectl restart --check, or "
                        "say --force");
        rq->after = restart;
        return 0;
}

int handle_ADMIN_RESTART(struct request *rq)
{
        const Kvlease__V1__AdminRestartRequest *m = rq->message;
        Kvlease__V1__AdminRestartReply *reply = rq->reply;
        struct server *s = rq->server;
        struct losses l = {.arena = &s->arena};
        struct holding all = count_holding(s, NULL);

        l.texts = arena_alloc(&s->arena, LOSSES_MAX * sizeof(*l.texts));
        if (!l.texts)
                return detail_set(&rq->detail, -ENOMEM, "no memory for the answer");
        lose_memory(&l, s);
        count_clients(s, reply);
        lose_the_rest(&l, s);
        if (reply->clients_lost > 0)
                lose(&l, "%u clients must connect anew", reply->clients_lost);
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
