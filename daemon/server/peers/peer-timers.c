#include "daemon/server/peers/peer-timers.h"

#include "base/clock.h"
#include "daemon/server/peers/server.h"
#include "daemon/server/peers/peer.h"

/*
 * Interval between looks whether a peer has taken its descriptors: short at first, longer while
 * none does, as looking costs. Not tuned.
 */
#define LOOK_MIN_MSEC 2u
#define LOOK_MAX_MSEC 32u

/* ---- time to introduce itself ---------------------------------------------------------------- */

/*
 * The peer's HELLO may have come in time, and wait for the turn of a tenant that used up its time
 * or its requests. So the peer gets one more look, in its own turn (peer_turn()).
 */
static void on_hello_timeout(uv_timer_t *timer)
{
        struct server *s = container_of(timer, struct server, peers.hello_timer);
        uint64_t now = clock_now_nsec(), timeout = s->config.daemon.hello_timeout_nsec;
        struct peer *p;

        while ((p = list_first(&s->peers.hellos, struct peer, links.hello)) &&
                now - p->times.hello_nsec >= timeout) {
                list_remove(&p->links.hello);
                p->input.is_overdue = true;
                p->input.readable = true; /* a paused tenant's peers weren't polled */
                peer_schedule(p);
        }
        if (p)
                peers_watch_hellos(s);
}

void peers_watch_hellos(struct server *s)
{
        const struct peer *oldest = list_first(&s->peers.hellos, struct peer, links.hello);
        uint64_t age = clock_now_nsec() - oldest->times.hello_nsec;
        uint64_t timeout = s->config.daemon.hello_timeout_nsec, left = timeout - MIN(age, timeout);

        uv_timer_start(&s->peers.hello_timer, on_hello_timeout, left / NSEC_PER_MSEC + 1, 0);
}

void peer_await_hello(struct peer *p)
{
        p->times.hello_nsec = clock_now_nsec();
        list_append(&p->server->peers.hellos, &p->links.hello);
        peers_watch_hellos(p->server);
}

/* ---- polling --------------------------------------------------------------------------------- */

/* Polls every waiting peer; one that still waits is put back on the list. */
static void on_look(uv_timer_t *timer)
{
        struct server *s = container_of(timer, struct server, peers.look_timer);
        unsigned next_msec = MIN(2 * s->peers.look_msec, LOOK_MAX_MSEC);
        struct list_link turn;

        list_take_all(&s->peers.unread, &turn);
        while (!list_is_empty(&turn))
                peer_look(list_first(&turn, struct peer, links.unread));
        if (list_is_empty(&s->peers.unread))
                return;
        s->peers.look_msec = next_msec;
        uv_timer_start(timer, on_look, next_msec, 0);
}

void peer_look_later(struct peer *p)
{
        struct server *s = p->server;

        if (!list_is_empty(&p->links.unread) || uv_is_closing((uv_handle_t *)&s->peers.look_timer))
                return;
        list_append(&s->peers.unread, &p->links.unread);
        if (uv_is_active((uv_handle_t *)&s->peers.look_timer) &&
                uv_timer_get_due_in(&s->peers.look_timer) <= LOOK_MIN_MSEC)
                return;
        s->peers.look_msec = LOOK_MIN_MSEC;
        uv_timer_start(&s->peers.look_timer, on_look, s->peers.look_msec, 0);
}

/* ---- the end ----------------------------------------------------------------------------------
 */

void peers_note_drained(struct server *s)
{
        if (!s->life.stopping || s->tenancies.n_changes > 0)
                return;
        list_for_each (p, &s->peers.list, struct peer, links.all)
                if (p->state != PEER_GONE && !outqueue_is_empty(&p->out))
                        return;
        uv_stop(&s->loop.uv);
}

void peers_flush(struct server *s)
{
        list_for_each_safe (p, &s->peers.list, struct peer, links.all)
                peer_flush(p);
}

void peer_timers_init(struct server *s)
{
        s->peers.look_msec = LOOK_MIN_MSEC;
        uv_timer_init(&s->loop.uv, &s->peers.hello_timer);
        uv_timer_init(&s->loop.uv, &s->peers.look_timer);
}
