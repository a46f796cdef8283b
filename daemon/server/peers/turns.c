#include "daemon/server/peers/turns.h"

#include <assert.h>
#include <errno.h>

#include "base/macros.h"
#include "daemon/core/state/task.h"
#include "daemon/core/state/tenant.h"
#include "daemon/core/memory/tasks.h"
#include "daemon/core/memory/idle-sets.h"
#include "daemon/server/peers/server.h"
#include "daemon/server/peers/peer.h"
#include "daemon/server/peers/idle-interval.h"

/* A tenant owes at most so many shares: 50 ms. Not tuned. */
#define OWES_MAX_SHARES 100

static struct bucket_limit request_limit(const struct tenancy *t)
{
        uint32_t rate = t->config.max_requests;

        return (struct bucket_limit){.rate = rate, .burst = MAX(rate, 1u)};
}

/* All its clients may connect at once, as at its start, and after the daemon's restart. */
static struct bucket_limit connect_limit(const struct tenancy *t)
{
        uint32_t rate = t->config.max_connects;

        return (struct bucket_limit){.rate = rate, .burst = rate + t->config.max_clients};
}

/* ---- pauses ---------------------------------------------------------------------------------- */

static void await_requests(struct server *s);

static void go_on(struct tenancy *t, uint64_t now)
{
        struct turns *u = &t->turns;

        u->paused = false;
        u->pauses_nsec += now - u->paused_nsec;
        list_remove(&u->link);
        if (!list_is_empty(&u->waiting))
                list_append(&t->server->turns.due, &u->link);
}

static void on_requests(uv_timer_t *timer)
{
        struct server *s = container_of(timer, struct server, turns.timer);
        uint64_t now = clock_now_nsec();

        list_for_each_safe (t, &s->turns.paused, struct tenancy, turns.link)
                if (bucket_wait_nsec(&t->turns.requests, request_limit(t), now) == 0)
                        go_on(t, now);
        if (turns_are_due(s))
                loop_kick(&s->loop);
        await_requests(s);
}

/* Sets the timer to the first paused tenant that may continue. */
static void await_requests(struct server *s)
{
        uint64_t now = clock_now_nsec(), wait = UINT64_MAX;

        list_for_each (t, &s->turns.paused, struct tenancy, turns.link)
                wait = MIN(wait, bucket_wait_nsec(&t->turns.requests, request_limit(t), now));
        if (wait == UINT64_MAX || uv_is_closing((uv_handle_t *)&s->turns.timer))
                return;
        uv_update_time(&s->loop.uv); /* else the timer would be early by the time of this turn */
        uv_timer_start(&s->turns.timer, on_requests, wait / NSEC_PER_MSEC + 1, 0);
}

static void pause_tenancy(struct tenancy *t, uint64_t now)
{
        struct turns *u = &t->turns;

        u->paused = true;
        u->paused_nsec = now;
        u->n_pauses++;
        list_remove(&u->link);
        list_append(&t->server->turns.paused, &u->link);
        await_requests(t->server);
}

/* ---- turns ----------------------------------------------------------------------------------- */

/* Charges the tenant for work outside of its turn: its next turns are shorter. */
static void owe_time(struct tenancy *t, uint64_t nsec)
{
        uint64_t most = OWES_MAX_SHARES * t->server->turns.share_nsec;

        t->turns.owes_nsec = MIN(t->turns.owes_nsec + nsec, most);
}

/* Serves the tenant's peers until its time or its requests are used up, or none waits. */
static void serve_tenancy(struct server *s, struct tenancy *t)
{
        struct turns *u = &t->turns;
        uint64_t share = s->turns.share_nsec, now = clock_now_nsec();
        struct peer *p;

        s->turns.of = t;
        s->turns.ends_nsec = now + share - MIN(u->owes_nsec, share);
        u->owes_nsec -= MIN(u->owes_nsec, share);
        u->passed_nsec = 0;
        do {
                if (bucket_wait_nsec(&u->requests, request_limit(t), now) > 0) {
                        pause_tenancy(t, now);
                        break;
                }
                p = list_first(&u->waiting, struct peer, links.backlog);
                if (!p)
                        break;
                peer_turn(p);
                now = clock_now_nsec();
        } while (now < s->turns.ends_nsec);
        s->turns.of = NULL;
        if (now > s->turns.ends_nsec)
                owe_time(t, now - s->turns.ends_nsec);
}

