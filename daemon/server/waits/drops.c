#include "daemon/server/waits/drops.h"

#include <errno.h>
#include <stdlib.h>

#include "daemon/core/catalog/drop.h"
#include "daemon/core/clients/leave.h"
#include "daemon/core/sessions/session.h"
#include "daemon/server/handlers/dispatch.h"
#include "daemon/server/peers/pending.h"
#include "daemon/server/objects/server.h"
#include "daemon/server/waits/durable.h"
#include "proto/kvlease.pb-c.h"

/* A request whose drop isn't over. */
struct dropping {
        struct drop drop;
        struct peer *peer; /* borrowed; NULL: nobody is to be answered */
        struct frame_header request;
};

/* An ADMIN_SESSION_PURGE that isn't over. */
struct purging {
        struct session_purge purge;
        struct peer *peer; /* borrowed; NULL: nobody is to be answered */
        struct frame_header request;
};

/* A SESSION_TRUNCATE that isn't over. */
struct truncating {
        struct session_truncation truncation;
        struct peer *peer; /* borrowed; NULL: nobody is to be answered */
        struct frame_header request;
};

/* All of it is gone: now disks have their say. */
static void answer(struct peer *p, const struct frame_header *header, uint64_t n_pages)
{
        Kvlease__V1__CountReply reply = KVLEASE__V1__COUNT_REPLY__INIT;
        struct request rq = {.server = p->server, .peer = p, .reply = &reply, .header = header};
        int r;

        reply.count = n_pages;
        r = durable_answer(&rq);
        if (!rq.is_deferred)
                dispatch_end(p, header, &reply.base, r, rq.detail.text);
}

static void on_done(struct drop *drop)
{
        struct dropping *d = container_of(drop, struct dropping, drop);
        struct peer *p = d->peer;

        if (p) {
                p->dropping = NULL;
                answer(p, &d->request, drop->n_pages);
                peer_schedule(p);
        }
        free(d);
}

/* What is behind it is not read while it isn't over, but for who hung up: all of that is. */
static bool may_wait(const struct peer *p)
{
        return !p->hung_up && !p->broken;
}

int drops_answer(struct request *rq, struct drop *drop)
{
        struct peer *p = rq->peer;
        struct dropping *d;

        ((Kvlease__V1__CountReply *)rq->reply)->count = drop->n_pages;
        if (drop_is_over(drop))
                return durable_answer(rq);
        d = sizeof(*d) > pending_left(p) ? NULL : malloc(sizeof(*d));
        if (!d) {
                drop_cancel(drop);
                return detail_set(&rq->detail, -ENOMEM, PENDING_FULL_TEXT);
        }
        *d = (struct dropping){.request = *rq->header};
        drop_move(drop, &d->drop);
        drop_queue(&d->drop, on_done);
        rq->is_deferred = true;
        if (may_wait(p)) {
                d->peer = p;
                p->dropping = d;
        }
        return 0;
}

/* ---- sessions -------------------------------------------------------------------------------- */

static void on_purged(struct session_purge *purge)
{
        struct purging *g = container_of(purge, struct purging, purge);
        Kvlease__V1__CountReply reply = KVLEASE__V1__COUNT_REPLY__INIT;
        struct peer *p = g->peer;

        if (p) {
                p->purging = NULL;
                reply.count = purge->n_sessions;
                dispatch_end(p, &g->request, &reply.base, 0, "");
                peer_schedule(p);
        }
        free(g);
}

int drops_purge(struct request *rq, struct session_purge *purge)
{
        struct peer *p = rq->peer;
        bool more = session_purge_begin(purge);
        struct purging *g = more ? malloc(sizeof(*g)) : NULL;

        ((Kvlease__V1__CountReply *)rq->reply)->count = purge->n_sessions;
        if (!g)
                return more ? -ENOMEM : 0;
        *g = (struct purging){.purge = *purge, .request = *rq->header};
        chore_init(&g->purge.chore);
        session_purge_queue(&g->purge, on_purged);
        rq->is_deferred = true;
        if (may_wait(p)) {
                g->peer = p;
                p->purging = g;
        }
        return 0;
}

static void on_truncated(struct session_truncation *t)
{
        struct truncating *g = container_of(t, struct truncating, truncation);
        Kvlease__V1__CountReply reply = KVLEASE__V1__COUNT_REPLY__INIT;
        struct peer *p = g->peer;

        if (p) {
                p->truncating = NULL;
                reply.count = t->n_left;
                dispatch_end(p, &g->request, &reply.base, t->result, t->why.text);
                peer_schedule(p);
        }
        free(g);
}

int drops_truncate(struct request *rq, struct session_truncation *t)
{
        struct peer *p = rq->peer;
        struct truncating *g;

        ((Kvlease__V1__CountReply *)rq->reply)->count = t->n_left;
        if (truncation_is_over(t)) {
                rq->detail = t->why;
                return t->result;
        }
        g = sizeof(*g) > pending_left(p) ? NULL : malloc(sizeof(*g));
        if (!g) {
                truncation_cancel(t);
                return detail_set(&rq->detail, -ENOMEM, PENDING_FULL_TEXT);
        }
        *g = (struct truncating){.request = *rq->header};
        truncation_queue(t, &g->truncation, on_truncated);
        rq->is_deferred = true;
        if (may_wait(p)) {
                g->peer = p;
                p->truncating = g;
        }
        return 0;
}

/* ---- all of them ----------------------------------------------------------------------------- */

size_t drops_bytes(const struct peer *p)
{
        return (p->dropping ? sizeof(*p->dropping) : 0) +
               (p->truncating ? sizeof(*p->truncating) : 0);
}

static void on_closed(void *data)
{
        Kvlease__V1__SimpleReply reply = KVLEASE__V1__SIMPLE_REPLY__INIT;
        struct peer *p = data;

        p->closing = NULL;
        dispatch_end(p, &p->close_request, &reply.base, 0, "");
        peer_schedule(p);
}

int drops_close(struct request *rq, struct attach *a)
{
        struct peer *p = rq->peer;

        if (!may_wait(p)) {
                (void)attach_close_soon(a, NULL, NULL);
        } else if (!attach_close_soon(a, on_closed, p)) {
                p->closing = a;
                p->close_request = *rq->header;
                rq->is_deferred = true;
        }
        return 0;
}

void drops_leave(struct peer *p)
{
        if (p->closing)
                attach_close_quietly(p->closing);
        p->closing = NULL;
        if (p->dropping)
                p->dropping->peer = NULL;
        p->dropping = NULL;
        if (p->truncating)
                p->truncating->peer = NULL;
        p->truncating = NULL;
        if (p->purging)
                p->purging->peer = NULL;
        p->purging = NULL;
}
