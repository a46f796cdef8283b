#include "daemon/server/peers/event-messages.h"

#include <errno.h>
#include <time.h>

#include "base/clock.h"
#include "daemon/server/peers/server.h"
#include "daemon/server/peers/tier-name.h"
#include "daemon/server/peers/followers.h"

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
