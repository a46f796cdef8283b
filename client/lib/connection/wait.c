/* Waiting on a connection: reader, writer, sleepers (conn.h), and callbacks. */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/macros.h"
#include "client/lib/connection/conn-impl.h"
#include "client/lib/connection/error.h"

/* Another thread may send the writer's request while the writer polls for room. Then its reply can
 * come without waking the writer. Not tuned: only happens while the daemon doesn't read. */
#define WRITER_POLL_NSEC (10 * NSEC_PER_MSEC)

/* Most receives in one conn_dispatch(), so that a talkative daemon can't hold an event loop; not
 * tuned. */
#define DISPATCH_MAX_RECEIVES 64

/* Wakes a waiter that can take over the work that no thread does now. */
static void hand_on(struct conn *c)
{
        struct conn_waiter *first = list_first(&c->waiters, struct conn_waiter, link);

        if (!first)
                return;
        if (!c->has_reader)
                conn_wake(c, &first->wakeup);
        if (c->has_writer || !conn_has_unsent(c))
                return;
        list_for_each (w, &c->waiters, struct conn_waiter, link)
                if (conn_is_unsent(c, w->call)) {
                        conn_wake(c, &w->wakeup);
                        return;
                }
}

/* ---- callbacks ---------------------------------------------------------------------------------
 */

static bool has_callbacks(const struct conn *c)
{
        return !list_is_empty(&c->finished) || c->events.n > 0 || c->resume.tells_away ||
               c->resume.tells_back || (c->broken && !c->events.is_gone_told);
}

static int run_done(struct conn *c)
{
        struct conn_call *call = list_first(&c->finished, struct conn_call, link);
        int n;

        list_remove(&call->link);
        conn_unlock(c);
        n = call->on_done(call);
        conn_lock(c);
        return n;
}

/* Takes the next news. */
static enum conn_news take_news(struct conn *c, struct conn_event *ret_event)
{
        struct conn_resume *resume = &c->resume;

        if (c->events.n > 0) {
                *ret_event = c->events.ring[c->events.begin];
                c->events.begin = (c->events.begin + 1) % CONN_MAX_EVENTS;
                c->events.n--;
                return CONN_NEWS_EVENT;
        }
        *ret_event = (struct conn_event){0};
        if (resume->tells_away) {
                resume->tells_away = false;
                memcpy(ret_event->detail, resume->why, sizeof(ret_event->detail));
                return CONN_NEWS_AWAY;
        }
        if (resume->tells_back) {
                resume->tells_back = false;
                return CONN_NEWS_BACK;
        }
        memcpy(ret_event->detail, c->detail, sizeof(ret_event->detail));
        c->events.is_gone_told = true;
        return CONN_NEWS_GONE;
}

static int run_event(struct conn *c)
{
        conn_event_fn fn = c->events.tell;
        void *data = c->events.data;
        struct conn_event event;
        enum conn_news news = take_news(c, &event);
        int n;

        if (!fn)
                return 0;
        conn_unlock(c);
        n = fn(c, &event, news, data);
        conn_lock(c);
        return n;
}

static int run_callbacks(struct conn *c)
{
        const struct conn *outer = conn_running;
        int n = 0;

        if (!has_callbacks(c))
                return 0;
        /* Callbacks may block for long, or wait on this connection: other threads read on. */
        hand_on(c);
        conn_running = c;
        while (has_callbacks(c)) {
                n += list_is_empty(&c->finished) ? run_event(c) : run_done(c);
                if (c->events.is_stalled && c->events.n < CONN_MAX_EVENTS)
                        conn_take_frames(c);
        }
        conn_running = outer;
        return n;
}

static bool look_beside(struct conn *c)
{
        return c->side.look && c->side.look(c->side.data);
}

int conn_dispatch(struct conn *c)
{
        int n, r;

        conn_lock(c);
        conn_flush(c);
        /* If a thread polls, that thread receives: nothing here could wake it. */
        for (int i = 0; i < DISPATCH_MAX_RECEIVES && !c->has_reader && !c->events.is_stalled; i++)
                if (!conn_receive(c))
                        break;
        conn_come_back(c);
        look_beside(c);
        n = run_callbacks(c);
        hand_on(c);
        r = c->broken ? c->broken : n;
        if (r < 0)
                error_note(r, c->detail);
        conn_unlock(c);
        return r;
}

/* ---- waiting -----------------------------------------------------------------------------------
 */