/* Skips one of n tenants with work, which pays by its share of the turn. Requests of an
 * administrator lengthen the turn, and the share. */
static void pay_by_turn(struct server *s, struct turns *u, size_t n)
{
        uint64_t now = clock_now_nsec(), took = u->passed_nsec ? now - u->passed_nsec : 0;

        u->owes_nsec -= MIN(u->owes_nsec, MAX(s->turns.share_nsec, took / n));
        u->passed_nsec = now;
}

/* Gives a turn to one of n tenants that have work. */
static void take_turn(struct server *s, struct tenancy *t, size_t n)
{
        struct turns *u = &t->turns;

        if (u->owes_nsec > s->turns.share_nsec && n > 1)
                pay_by_turn(s, u, n);
        else
                serve_tenancy(s, t);
        if (!u->paused && !list_is_empty(&u->waiting) && list_is_empty(&u->link))
                list_append(&s->turns.due, &u->link);
}

/* After all events of this turn. */
static void on_check(uv_check_t *check)
{
        struct server *s = container_of(check, struct server, turns.check);
        struct list_link turn;
        struct tenancy *t;
        size_t n = 0;

        /* Before any submission is executed: else the idle interval would end unnoticed. */
        if (turns_are_due(s))
                idle_interval_end(s);
        list_take_all(&s->turns.due, &turn);
        list_for_each (due, &turn, struct tenancy, turns.link)
                n++;
        while ((t = list_first(&turn, struct tenancy, turns.link))) {
                list_remove(&t->turns.link);
                take_turn(s, t, n);
        }
        if (turns_are_due(s))
                loop_kick(&s->loop);
}

/* The loop may sleep now: each request, ring, slice and timer has drained the idle sets. A debug
 * build stops if one has not; others drain them now. */
static void on_prepare(uv_prepare_t *prepare)
{
        struct server *s = container_of(prepare, struct server, turns.prepare);

#ifdef KVL_DEBUG
        assert(list_is_empty(&s->store.memory.idle_sets));
#endif
        idle_sets_drain(&s->store);
}

void turns_queue(struct peer *p)
{
        struct turns *u = &p->tenancy->turns;

        if (list_is_empty(&p->links.backlog))
                list_append(&u->waiting, &p->links.backlog);
        if (!u->paused && list_is_empty(&u->link))
                list_append(&p->server->turns.due, &u->link);
}

bool turns_are_due(const struct server *s)
{
        return !list_is_empty(&s->turns.due);
}

bool turns_go_on(const struct peer *p)
{
        const struct server *s = p->server;
        const struct tenancy *t = p->tenancy;
        uint64_t now;

        if (!t || s->turns.of != t)
                return true;
        now = clock_now_nsec();
        return now < s->turns.ends_nsec &&
               bucket_wait_nsec(&t->turns.requests, request_limit(t), now) == 0;
}

uint64_t turns_ends(const struct peer *p)
{
        const struct server *s = p->server;

        return p->tenancy && s->turns.of == p->tenancy ? s->turns.ends_nsec : UINT64_MAX;
}

/* ---- outside of turns ------------------------------------------------------------------------ */

void turns_begin_visits(struct server *s, uint64_t most_nsec)
{
        list_for_each (t, &s->tenancies.list, struct tenancy, link)
                t->turns.visit_nsec = most_nsec;
}

bool turns_may_visit(const struct tenancy *t)
{
        return t->turns.visit_nsec > 0;
}

void turns_bill(struct tenancy *t, uint64_t began_nsec)
{
        struct server *s = t ? t->server : NULL;
        uint64_t took = clock_now_nsec() - began_nsec;

        if (!t || s->turns.of == t)
                return;
        if (s->turns.of)
                s->turns.ends_nsec += took; /* not at the cost of the current turn */
        owe_time(t, took);
}

