#include "daemon/server/peers/drops.h"

#include <errno.h>
#include <stdlib.h>

#include "daemon/core/cache/drop.h"
#include "daemon/core/life/leave.h"
#include "daemon/core/sessions/session-purge.h"
#include "daemon/core/sessions/session-truncate.h"
#include "daemon/server/peers/server.h"
#include "daemon/server/peers/answer.h"
#include "daemon/server/peers/peer.h"
#include "daemon/server/peers/pending.h"
#include "daemon/server/peers/durable.h"
#include "proto/kvlease.pb-c.h"

/* A request whose drop isn't over. */
struct dropping {
        struct drop drop;
        struct pending pending; /* without a peer if none is to be answered */
};

/* An ADMIN_SESSION_PURGE that isn't over. */
struct purging {
        struct session_purge purge;
        struct pending pending; /* without a peer if none is to be answered */
};

/* A SESSION_TRUNCATE or a SESSION_KEEP that isn't over. */
struct truncating {
        struct session_truncation truncation;
        struct pending pending; /* without a peer if none is to be answered */
};

static const struct pending_ops pending_ops = {PENDING_DROP, pending_remove, NULL};

/* All of it is removed: answers once disks are written. */
static void answer_drop(struct peer *p, const struct frame_header *header, uint64_t n_pages)
{
        Kvlease__V1__CountReply reply = KVLEASE__V1__COUNT_REPLY__INIT;
        struct request rq = {.server = p->server, .peer = p, .reply = &reply, .header = header};
        int r;

        reply.count = n_pages;
        r = durable_answer(&rq);
        if (!rq.is_deferred)
                answer_end(p, header, &reply.base, r, rq.detail.text);
}

static void on_done(struct drop *drop)
{
        struct dropping *d = container_of(drop, struct dropping, drop);
        struct peer *p = d->pending.peer;

        if (p) {
                pending_remove(&d->pending);
                answer_drop(p, &d->pending.request, drop->n_pages);
                peer_schedule(p);
        }
        free(d);
}

/* May later requests of the peer wait? Not if it hung up: then all of them are handled. */
static bool may_wait(const struct peer *p)
{
        return !p->input.hung_up && !p->broken;
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
        *d = (struct dropping){0};
        drop_move(drop, &d->drop);
        drop_queue(&d->drop, on_done);
        rq->is_deferred = true;
        if (may_wait(p))
                pending_add(&d->pending, p, &pending_ops, sizeof(*d), rq->header, false);
        return 0;
}

/* ---- sessions -------------------------------------------------------------------------------- */

static void on_purged(struct session_purge *purge)
{
        struct purging *g = container_of(purge, struct purging, purge);
        Kvlease__V1__CountReply reply = KVLEASE__V1__COUNT_REPLY__INIT;
        struct peer *p = g->pending.peer;

        if (p) {
                pending_remove(&g->pending);
                reply.count = purge->n_sessions;
                answer_end(p, &g->pending.request, &reply.base, 0, "");
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
        *g = (struct purging){.purge = *purge};
        task_init(&g->purge.task);
        session_purge_queue(&g->purge, on_purged);
        rq->is_deferred = true;
        if (may_wait(p)) /* an administrator's, which aren't counted */
                pending_add(&g->pending, p, &pending_ops, 0, rq->header, false);
        return 0;
}

static void on_truncated(struct session_truncation *t)
{
        struct truncating *g = container_of(t, struct truncating, truncation);
        Kvlease__V1__CountReply reply = KVLEASE__V1__COUNT_REPLY__INIT;
        struct peer *p = g->pending.peer;

        if (p) {
                pending_remove(&g->pending);
                reply.count = t->n_left;
                answer_end(p, &g->pending.request, &reply.base, t->result, t->why.text);
                peer_schedule(p);
        }
        free(g);
}

int drops_truncate(struct request *rq, struct session_truncation *t)
{
        size_t bytes = sizeof(struct truncating) + t->n_ranges * sizeof(*t->ranges);
        struct peer *p = rq->peer;
        struct truncating *g;

        ((Kvlease__V1__CountReply *)rq->reply)->count = t->n_left;
        if (truncation_is_over(t)) {
                rq->detail = t->why;
                return t->result;
        }
        g = bytes > pending_left(p) ? NULL : malloc(sizeof(*g));
        if (!g) {
                truncation_cancel(t);
                if (t->result == 0) /* the rest was done, too */
                        return 0;
                return detail_set(&rq->detail, -ENOMEM, PENDING_FULL_TEXT);
        }
        *g = (struct truncating){0};
        truncation_queue(t, &g->truncation, on_truncated);
        rq->is_deferred = true;
        if (may_wait(p))
                pending_add(&g->pending, p, &pending_ops, bytes, rq->header, false);
        return 0;
}

/* ---- namespaces that are closed -------------------------------------------------------------- */

static void on_closed(void *data)
{
        Kvlease__V1__SimpleReply reply = KVLEASE__V1__SIMPLE_REPLY__INIT;
        struct peer *p = data;

        p->closing.attach = NULL;
        pending_remove(&p->closing.pending);
        answer_end(p, &p->closing.pending.request, &reply.base, 0, "");
        peer_schedule(p);
}

/* Continues the close without its peer. */
static void drop_closing(struct pending *w)
{
        struct closing *c = container_of(w, struct closing, pending);

        pending_remove(w);
        attach_close_quietly(TAKE(c->attach));
}

static const struct pending_ops closing_ops = {PENDING_DROP, drop_closing, NULL};

int drops_close(struct request *rq, struct attach *a)
{
        struct peer *p = rq->peer;

        if (!may_wait(p)) {
                (void)attach_close_soon(a, NULL, NULL);
        } else if (!attach_close_soon(a, on_closed, p)) {
                p->closing.attach = a;
                pending_add(&p->closing.pending, p, &closing_ops, 0, rq->header, false);
                rq->is_deferred = true;
        }
        return 0;
}