/* Returns 0: look again; -ETIMEDOUT: the deadline passed and nothing was ready. */
static int poll_until(int fd, short events, uint64_t deadline_nsec)
{
        struct pollfd p = {.fd = fd, .events = events};
        struct timespec left, *timeout = NULL;
        uint64_t now;
        int r;

        if (deadline_nsec != CONN_FOREVER) {
                now = clock_now_nsec();
                left = conn_timespec(minus_u64(deadline_nsec, now));
                timeout = &left;
        }
        r = ppoll(&p, 1, timeout, NULL);
        return r == 0 ? -ETIMEDOUT : 0;
}

/* When the reader's turn ends: at its deadline, or when the next try is due. */
static uint64_t turn_until(const struct conn *c, uint64_t deadline_nsec)
{
        return c->link == CONN_UP ? deadline_nsec : MIN(deadline_nsec, c->resume.wake_at);
}

static int read_turn(struct conn *c, uint64_t deadline_nsec)
{
        short events = POLLIN | (conn_has_unsent(c) ? POLLOUT : 0);
        uint64_t until = turn_until(c, deadline_nsec);
        int fd = c->fd, r;

        if (look_beside(c) || c->events.is_stalled) {
                run_callbacks(c);
                return 0;
        }
        c->has_reader = true;
        conn_unlock(c);
        r = poll_until(fd, events, until);
        conn_lock(c);
        c->has_reader = false;
        if (r < 0)
                return until < deadline_nsec ? 0 : r;
        conn_flush(c);
        conn_receive(c);
        look_beside(c);
        run_callbacks(c);
        return 0;
}

static int write_turn(struct conn *c, uint64_t deadline_nsec)
{
        uint64_t slice = clock_now_nsec() + WRITER_POLL_NSEC;
        int fd = c->fd, r;

        c->has_writer = true;
        conn_unlock(c);
        r = poll_until(fd, POLLOUT, MIN(slice, deadline_nsec));
        conn_lock(c);
        c->has_writer = false;
        if (r < 0)
                return deadline_nsec <= slice ? r : 0;
        conn_flush(c);
        return 0;
}

static void init_wakeup(pthread_cond_t *wakeup)
{
        pthread_condattr_t attributes;

        pthread_condattr_init(&attributes);
        pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
        pthread_cond_init(wakeup, &attributes);
        pthread_condattr_destroy(&attributes);
}

static int sleep_turn(struct conn *c, struct conn_call *call, uint64_t deadline_nsec)
{
        struct conn_waiter waiter = {.call = call};
        int r;

        init_wakeup(&waiter.wakeup);
        list_append(&c->waiters, &waiter.link);
        call->waiter = &waiter;
        r = conn_sleep(c, &waiter.wakeup, deadline_nsec);
        call->waiter = NULL;
        list_remove(&waiter.link);
        pthread_cond_destroy(&waiter.wakeup);
        return r;
}

/* The reader's turn while the daemon is away: there is nothing to poll until the next try. */
static int away_turn(struct conn *c, struct conn_call *call, uint64_t deadline_nsec)
{
        uint64_t until = turn_until(c, deadline_nsec);
        int r;

        if (look_beside(c) || has_callbacks(c)) {
                run_callbacks(c);
                return 0;
        }
        c->has_reader = true;
        r = sleep_turn(c, call, until);
        c->has_reader = false;
        return until < deadline_nsec ? 0 : r;
}

static int reader_turn(struct conn *c, struct conn_call *call, uint64_t deadline_nsec)
{
        conn_come_back(c);
        if (call->is_done)
                return 0;
        return c->link == CONN_AWAY ? away_turn(c, call, deadline_nsec)
                                    : read_turn(c, deadline_nsec);
}

static int take_turn(struct conn *c, struct conn_call *call, uint64_t deadline_nsec)
{
        if (!c->has_reader)
                return reader_turn(c, call, deadline_nsec);
        if (c->link == CONN_UP && conn_is_unsent(c, call) && !c->has_writer)
                return write_turn(c, deadline_nsec);
        return sleep_turn(c, call, deadline_nsec);
}

int conn_wait(struct conn *c, struct conn_call *call, uint64_t deadline_nsec)
{
        int r = 0;

        while (!call->is_done && r == 0)
                r = take_turn(c, call, deadline_nsec);
        conn_abandon(c, call);
        r = call->is_done ? call->code : -ETIMEDOUT;
        if (!call->is_done)
                snprintf(call->detail, sizeof(call->detail),
                        c->link == CONN_UP
                                ? "kvleased didn't answer in time: whether it does it is unknown"
                                : "kvleased is away, and didn't come back in time: whether it does it is unknown");
        run_callbacks(c);
        hand_on(c);
        return r;
}