void turns_visited(struct tenancy *t, uint64_t began_nsec)
{
        t->turns.visit_nsec -= MIN(clock_now_nsec() - began_nsec, t->turns.visit_nsec);
        turns_bill(t, began_nsec);
}

/* Visits the peer as in a turn of its tenant, which ends when the tenant's time for visits is used
 * up. The tenant is charged. */
void turns_visit(struct peer *p, void (*visit)(struct peer *p))
{
        struct server *s = p->server;
        struct tenancy *t = p->tenancy, *turn_of = s->turns.of;
        uint64_t began = clock_now_nsec(), ends = s->turns.ends_nsec;

        if (!t || turn_of == t) {
                visit(p);
                return;
        }
        if (!turns_may_visit(t)) {
                if (ring_has_any(&p->ring))
                        peer_schedule(p);
                return;
        }
        s->turns.of = t;
        s->turns.ends_nsec = began + t->turns.visit_nsec;
        visit(p);
        s->turns.of = turn_of;
        s->turns.ends_nsec = ends;
        turns_visited(t, began);
}

void turns_charge(struct peer *p, uint32_t n)
{
        struct tenancy *t = p->tenancy;

        p->times.heard_nsec = clock_now_nsec();
        if (!t)
                return;
        t->turns.n_requests += n;
        bucket_take(&t->turns.requests, request_limit(t), n, p->times.heard_nsec);
}

bool turns_are_paused(const struct peer *p)
{
        return p->tenancy && p->tenancy->turns.paused;
}

int turns_connect(struct tenancy *t, struct detail *d)
{
        struct bucket_limit limit = connect_limit(t);
        uint64_t now = clock_now_nsec();

        if (bucket_wait_nsec(&t->turns.connects, limit, now) > 0) {
                t->turns.n_refused++;
                return detail_set(d, -EMFILE,
                        "clients of tenant %s connect more than %u times a second, the most they "
                        "may: keep connections open, or raise it with kvleasectl tenants set %s max_connects=...",
                        t->config.name, limit.rate, t->config.name);
        }
        bucket_take(&t->turns.connects, limit, 1, now);
        return 0;
}

/* ---- tasks ---------------------------------------------------------------------------------- */

bool turns_do_tasks(struct server *s)
{
        uint64_t began = clock_now_nsec(), now = began;
        struct tenant *t;

        while (now - began < TURNS_TASKS_NSEC && (t = tasks_work(&s->store))) {
                uint64_t then = now;

                now = turn_watch_since(&s->turn_watch, "task", t->name, then);
                if (t->server_data)
                        owe_time(t->server_data, now - then);
        }
        return tasks_are_left(&s->store);
}

uint64_t turns_end_part(struct server *s, const char *what, const char *tenant, uint64_t began_nsec)
{
        idle_sets_drain(&s->store);
        return turn_watch_since(&s->turn_watch, what, tenant, began_nsec);
}

/* ---- life ------------------------------------------------------------------------------------ */

void turns_init_tenancy(struct tenancy *t)
{
        list_init(&t->turns.link);
        list_init(&t->turns.waiting);
}

void turns_renew(struct tenancy *t)
{
        t->turns.requests = t->turns.connects = (struct bucket){0};
        if (!t->turns.paused)
                return;
        go_on(t, clock_now_nsec());
        loop_kick(&t->server->loop);
}

void turns_drop(struct tenancy *t)
{
        struct peer *p;

        while ((p = list_first(&t->turns.waiting, struct peer, links.backlog)))
                list_remove(&p->links.backlog);
        list_remove(&t->turns.link);
}

void turns_init(struct server *s)
{
        list_init(&s->turns.due);
        list_init(&s->turns.paused);
        s->turns.share_nsec = TURNS_SHARE_NSEC;
        uv_check_init(&s->loop.uv, &s->turns.check);
        uv_check_start(&s->turns.check, on_check);
        uv_unref((uv_handle_t *)&s->turns.check);
        uv_prepare_init(&s->loop.uv, &s->turns.prepare);
        uv_prepare_start(&s->turns.prepare, on_prepare);
        uv_unref((uv_handle_t *)&s->turns.prepare);
}
