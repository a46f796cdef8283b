#include "daemon/server/peers/fetches.h"

#include <errno.h>
#include <stdlib.h>

#include "base/macros.h"
#include "daemon/core/clients/grants.h"
#include "daemon/core/clients/pin.h"
#include "daemon/server/peers/server.h"
#include "daemon/server/peers/serving.h"
#include "daemon/server/peers/answer.h"
#include "daemon/server/peers/events.h"
#include "daemon/server/peers/peer.h"
#include "daemon/server/peers/pending.h"
#include "proto/kvlease.pb-c.h"
#include "proto/status.h"

/* A message whose pages aren't all done. */
struct batch {
        struct peer *peer;     /* borrowed */
        struct attach *attach; /* likewise */
        struct frame_header request;
        bool copies;
        bool is_over; /* no peer is to be answered */
        uint32_t n, n_left;
        uint32_t *pages, *statuses; /* at the end of this */
};

/* One page that is under way. */
struct peer_fetch {
        struct pending pending;
        struct fetch *fetch; /* borrowed */
        struct batch *batch; /* shared; NULL: of the ring */
        uint32_t index;      /* in it */
        uint64_t user_data;  /* of the ring */
};

/* ---- results --------------------------------------------------------------------------------- */

/* Pins the page for the client, as a lookup does. */
static int pin_page(struct attach *a, uint32_t page)
{
        int r = pin_check_page(a, page, 1, NULL);

        if (r == 0)
                r = pin_reserve(a, 1, NULL);
        if (r == 0)
                pin_add(a, page);
        return r;
}

static void note_result(struct batch *b, uint32_t i, int status, uint32_t page)
{
        if (status == 0 && !b->copies)
                status = pin_page(b->attach, page);
        b->statuses[i] = status_to_wire(status);
        b->pages[i] = status == 0 ? page : PAGE_NONE;
}

/* Counts a finished page, or the end of beginning them. */
static void count_down(struct batch *b)
{
        Kvlease__V1__FetchReply reply = KVLEASE__V1__FETCH_REPLY__INIT;

        if (--b->n_left > 0)
                return;
        reply.n_pages = reply.n_statuses = b->n;
        reply.pages = b->pages;
        reply.statuses = b->statuses;
        if (!b->is_over)
                answer_reply(b->peer, &b->request, &reply.base);
        free(b);
}

static void complete_submission(struct peer *p, uint64_t user_data, int status, uint32_t page)
{
        ring_complete(&p->ring, user_data, status_to_wire(status), page);
        if (ring_is_open(&p->ring) && ring_wakes_client(&p->ring))
                events_ring(p);
}

static void end_fetch(struct peer_fetch *f, int status, uint32_t page)
{
        struct peer *p = f->pending.peer;
        struct server *s = p->server;
        const struct state_serving was = serving_begin(p);

        pending_remove(&f->pending);
        if (f->batch) {
                note_result(f->batch, f->index, status, page);
                count_down(f->batch);
        } else {
                complete_submission(p, f->user_data, status, page);
        }
        free(f);
        serving_end(s, was);
}

static void on_done(struct fetch *fetch, int status, uint32_t page, void *data)
{
        end_fetch(data, status, page);
}

static void drop_fetch(struct pending *w);
static void cancel_fetch(struct pending *w);

static const struct pending_ops pending_ops = {PENDING_FETCH, drop_fetch, NULL, cancel_fetch};

/* ---- beginning ---------------------------------------------------------------------------------
 */

static int check_fetch(struct attach *a, const struct fetch_request *rq)
{
        struct detail d;

        if (!pin_has(a, rq->page))
                return -EINVAL;
        if (rq->goes_down && a->member->read_only)
                return -EACCES; /* others would have to fetch it back */
        if (rq->to != PAGE_NONE && (a->member->read_only || grants_check_page(a, rq->to, &d) < 0))
                return -EINVAL;
        return 0;
}

/* Begins to fetch a page; returns as fetch_begin(). batch NULL: the fetch came through the ring,
 * with user_data. */
