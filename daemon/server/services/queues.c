#include "daemon/server/services/queues.h"

#include <errno.h>
#include <stdlib.h>

#include <uv.h>

#include "base/clock.h"
#include "base/macros.h"
#include "daemon/core/core.h"
#include "daemon/core/memory/sets.h"
#include "daemon/core/state/store.h"
#include "daemon/core/reclaim/fetch.h"
#include "daemon/server/peers/server.h"
#include "daemon/server/peers/turns.h"
#include "daemon/server/base/log.h"
#include "daemon/server/peers/parked.h"
#include "gpu/queue.h"

struct queue_watch {
        struct list_link link; /* server.services.queues */
        struct server *server; /* borrowed */
        struct pool *pool;     /* borrowed */
        uv_poll_t poll;
        uv_timer_t timer;
        unsigned n_handles; /* not closed yet; the last one frees it */
        uint64_t armed_nsec;
        bool was_stuck, was_broken;
        bool was_refused; /* memory below it wasn't registered */
        bool is_retrying; /* requests are retried after results or failures */
};

const char *queues_state(const struct pool *pool)
{
        if (!pool->queue)
                return "ok";
        if (queue_is_broken(pool->queue))
                return "broken";
        return queue_is_stuck(pool->queue) ? "stuck" : "ok";
}

static void log_state(struct queue_watch *w)
{
        const char *name = w->pool->props->name;
        bool is_stuck = queue_is_stuck(w->pool->queue), is_broken = queue_is_broken(w->pool->queue);

        if (is_broken && !w->was_broken)
                log_error(
                        "device %s is broken: %s; nothing can be leased from it until it has been reset and kvleased is started again",
                        name, w->pool->why);
        if (is_stuck && !w->was_stuck)
                log_error(
                        "device %s hangs: %s; leases that need memory of it are refused until it answers",
                        name, w->pool->why);
        if (!is_stuck && w->was_stuck)
                log_notice("device %s answers again", name);
        w->was_stuck = is_stuck;
        w->was_broken = is_broken;
}

/* Once, until all of it is registered again. */
static void log_registration(struct queue_watch *w)
{
        const struct pool *below = w->pool->below;
        bool is_refused = below && below->n_unregistered > 0;

        if (is_refused && !w->was_refused)
                log_warning(
                        "%s: %s; the kernel log may say more; lower host_memory where memory is short",
                        below->props->name, below->why);
        w->was_refused = is_refused;
}

/*
 * Retries waiting leases first; then fetches from lower tiers, magazines and unneeded sets.
 * Otherwise a fetched page's set would be evicted before leases are tried.
 */
static void retry(struct queue_watch *w)
{
        struct server *s = w->server;

        w->is_retrying = parked_retry(s, w->pool);
        if (w->is_retrying)
                return;
        (void)fetch_work(&s->store);
        store_top_up(&s->store, w->pool, server_now(s));
}

/*
 * While retries run, no more results are reaped: they would go to the oldest requests again. So the
 * youngest has its turn at any rate of results.
 */
static void take_turn(struct queue_watch *w)
{
        if (w->is_retrying)
                return;
        if (pool_reap(w->pool) > 0) {
                parked_make_due(w->server, w->pool);
                retry(w);
                if (w->is_retrying)
                        loop_kick(&w->server->loop);
        }
        log_state(w);
        log_registration(w);
}

bool queues_work(struct server *s)
{
        bool more = false;

        list_for_each (w, &s->services.queues, struct queue_watch, link) {
                if (w->is_retrying)
                        retry(w);
                more |= w->is_retrying;
        }
        return more;
}

static void on_event(uv_poll_t *poll, int status, int events)
{
        struct queue_watch *w = container_of(poll, struct queue_watch, poll);
        uint64_t began = clock_now_nsec();

        take_turn(w);
        (void)turns_end_part(w->server, "devices", NULL, began);
}

static void on_deadline(uv_timer_t *timer)
{
        struct queue_watch *w = container_of(timer, struct queue_watch, timer);
        uint64_t began = clock_now_nsec();

        w->armed_nsec = UINT64_MAX;
        take_turn(w);
        (void)turns_end_part(w->server, "devices", NULL, began);
}

/* Sets the timer to the deadline, which each call of the driver moves without an event. */
static void arm_watch(struct queue_watch *w)
{
        uint64_t deadline = queue_deadline_nsec(w->pool->queue), now;

        if (deadline == w->armed_nsec)
                return;
        w->armed_nsec = deadline;
        if (deadline == UINT64_MAX) {
                uv_timer_stop(&w->timer);
                return;
        }
        now = clock_now_nsec();
        uv_update_time(
                &w->server->loop.uv); /* else the timer would be early by the time of this turn */
        uv_timer_start(&w->timer, on_deadline, minus_u64(deadline, now) / NSEC_PER_MSEC + 1, 0);
}

/* Sets the timers before the loop sleeps; wakes no thread. */
static void on_prepare(uv_prepare_t *prepare)
{
        struct server *s = container_of(prepare, struct server, services.queue_prepare);

        list_for_each (w, &s->services.queues, struct queue_watch, link)
                arm_watch(w);
}

static void on_closed(uv_handle_t *handle)
{
        struct queue_watch *w = handle->data;

        if (--w->n_handles == 0)
                free(w);
}

int queues_watch(struct server *s, struct pool *pool)
{
        struct queue_watch *w = calloc(1, sizeof(*w));
        int r;

        if (!w)
                return -ENOMEM;
        w->server = s;
        w->pool = pool;
        w->armed_nsec = UINT64_MAX;
        r = uv_poll_init(&s->loop.uv, &w->poll, queue_fd(pool->queue));
        if (r < 0) {
                free(w);
                return r;
        }
        uv_timer_init(&s->loop.uv, &w->timer);
        w->n_handles = 2;
        list_append(&s->services.queues, &w->link);
        uv_poll_start(&w->poll, UV_READABLE, on_event);
        uv_prepare_start(&s->services.queue_prepare, on_prepare);
        return 0;
}

void queues_stop(struct server *s)
{
        list_for_each_safe (w, &s->services.queues, struct queue_watch, link) {
                list_remove(&w->link);
                w->poll.data = w->timer.data = w;
                uv_close((uv_handle_t *)&w->poll, on_closed);
                uv_close((uv_handle_t *)&w->timer, on_closed);
        }
}
