#include "daemon/server/peers/idle-interval.h"

#include "base/clock.h"
#include "base/macros.h"
#include "daemon/core/core.h"
#include "daemon/server/peers/server.h"
#include "daemon/server/peers/peer.h"
#include "daemon/server/peers/turns.h"

/*
 * Oldest age of unseen touches at an eviction: they don't wake the daemon until there are many.
 * Short compared to the seconds between two uses of a page worth keeping. Not tuned.
 */
#define IDLE_MSEC 100

/* Time of policies in a idle interval: a pass over a million pages ends within seconds, and the
 * daemon sleeps. Not tuned. */
#define POLICIES_NSEC NSEC_PER_MSEC

static void look_at_ring(struct peer *p)
{
        if (peer_take_submissions(p, PEER_SUBMISSIONS_PER_TURN) > 0)
                p->server->peers.wiring->on_visit(p->server);
}

void peers_look_at_rings(struct server *s)
{
        turns_begin_visits(s, s->turns.share_nsec);
        list_for_each (p, &s->peers.list, struct peer, links.all)
                if (ring_is_open(&p->ring))
                        turns_visit(p, look_at_ring);
}

/* True: they have more to do. */
static bool work_on_policies(struct server *s)
{
        s->peers.policies_nsec = server_now(s);
        return store_policy_work(&s->store, s->peers.policies_nsec);
}

static void on_idle(uv_timer_t *timer);

static void start_timer(struct server *s)
{
        loop_start_timer(&s->peers.idle_timer, on_idle, IDLE_MSEC);
}

static void on_idle(uv_timer_t *timer)
{
        struct server *s = container_of(timer, struct server, peers.idle_timer);
        uint64_t then = clock_now_nsec(), until_nsec = 0;
        bool more;

        peers_look_at_rings(s);
        then = turns_end_part(s, "rings", NULL, then);
        if (!s->peers.was_executed)
                until_nsec = clock_now_nsec() + POLICIES_NSEC;
        s->peers.was_executed = false;
        do
                more = work_on_policies(s);
        while (more && clock_now_nsec() < until_nsec);
        if (more)
                start_timer(s);
        (void)turns_end_part(s, "policies", NULL, then);
}

/* A test's clock runs ahead of the timers: many idle intervals may lie between two requests. */
static void catch_up(struct server *s)
{
        uint64_t n_whiles = (server_now(s) - s->peers.policies_nsec) / (IDLE_MSEC * NSEC_PER_MSEC);

        while (n_whiles > 0 && work_on_policies(s))
                n_whiles--;
}

void idle_interval_expect(struct server *s)
{
        start_timer(s);
        s->peers.was_executed = true;
        s->peers.wiring->on_executed(s);
        if (s->clock.nsec)
                catch_up(s);
}

void idle_interval_end(struct server *s)
{
        bool was_idle = !uv_is_active((uv_handle_t *)&s->peers.idle_timer);

        idle_interval_expect(s);
        if (was_idle)
                peers_look_at_rings(s);
}
