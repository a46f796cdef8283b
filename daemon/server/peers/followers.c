#include "daemon/server/peers/followers.h"

#include <errno.h>
#include <stdlib.h>
#include <time.h>

#include "base/clock.h"
#include "base/macros.h"
#include "daemon/server/base/log.h"
#include "daemon/server/peers/peer.h"
#include "daemon/server/peers/pending.h"
#include "daemon/server/peers/server.h"
#include "daemon/server/peers/tier-name.h"

static uint64_t time_until(uint64_t then, uint64_t now)
{
        return minus_u64(then, now);
}

static void on_timer(uv_timer_t *timer);

/* Sets the timer to the next deadline. */
static void expect_next(struct server *s)
{
        const struct event_log *c = &s->store.event_log;
        uint64_t now = clock_now_nsec(), left = UINT64_MAX;

        if (list_is_empty(&s->followers.list) || uv_is_closing((uv_handle_t *)&s->followers.timer))
                return;
        list_for_each (f, &s->followers.list, struct follower, link)
                left = MIN(left, time_until(f->until_nsec, now));
        if (event_log_due(c) != UINT64_MAX)
                left = MIN(left, time_until(event_log_due(c), server_now(s)));
        if (c->last > s->followers.seen)
                left = 0;
        /* Rounded up: else an unfinished interval would be looked at repeatedly. */
        uv_timer_start(
                &s->followers.timer, on_timer, (left + NSEC_PER_MSEC - 1) / NSEC_PER_MSEC, 0);
}

static void forget_follower(struct follower *f)
{
        pending_remove(&f->pending);
        list_remove(&f->link);
        free(f);
}

static void drop_follower(struct pending *w)
{
        forget_follower(container_of(w, struct follower, pending));
}

static const struct pending_ops pending_ops = {PENDING_EVENTS, drop_follower, NULL, NULL};

static void answer_follower(struct server *s, struct follower *f)
{
        Kvlease__V1__AdminEventsReply reply = KVLEASE__V1__ADMIN_EVENTS_REPLY__INIT;
        struct frame_header request = f->pending.request;
        struct peer *p = f->pending.peer;
        int r;

        arena_reset(&s->scratch.arena);
        r = events_fill(s, &f->query, &reply);
        forget_follower(f);
        answer_end(p, &request, &reply.base, r, r < 0 ? "no memory for the answer" : "");
}

/* Answers requests with an event, or whose time is up. */
static void answer_due(struct server *s, bool all)
{
        const struct event_log *c = &s->store.event_log;
        uint64_t now = clock_now_nsec();

        s->followers.seen = c->last;
        list_for_each_safe (f, &s->followers.list, struct follower, link)
                if (all || now >= f->until_nsec || c->last < f->query.after ||
                        event_log_next(c, &f->query.filter, f->query.after))
                        answer_follower(s, f);
}

static void on_timer(uv_timer_t *timer)
{
        struct server *s = container_of(timer, struct server, followers.timer);

        event_log_flush(&s->store.event_log, server_now(s), false);
        answer_due(s, false);
        expect_next(s);
}

static void on_note(void *data)
{
        expect_next(data);
}

void followers_init(struct server *s)
{
        struct event_log *c = &s->store.event_log;

        list_init(&s->followers.list);
        if (event_log_open(c) < 0)
                log_warning("no memory for events: kvleasectl events will show none");
        c->on_note = on_note;
        c->data = s;
}

int follower_add(struct request *rq, const struct event_query *q, uint64_t wait_nsec)
{
        struct follower *f;

        if (rq->peer->waits[PENDING_EVENTS].n > 0)
                return detail_set(&rq->detail, -EBUSY,
                        "this connection waits for events already: one request can at a time");
        f = malloc(sizeof(*f));
        if (!f)
                return detail_set(&rq->detail, -ENOMEM, "no memory to wait for events");
        f->pending = (struct pending){0};
        /* Also if the peer has hung up: its end drops this. A follower always has a peer. */
        pending_add(&f->pending, rq->peer, &pending_ops, 0, rq->header, false);
        rq->is_deferred = true;
        f->until_nsec = clock_now_nsec() + wait_nsec;
        f->query = *q;
        f->query.filter.tenant = f->query.tenant;
        f->query.filter.ns = f->query.ns;
        list_init(&f->link);
        list_append(&rq->server->followers.list, &f->link);
        expect_next(rq->server);
        return 0;
}

