/* ADMIN_COUNTERS. */
#include <errno.h>

#include "daemon/server/handlers/handlers.h"
#include "daemon/server/peers/server.h"
#include "daemon/server/peers/peer.h"
#include "proto/kvlease.pb-c.h"

/* Borrows from the counters. NULL: no room. */
static Kvlease__V1__AdminCall *make_call(
        struct arena *arena, struct call_times *t, const char *name)
{
        Kvlease__V1__AdminCall *m = arena_alloc(arena, sizeof(*m));

        if (!m)
                return NULL;
        kvlease__v1__admin_call__init(m);
        m->name = (char *)name;
        m->counts = t->counts;
        m->n_counts = CALLS_BUCKETS;
        m->sum_nsec = t->sum_nsec;
        return m;
}

static bool has_any(const struct call_times *t)
{
        for (size_t i = 0; i < CALLS_BUCKETS; i++)
                if (t->counts[i] > 0)
                        return true;
        return false;
}

static int list_calls(struct request *rq, Kvlease__V1__AdminCountersReply *reply)
{
        struct arena *arena = &rq->server->scratch.arena;

        reply->bounds_nsec = (uint64_t *)calls_bounds_nsec;
        reply->n_bounds_nsec = CALLS_BUCKETS - 1;
        reply->calls = arena_alloc(arena, CALLS_KINDS * sizeof(*reply->calls));
        if (!reply->calls)
                return -ENOMEM;
        for (unsigned row = 0; row < CALLS_KINDS; row++) {
                struct call_times *t = &rq->server->calls.times[row];

                if (!has_any(t))
                        continue;
                reply->calls[reply->n_calls] = make_call(arena, t, msg_at(row)->name);
                if (!reply->calls[reply->n_calls])
                        return -ENOMEM;
                reply->n_calls++;
        }
        return 0;
}

static int list_violations(struct request *rq, Kvlease__V1__AdminCountersReply *reply)
{
        struct arena *arena = &rq->server->scratch.arena;
        const struct calls *c = &rq->server->calls;

        reply->violations = arena_alloc(arena, CALLS_RULES * sizeof(*reply->violations));
        if (!reply->violations)
                return -ENOMEM;
        for (size_t i = 0; i < CALLS_RULES; i++) {
                Kvlease__V1__AdminViolation *m = arena_alloc(arena, sizeof(*m));

                if (!m)
                        return -ENOMEM;
                kvlease__v1__admin_violation__init(m);
                m->rule = (char *)calls_rules[i];
                m->n = c->broken[i];
                reply->violations[reply->n_violations++] = m;
        }
        return 0;
}

int handle_ADMIN_COUNTERS(struct request *rq)
{
        Kvlease__V1__AdminCountersReply *reply = rq->reply;
        int r = list_calls(rq, reply);

        if (r == 0)
                r = list_violations(rq, reply);
        reply->turns = make_call(&rq->server->scratch.arena, &rq->server->turn_watch.turns, "turn");
        if (!reply->turns)
                r = -ENOMEM;
        if (r < 0) {
                reply->n_calls = reply->n_violations = 0;
                return r;
        }
        return 0;
}
