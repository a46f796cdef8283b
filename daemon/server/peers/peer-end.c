/* A peer that has hung up, or whose process has exited: the rest of its input, and its next
 * state. */
#include <poll.h>

#include "base/clock.h"
#include "base/macros.h"
#include "daemon/core/clients/client-record.h"
#include "daemon/core/clients/member.h"
#include "daemon/core/life/leave.h"
#include "daemon/core/memory/tasks.h"
#include "daemon/core/state/tenant.h"
#include "daemon/server/base/creds.h"
#include "daemon/server/config/options.h"
#include "daemon/server/peers/peer-impl.h"
#include "daemon/server/peers/peer.h"
#include "daemon/server/peers/pending.h"
#include "daemon/server/peers/server.h"
#include "daemon/server/peers/serving.h"
#include "daemon/server/peers/turns.h"

/*
 * Receives after the end of a stream was reported: the rest of the socket's buffer (some 200 KiB,
 * kernel) and a bit. The bound stops a forked child that goes on sending. Not tuned.
 */
#define DRAIN_RECEIVES 64

/* Bounds of one call of drain(). */
struct drain_limit {
        unsigned max_frames;
        uint32_t max_submissions;
        bool is_slice; /* in any tenant's turn; else until its tenant's turn ends */
};

/* All received input, within its tenant's turn. */
static const struct drain_limit whole_turn = {UINT32_MAX - 1, UINT32_MAX, false};

/* One slice of a process that has exited: some 100 microseconds of refused frames, and as much of
 * its ring. Not tuned. */
static const struct drain_limit one_slice = {64, 64, true};

/* True if the peer's pages must stay until its process exits. */
static bool peer_keeps_pages(const struct peer *p)
{
        if (!p->member)
                return false;
        list_for_each (a, &p->member->attachments, struct attach, member_link)
                if (pins_is_open(&a->share))
                        return true;
        return p->member->n_mapped_sets > 0;
}

bool peer_holds_memory(struct peer *p)
{
        return peer_keeps_pages(p) ||
               (p->conn.fd >= 0 && outqueue_unread_fds(&p->out, p->conn.fd) > 0);
}

static void begin_drain(struct peer *p)
{
        /* A client that will resume takes its completions then. */
        p->ring.ended = !p->member || !client_is_recorded(p->member) || !p->conn.process_open ||
                        creds_pidfd_exited(p->conn.pidfd);
        pending_drop(p, PENDING_DROP);
        pending_drop(p, PENDING_TENANT);
}

static bool receive_rest(struct peer *p)
{
        if (p->input.backed_up || p->input.n_drained >= DRAIN_RECEIVES || p->doomed ||
                !peer_receive(p))
                return false;
        p->input.n_drained++;
        return true;
}

/* Handles the rest of the peer's input. Returns false if there is more, and the slice or its
 * tenant's turn has ended. */
static bool drain(struct peer *p, const struct drain_limit *l)
{
        uint32_t n;

        begin_drain(p);
        peer_process_frames(p, l->max_frames);
        while (receive_rest(p)) {
                if (l->is_slice)
                        return false;
                peer_process_frames(p, l->max_frames);
        }
        if (p->input.backed_up)
                return false;
        n = MIN(p->input.drain_left, l->max_submissions);
        p->input.drain_left -= peer_take_submissions(p, n);
        return p->input.drain_left == 0 || !peer_may_submit(p) || !ring_has_any(&p->ring) ||
               (!l->is_slice && turns_go_on(p));
}

/* The stream has ended. Pins of mapped pages stay until the process exits. */
static void wait_for_exit(struct peer *p)
{
        if (p->state == PEER_WAITING)
                return;
        if (!peer_holds_memory(p) || !p->conn.process_open) {
                peer_leave(p);
                return;
        }
        if (!peer_keeps_pages(p)) {
                /* The peer only shut down its side, or the kernel hasn't dropped its unread data
                 * yet. */
                uv_poll_stop(&p->conn.socket);
                p->conn.socket_events = 0;
                peer_look_later(p);
                return;
        }
        p->state = PEER_WAITING;
        p->times.state_nsec = clock_now_nsec();
        list_remove(&p->links.backlog);
        list_remove(&p->links.unread);
        peer_close_socket(p);
        pending_recount(p);
        peers_note_drained(p->server);
}

void peer_hang_up(struct peer *p)
{
        if (!drain(p, &whole_turn)) {
                peer_schedule(p);
                return;
        }
        peer_stop_waiting(p);
        wait_for_exit(p);
}

/* Nothing that it said is left. */
static void end_exited(struct peer *p)
{
        peer_stop_waiting(p);
        peer_exited(p);
}

/* Handles the rest as a task, outside of turns: memory is freed even if the tenant is paused. */
static bool handle_rest(struct task *c, uint64_t budget)
{
        struct peer *p = container_of(c, struct peer, leaving);
        bool is_over, is_gone;

        p->refs++;
        is_over = drain(p, &one_slice);
        is_gone = p->state == PEER_GONE; /* by a request of its own */
        if (is_over && !is_gone)
                end_exited(p);
        peer_unref(p);
        return !is_over && !is_gone;
}

/* A process can have had thousands of connections with unread requests: these are handled a slice
 * at a time. */
void peer_exit_seen(uv_poll_t *handle, int status, int events)
{
        struct peer *p = container_of(handle, struct peer, conn.process);
        uint64_t began = clock_now_nsec();
        struct tenancy *t = p->tenancy;

        p->refs++;
        uv_poll_stop(handle);
        if (p->state == PEER_WAITING) {
                peer_exited(p);
        } else {
                p->broken = p->exited = true;
                outqueue_clear(&p->out);
                pending_drop(p, PENDING_LEASE);
                if (t) {
                        p->leaving.work = handle_rest;
                        task_queue(&p->leaving, t->tenant);
                } else {
                        (void)drain(p, &whole_turn);
                        end_exited(p);
                }
        }
        turns_bill(t, began);
        (void)turns_end_part(p->server, "exit", t ? t->config.name : NULL, began);
        peer_unref(p);
}

bool peer_has_hung_up(struct peer *p)
{
        struct pollfd poll_fd = {.fd = p->conn.fd, .events = POLLRDHUP};
        struct tenancy *turn_of = p->server->turns.of;

        if (peer_is_waiting(p) || p->state == PEER_GONE)
                return true;
        if (p->exited) {
                p->refs++;
                task_remove(&p->leaving, p->tenancy->tenant);
                p->server->turns.of = NULL; /* all at once */
                (void)drain(p, &whole_turn);
                end_exited(p);
                p->server->turns.of = turn_of;
                peer_unref(p);
                return true;
        }
        if (poll(&poll_fd, 1, 0) <= 0 || !(poll_fd.revents & (POLLHUP | POLLRDHUP | POLLERR)))
                return false;
        p->refs++;
        p->input.hung_up = true;
        p->server->turns.of = NULL; /* all at once */
        peer_end_turn(p);
        p->server->turns.of = turn_of;
        peer_unref(p);
        return true;
}

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
