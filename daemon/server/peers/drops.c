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

/* A request whose work isn't over. */
struct removal {
        union {
                struct drop drop;
                struct session_purge purge;           /* of an ADMIN_SESSION_PURGE */
                struct session_truncation truncation; /* of a SESSION_TRUNCATE, a SESSION_KEEP */
        };
        struct pending pending; /* without a peer if none is to be answered */
};

static const struct pending_ops pending_ops = {PENDING_DROP, pending_remove, NULL, NULL};

/* Answers with a count, and frees the removal. */
static void end_removal(struct removal *g, uint64_t count, int code, const char *detail)
{
        Kvlease__V1__CountReply reply = KVLEASE__V1__COUNT_REPLY__INIT;

        reply.count = count;
        pending_answer(&g->pending, &reply.base, code, detail);
        free(g);
}

/* Makes one of so many bytes. NULL: no memory. */
static struct removal *new_removal(const struct request *rq, size_t bytes)
{
        return bytes > pending_left(rq->peer) ? NULL : calloc(1, sizeof(struct removal));
}

/* All of it is removed: answers once disks are written. */
static void on_done(struct drop *drop)
{
        struct removal *g = container_of(drop, struct removal, drop);
        Kvlease__V1__CountReply reply = KVLEASE__V1__COUNT_REPLY__INIT;
        struct peer *p = g->pending.peer;
        struct request rq = {.peer = p, .reply = &reply, .header = &g->pending.request};
        int r;

        if (p) {
                pending_remove(&g->pending);
                rq.server = p->server;
                reply.count = drop->n_pages;
                r = durable_answer(&rq);
                if (!rq.is_deferred)
                        answer_end(p, rq.header, &reply.base, r, rq.detail.text);
                peer_schedule(p);
        }
        free(g);
}

int drops_answer(struct request *rq, struct drop *drop)
{
        struct removal *g;

        ((Kvlease__V1__CountReply *)rq->reply)->count = drop->n_pages;
        if (drop_is_over(drop))
                return durable_answer(rq);
        g = new_removal(rq, sizeof(*g));
        if (!g) {
                drop_cancel(drop);
                return detail_set(&rq->detail, -ENOMEM, PENDING_FULL_TEXT);
        }
        drop_move(drop, &g->drop);
        drop_queue(&g->drop, on_done);
        pending_defer(&g->pending, rq, &pending_ops, sizeof(*g));
        return 0;
}

/* ---- sessions -------------------------------------------------------------------------------- */

static void on_purged(struct session_purge *purge)
{
        end_removal(container_of(purge, struct removal, purge), purge->n_sessions, 0, "");
}

int drops_purge(struct request *rq, struct session_purge *purge)
{
        bool more = session_purge_begin(purge);
        /* An administrator's, which aren't counted. */
        struct removal *g = more ? new_removal(rq, 0) : NULL;

        ((Kvlease__V1__CountReply *)rq->reply)->count = purge->n_sessions;
        if (!g)
                return more ? -ENOMEM : 0;
        g->purge = *purge;
        task_init(&g->purge.task);
        session_purge_queue(&g->purge, on_purged);
        pending_defer(&g->pending, rq, &pending_ops, 0);
        return 0;
}

static void on_truncated(struct session_truncation *t)
{
        end_removal(container_of(t, struct removal, truncation), t->n_left, t->result, t->why.text);
}

int drops_truncate(struct request *rq, struct session_truncation *t)
{
        size_t bytes = sizeof(struct removal) + t->n_ranges * sizeof(*t->ranges);
        struct removal *g;

        ((Kvlease__V1__CountReply *)rq->reply)->count = t->n_left;
        if (truncation_is_over(t)) {
                rq->detail = t->why;
                return t->result;
        }
        g = new_removal(rq, bytes);
        if (!g) {
                truncation_cancel(t);
                if (t->result == 0) /* the rest was done, too */
                        return 0;
                return detail_set(&rq->detail, -ENOMEM, PENDING_FULL_TEXT);
        }
        truncation_queue(t, &g->truncation, on_truncated);
        pending_defer(&g->pending, rq, &pending_ops, bytes);
        return 0;
}

/* ---- namespaces that are closed -------------------------------------------------------------- */

static void on_closed(void *data)
{
        Kvlease__V1__SimpleReply reply = KVLEASE__V1__SIMPLE_REPLY__INIT;
        struct peer *p = data;

        p->closing.attach = NULL;
        pending_answer(&p->closing.pending, &reply.base, 0, "");
}

/* Continues the close without its peer. */
static void drop_closing(struct pending *w)
{
        struct closing *c = container_of(w, struct closing, pending);

        pending_remove(w);
        attach_close_quietly(TAKE(c->attach));
}

static const struct pending_ops closing_ops = {PENDING_DROP, drop_closing, NULL, NULL};

int drops_close(struct request *rq)
{
        struct peer *p = rq->peer;

        if (p->input.hung_up || p->broken) {
                (void)attach_close_soon(rq->attach, NULL, NULL);
        } else if (!attach_close_soon(rq->attach, on_closed, p)) {
                p->closing.attach = rq->attach;
                pending_defer(&p->closing.pending, rq, &closing_ops, 0);
        }
        return 0;
}