void followers_end(struct server *s)
{
        event_log_flush(&s->store.event_log, server_now(s), true);
        answer_due(s, true);
}

/* ---- events as messages ---------------------------------------------------------------------- */

/* Bytes of the events of one answer, which must fit a frame. */
#define EVENTS_BYTES   (FRAME_MAX_PAYLOAD - 1024)
#define EVENTS_MOST    256 /* not tuned */
#define ROW_HEAD_BYTES 4   /* tag and length of one; protobuf */

/* One moment by both clocks, taken once for all events of an answer. Separate readings would differ
 * by the process's waits for a processor, and could change the order. */
struct moment {
        uint64_t daemon_nsec, real_nsec; /* by the daemon's clock; since 1970 */
};

static struct moment moment_now(const struct server *s)
{
        struct moment m = {.daemon_nsec = server_now(s)};
        struct timespec t;

        clock_gettime(CLOCK_REALTIME, &t);
        m.real_nsec = (uint64_t)t.tv_sec * NSEC_PER_SEC + (uint64_t)t.tv_nsec;
        return m;
}

/* A time of the daemon's clock as ms since 1970. */
static uint64_t time_msec(const struct moment *now, uint64_t nsec)
{
        uint64_t age = now->daemon_nsec - MIN(now->daemon_nsec, nsec);

        return (now->real_nsec - MIN(now->real_nsec, age)) / NSEC_PER_MSEC;
}

/* Texts stay the event log's. */
static Kvlease__V1__AdminEvent *event_message(
        struct server *s, const struct moment *now, const struct log_event *e)
{
        Kvlease__V1__AdminEvent *m = arena_alloc(&s->scratch.arena, sizeof(*m));

        if (!m)
                return NULL;
        kvlease__v1__admin_event__init(m);
        m->number = e->number;
        m->time_msec = time_msec(now, e->last_nsec);
        m->first_time_msec = MIN(time_msec(now, e->first_nsec), m->time_msec);
        m->kind = (char *)event_log_kind_name(e->kind);
        m->tenant = (char *)e->tenant;
        m->ns = (char *)e->ns;
        m->by_tenant = (char *)e->by_tenant;
        m->by = (char *)e->by;
        m->reason = (char *)e->reason;
        if (e->tier > 0)
                m->tier = (char *)tier_name(e->tier - 1);
        m->count = e->count;
        m->pages = e->pages;
        m->bytes = e->bytes;
        m->before_bytes = e->before_bytes;
        m->detail = (char *)e->detail;
        return m;
}

int events_fill(struct server *s, const struct event_query *q, Kvlease__V1__AdminEventsReply *reply)
{
        const struct event_log *c = &s->store.event_log;
        const struct moment now = moment_now(s);
        const struct log_event *e;
        uint64_t at = q->after;
        size_t bytes = 0;

        reply->events = arena_alloc(&s->scratch.arena, EVENTS_MOST * sizeof(*reply->events));
        if (!reply->events)
                return -ENOMEM;
        reply->lost = event_log_lost(c, at);
        while ((e = event_log_next(c, &q->filter, at)) && reply->n_events < EVENTS_MOST) {
                Kvlease__V1__AdminEvent *m = event_message(s, &now, e);

                if (!m && reply->n_events == 0)
                        return -ENOMEM;
                if (m)
                        bytes += kvlease__v1__admin_event__get_packed_size(m) + ROW_HEAD_BYTES;
                if (!m || bytes > EVENTS_BYTES)
                        break;
                reply->events[reply->n_events++] = m;
                at = e->number;
        }
        reply->more = e != NULL;
        reply->next = e ? at : c->last;
        return 0;
}
