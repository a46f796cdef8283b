/* A peer whose connection has ended while it still holds memory. */
#include "base/clock.h"
#include "base/macros.h"
#include "daemon/core/clients/client-record.h"
#include "daemon/core/clients/member.h"
#include "daemon/core/life/leave.h"
#include "daemon/core/memory/tasks.h"
#include "daemon/server/peers/server.h"
#include "daemon/server/peers/turns.h"
#include "daemon/server/peers/serving.h"
#include "daemon/server/peers/tenancy.h"
#include "daemon/server/peers/peer.h"
#include "daemon/server/config/options.h"

/* ---- in slices ------------------------------------------------------------------------------- */

static bool has_many(const struct peer *p)
{
        unsigned n = 0;

        if (!p->member)
                return false;
        list_for_each (a, &p->member->attachments, struct attach, member_link)
                if (++n > PEER_CLOSES_AT_ONCE)
                        return true;
        return false;
}

static void close_some(struct peer *p)
{
        struct state_serving was = serving_begin(p);

        /* Its sessions were used until then. */
        store_set_now(&p->server->store, server_now(p->server));
        for (unsigned i = 0; i < PEER_CLOSES_AT_ONCE; i++)
                (void)attach_close_soon(
                        list_first(&p->member->attachments, struct attach, member_link), NULL,
                        NULL);
        serving_end(p->server, was);
}

static bool leave_some(struct task *c, uint64_t budget)
{
        struct peer *p = container_of(c, struct peer, leaving);

        if (has_many(p)) {
                close_some(p);
                return true;
        }
        peer_end(p);
        return false;
}

void peer_leave(struct peer *p)
{
        if (p->state == PEER_GONE || p->state == PEER_LEAVING)
                return;
        if (!has_many(p)) {
                peer_end(p);
                return;
        }
        /* The client's row is removed last, as rows of its namespaces name it. Muted: a daemon
         * started in between doesn't wait for it to resume. */
        client_mute(p->member);
        list_remove(&p->links.linger);
        peer_retire(p, PEER_LEAVING);
        p->leaving.work = leave_some;
        task_queue(&p->leaving, p->tenancy->tenant);
}

/* ---- after a grace --------------------------------------------------------------------------- */

/* Time for which work on the device may still write after the process has exited. */
static uint64_t grace_on(const struct server *s, const struct device_props *props)
{
        const struct device_config *c = config_find_device(&s->config, props->name);
        struct device_config defaults = {0};

        if (!props->writes_linger)
                return 0;
        if (!c)
                options_set_defaults(SECTION_DEVICE, &defaults);
        return c ? c->death_grace_nsec : defaults.death_grace_nsec;
}

/* The longest grace of the peer's mapped devices. */
static uint64_t grace_of(const struct peer *p)
{
        uint64_t grace = 0;

        if (!p->member)
                return 0;
        list_for_each (a, &p->member->attachments, struct attach, member_link)
                if (a->mapped.n_used > 0)
                        grace = MAX(grace, grace_on(p->server, a->ns->device.pool->props));
        return grace;
}

static void on_grace_over(uv_timer_t *timer);

/* Sets the timer to the first end of a grace. */
static void await_grace(struct server *s)
{
        uint64_t first = UINT64_MAX, now = clock_now_nsec();

        if (uv_is_closing((uv_handle_t *)&s->peers.grace_timer))
                return;
        list_for_each (p, &s->peers.lingering, struct peer, links.linger)
                first = MIN(first, p->times.linger_until_nsec);
        if (first != UINT64_MAX)
                uv_timer_start(&s->peers.grace_timer, on_grace_over,
                        minus_u64(first, now) / NSEC_PER_MSEC + 1, 0);
}

static void on_grace_over(uv_timer_t *timer)
{
        struct server *s = container_of(timer, struct server, peers.grace_timer);
        uint64_t now = clock_now_nsec();

        list_for_each_safe (p, &s->peers.lingering, struct peer, links.linger)
                if (p->times.linger_until_nsec <= now)
                        peer_leave(p);
        (void)turns_end_part(s, "exit", NULL, now);
        await_grace(s);
}

/* The process has exited; its work on a GPU may still run. Returns false if there is no grace. */
static bool linger(struct peer *p)
{
        struct server *s = p->server;
        uint64_t grace = p->state == PEER_GONE ? 0 : grace_of(p);

        if (grace == 0)
                return false;
        member_linger(p->member);
        p->times.linger_until_nsec = clock_now_nsec() + grace;
        peer_retire(p, PEER_LINGERING);
        list_append(&s->peers.lingering, &p->links.linger);
        await_grace(s);
        return true;
}

void peer_exited(struct peer *p)
{
        if (!linger(p))
                peer_leave(p);
}
