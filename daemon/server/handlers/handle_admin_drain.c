/* ADMIN_DRAIN. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "daemon/core/memory/idle-sets.h"
#include "daemon/core/clients/grants.h"
#include "daemon/exchange/exchange.h"
#include "daemon/exchange/export-all.h"
#include "daemon/core/state/ns.h"
#include "daemon/core/state/store.h"
#include "daemon/core/state/tenant.h"
#include "daemon/remote/io/remote-io.h"
#include "daemon/server/handlers/handlers.h"
#include "daemon/server/peers/server.h"
#include "daemon/server/peers/events.h"
#include "daemon/server/peers/peer.h"
#include "daemon/server/services/remotes.h"
#include "daemon/server/services/stop.h"
#include "daemon/server/base/log.h"
#include "daemon/server/peers/parked.h"
#include "proto/arena.h"
#include "proto/kvlease.pb-c.h"

#define UID_TEXT_MAX 16

/* The asker's uid in digits. Returns buf. */
static char *peer_uid(const struct request *rq, char buf[UID_TEXT_MAX])
{
        snprintf(buf, UID_TEXT_MAX, "%u", (unsigned)rq->peer->identity.uid);
        return buf;
}

/* ---- obstacles of exports -------------------------------------------------------------------- */

static void say_failing(
        const struct server *s, const struct tenancy *t, enum exchange_drop why, struct detail *d)
{
        const char *remote = t->config.remote.name;
        struct remote_store *store = remotes_find(s, remote);
        struct remote_summary summary = {.state = REMOTE_UNREACHED};

        if (store)
                remote_summary(store, &summary);
        if (why == EXCHANGE_REFUSED)
                (void)detail_set(d, 0,
                        "remote %s refuses what tenant %s writes: is its memory full, or may its user not write?",
                        remote, t->config.name);
        else if (summary.state == REMOTE_UNREACHED)
                (void)detail_set(d, 0, "no server of remote %s answers%s%s", remote,
                        *remote_summary_why(&summary) ? ": " : "", remote_summary_why(&summary));
        else
                (void)detail_set(d, 0,
                        "remote %s doesn't take what tenant %s writes (%s): kvleasectl doctor says how its servers are",
                        remote, t->config.name, exchange_drop_name(why));
}

/* False: nothing. */
static bool find_obstacle(const struct server *s, struct detail *d)
{
        list_for_each (t, &s->tenancies.list, struct tenancy, link) {
                enum exchange_drop why;
                const struct ns *ns;

                switch (export_all_obstacle(t->tenant, &why, &ns)) {
                case OBSTACLE_NONE:
                        continue;
                case OBSTACLE_FAILS:
                        say_failing(s, t, why, d);
                        return true;
                case OBSTACLE_EPOCH:
                        (void)detail_set(d, 0,
                                "remote %s hasn't said which epoch namespace %s of tenant %s has: do its servers answer?",
                                t->config.remote.name, ns->name, t->config.name);
                        return true;
                }
        }
        return false;
}

static int tell_exports(struct request *rq)
{
        const struct server *s = rq->server;
        Kvlease__V1__AdminDrainReply *reply = rq->reply;
        struct detail *d = arena_alloc(&rq->server->scratch.arena, sizeof(*d));
        struct export_all_figures f;

        if (!d)
                return detail_set(&rq->detail, -ENOMEM, "no memory for the answer");
        export_all_figures(&s->store, &f);
        reply->export_begun = f.is_on;
        reply->exporting = f.is_running;
        reply->written_pages = f.written_pages;
        reply->written_bytes = f.written_bytes;
        reply->there_pages = f.there_pages;
        reply->there_bytes = f.there_bytes;
        reply->left_pages = f.left_pages;
        reply->left_bytes = f.left_bytes;
        reply->old_pages = f.old_pages;
        reply->apart_pages = f.apart_pages;
        if (f.is_running && find_obstacle(s, d))
                reply->obstacle = d->text;
        return 0;
}

/* ---- draining -------------------------------------------------------------------------------- */

/* Takes back pages granted to magazines: no client finds a page there while draining. */
static void empty_magazines(struct store *store)
{
        list_for_each (t, &store->tenants, struct tenant, link)
                list_for_each (ns, &t->namespaces, struct ns, link)
                        magazine_drain_ns(ns);
        idle_sets_drain(store);
}

static void refuse_parked(struct peer *p)
{
        parked_refuse(p->server);
}

static void set_draining(struct request *rq, bool off, const char *uid)
{
        struct server *s = rq->server;

        s->store.draining = !off;
        if (s->store.draining) {
                rq->after = refuse_parked;
                empty_magazines(&s->store);
        }
        log_message(off ? LOG_DRAIN_END : LOG_DRAIN, LOG_FIELDS({"PEER_UID", uid}),
                off ? "draining was called off by uid %s"
                    : "draining, asked for by uid %s: nothing new is granted",
                uid);
        if (off)
                events_to_all(
                        s, KVLEASE__V1__NOTICE_EVENT__KIND__DRAIN_END, "draining was called off");
        else
                events_to_all(
                        s, KVLEASE__V1__NOTICE_EVENT__KIND__DRAIN, "the daemon grants nothing new");
        server_note(s,
                &(struct event_note){.kind = EVENT_DAEMON, .reason = off ? "drain off" : "drain"});
        status_notify(s);
}

/* 0; else nothing was changed. */
static int begin_exports(struct request *rq, const char *uid)
{
        struct export_all_figures before;

        export_all_figures(&rq->server->store, &before);
        if (export_all_begin(&rq->server->store) == 0)
                return detail_set(&rq->detail, -EOPNOTSUPP,
                        "nothing can be exported, as no tenant has a remote that is open and that "
                        "it may write to (options remote and remote_write): nothing was changed; drain without --export, or see kvleasectl exchanges");
        if (!before.is_on)
                log_message(LOG_DRAIN, LOG_FIELDS({"PEER_UID", uid}),
                        "what is cached is exported to other hosts, asked for by uid %s", uid);
        return 0;
}

int handle_ADMIN_DRAIN(struct request *rq)
{
        const Kvlease__V1__AdminDrainRequest *m = rq->message;
        char uid[UID_TEXT_MAX];
        int r = 0;

        if (m->look)
                return tell_exports(rq);
        if (m->off && m->export_cached)
                return detail_set(&rq->detail, -EINVAL, "draining is called off, or exports");
        peer_uid(rq, uid);
        if (m->export_cached)
                r = begin_exports(rq, uid);
        if (r < 0)
                return r;
        if (m->off)
                export_all_end(&rq->server->store);
        if (rq->server->store.draining == m->off)
                set_draining(rq, m->off, uid);
        return tell_exports(rq);
}
