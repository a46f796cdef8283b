#include "daemon/server/peers/pending.h"

#include <errno.h>

#include "base/macros.h"
#include "daemon/core/clients/attach.h"
#include "daemon/server/peers/answer.h"
#include "daemon/server/peers/server.h"
#include "daemon/server/peers/peer.h"

static size_t pending_of(const struct peer *p)
{
        size_t bytes = p->out.bytes;

        for (unsigned i = 0; i < N_PENDING; i++)
                bytes += p->waits[i].bytes;
        return bytes;
}

void pending_recount(struct peer *p)
{
        size_t bytes = p->tenancy ? pending_of(p) : 0;

        p->server->peers.pending_bytes += bytes - p->counts.pending_bytes;
        if (p->tenancy)
                p->tenancy->pending_bytes += bytes - p->counts.pending_bytes;
        p->counts.pending_bytes = bytes;
}

size_t pending_left(const struct peer *p)
{
        const struct server *s = p->server;
        size_t most = s->config.daemon.max_pending_bytes / 4 * 3;
        size_t left = most - MIN(most, s->peers.pending_bytes);

        if (!p->tenancy)
                return SIZE_MAX;
        return p->tenancy->pending_bytes > left ? 0 : left;
}

size_t pending_hold_bytes(const struct peer *p)
{
        return MIN((size_t)OUTQUEUE_HOLD_BYTES, pending_left(p));
}

/* Does p come before q? Both have output. */
static bool is_larger(const struct peer *p, const struct peer *q)
{
        if (p->tenancy != q->tenancy)
                return p->tenancy->pending_bytes > q->tenancy->pending_bytes;
        return p->out.bytes > q->out.bytes;
}

/* Finds the peer with most unsent output, of the tenant that uses most; only peers with unsent
 * output can be given up. NULL: there is none. */
static struct peer *find_largest(struct server *s)
{
        struct peer *largest = NULL;

        list_for_each (p, &s->peers.list, struct peer, links.all)
                if (p->tenancy && p->out.bytes > 0 && (!largest || is_larger(p, largest)))
                        largest = p;
        return largest;
}

void pending_check(struct peer *p)
{
        struct server *s = p->server;
        struct peer *largest;

        pending_recount(p);
        while (s->peers.pending_bytes > s->config.daemon.max_pending_bytes &&
                (largest = find_largest(s))) {
                s->peers.n_overflows++;
                peer_violation(largest, "max-pending");
                pending_recount(largest);
        }
}

/* ---- waiting operations ---------------------------------------------------------------------- */

void pending_init(struct peer *p)
{
        for (unsigned i = 0; i < N_PENDING; i++)
                list_init(&p->waits[i].list);
}

void pending_add(struct pending *w, struct peer *p, const struct pending_ops *ops, size_t bytes,
        const struct frame_header *request, bool first)
{
        struct pending_list *l = &p->waits[ops->kind];

        w->peer = p;
        w->ops = ops;
        w->bytes = bytes;
        if (request)
                w->request = *request;
        if (first)
                list_prepend(&l->list, &w->link);
        else
                list_append(&l->list, &w->link);
        l->n++;
        l->bytes += bytes;
}

void pending_defer(
        struct pending *w, struct request *rq, const struct pending_ops *ops, size_t bytes)
{
        rq->is_deferred = true;
        if (!rq->peer->input.hung_up && !rq->peer->broken)
                pending_add(w, rq->peer, ops, bytes, rq->header, false);
}

void pending_answer(struct pending *w, ProtobufCMessage *reply, int code, const char *detail)
{
        struct peer *p = w->peer;

        if (!p)
                return;
        pending_remove(w);
        answer_end(p, &w->request, reply, code, detail);
        if (w->ops->kind >= PENDING_DROP) /* later requests have waited for it */
                peer_schedule(p);
}

void pending_remove(struct pending *w)
{
        struct pending_list *l;

        if (!w->peer)
                return;
        l = &w->peer->waits[w->ops->kind];
        list_remove(&w->link);
        l->n--;
        l->bytes -= w->bytes;
        w->peer = NULL;
}

void pending_drop(struct peer *p, enum pending_kind kind)
{
        struct pending *w;

        while ((w = list_first(&p->waits[kind].list, struct pending, link)))
                w->ops->drop(w);
}

void pending_drop_all(struct peer *p)
{
        for (unsigned i = 0; i < N_PENDING; i++)
                pending_drop(p, (enum pending_kind)i);
}

static struct pending *find_in(struct pending_list *l, uint32_t ns_id)
{
        list_for_each (w, &l->list, struct pending, link)
                if (w->attach && (ns_id == 0 || w->attach->id == ns_id))
                        return w;
        return NULL;
}

static void cancel(struct pending *w)
{
        const struct frame_header request = w->request;
        struct peer *p = w->peer;

        if (w->ops->cancel) {
                w->ops->cancel(w);
                return;
        }
        w->ops->drop(w);
        answer_refuse(p, &request, -ENOENT, PENDING_CLOSED_TEXT);
}

void pending_cancel(struct peer *p, uint32_t ns_id)
{
        struct pending *w;

        for (unsigned i = 0; i < N_PENDING; i++)
                while ((w = find_in(&p->waits[i], ns_id)))
                        cancel(w);
}

bool pending_go_on(struct peer *p, enum pending_kind kind, unsigned max)
{
        struct pending *w = list_first(&p->waits[kind].list, struct pending, link);

        return w && w->ops->go_on && w->ops->go_on(p, max);
}