static int begin_fetch(struct attach *a, const struct fetch_request *rq, struct batch *batch,
        uint32_t index, uint64_t user_data, uint32_t *ret_page)
{
        struct peer *p = peer_of_member(a->member);
        struct peer_fetch *f;
        struct detail d;
        int r = check_fetch(a, rq);

        if (r < 0)
                return r;
        f = sizeof(*f) > pending_left(p) ? NULL : malloc(sizeof(*f));
        if (!f)
                return -ENOMEM;
        *f = (struct peer_fetch){
                .pending.attach = a, .batch = batch, .index = index, .user_data = user_data};
        r = fetch_begin(a, rq, on_done, f, &f->fetch, ret_page, &d);
        if (r != 0) {
                free(f);
                return r == -EAGAIN ? -EBUSY : r;
        }
        pending_add(&f->pending, p, &pending_ops, sizeof(*f) + 2 * sizeof(uint32_t), NULL, false);
        return 0;
}

bool fetches_submit(struct attach *a, const struct fetch_request *rq, uint64_t user_data,
        struct submit_result *ret)
{
        uint32_t page = rq->page;
        int r = begin_fetch(a, rq, NULL, 0, user_data, &page);

        ret->completes = r != 0;
        ret->status = status_to_wire(r == FETCH_THERE ? 0 : r);
        ret->page = page;
        return r == 0;
}

/* ---- over the socket ---------------------------------------------------------------------------
 */

static struct batch *batch_new(struct request *rq, const Kvlease__V1__FetchRequest *m)
{
        uint32_t n = (uint32_t)m->n_pages;
        size_t bytes = sizeof(struct batch) + 2 * n * sizeof(uint32_t);
        struct batch *b = bytes > pending_left(rq->peer) ? NULL : malloc(bytes);

        if (!b)
                return NULL;
        *b = (struct batch){
                .peer = rq->peer,
                .attach = rq->attach,
                .request = *rq->header,
                .copies = m->n_targets > 0,
                .n = n,
                .n_left = n + 1,
                .pages = (uint32_t *)(void *)(b + 1),
        };
        b->statuses = b->pages + n;
        return b;
}

static void begin_page(struct batch *b, const Kvlease__V1__FetchRequest *m, uint32_t i)
{
        const struct page *p = ns_page(b->attach->ns, m->pages[i]);
        const struct fetch_request rq = {
                .page = m->pages[i],
                .generation = p ? (uint32_t)p->generation : 0,
                .to = b->copies ? m->targets[i] : PAGE_NONE,
                .planes = {m->first_plane, m->n_planes},
                .goes_down = m->down,
        };
        uint32_t page = PAGE_NONE;
        int r = -EINVAL;

        /* A page to be copied isn't moved: it needs a target. */
        if (!b->copies || rq.to != PAGE_NONE)
                r = begin_fetch(b->attach, &rq, b, i, 0, &page);
        if (r == 0)
                return;
        note_result(b, i, r == FETCH_THERE ? 0 : r, page);
        count_down(b);
}

int fetches_ask(struct request *rq)
{
        const Kvlease__V1__FetchRequest *m = rq->message;
        struct batch *b = batch_new(rq, m);

        if (!b)
                return detail_set(&rq->detail, -ENOMEM, "%s", PENDING_FULL_TEXT);
        rq->is_deferred = true;
        for (uint32_t i = 0; i < b->n; i++)
                begin_page(b, m, i);
        count_down(b);
        return 0;
}

/* ---- the end -----------------------------------------------------------------------------------
 */

/* Its message is answered, if at all, once. */
static void call_off_fetch(struct peer_fetch *f, bool answers)
{
        struct batch *b = f->batch;

        fetch_cancel(f->fetch);
        if (b && !b->is_over) {
                b->is_over = true;
                if (answers)
                        answer_refuse(b->peer, &b->request, -ENOENT, PENDING_CLOSED_TEXT);
        }
        end_fetch(f, -ECANCELED, PAGE_NONE);
}

static void cancel_fetch(struct pending *w)
{
        call_off_fetch(container_of(w, struct peer_fetch, pending), true);
}

static void drop_fetch(struct pending *w)
{
        call_off_fetch(container_of(w, struct peer_fetch, pending), false);
}
