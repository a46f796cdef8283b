#include "daemon/server/peers/peer.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/fd.h"
#include "daemon/core/clients/attach.h"
#include "daemon/core/clients/client-record.h"
#include "daemon/core/clients/member.h"
#include "daemon/core/life/leave.h"
#include "daemon/core/memory/idle-sets.h"
#include "daemon/core/memory/tasks.h"
#include "daemon/server/base/log.h"
#include "daemon/server/peers/access.h"
#include "daemon/server/peers/endings.h"
#include "daemon/server/peers/events.h"
#include "daemon/server/peers/idle-interval.h"
#include "daemon/server/peers/keeping.h"
#include "daemon/server/peers/listener.h"
#include "daemon/server/peers/peer-impl.h"
#include "daemon/server/peers/pending.h"
#include "daemon/server/peers/resume.h"
#include "daemon/server/peers/server.h"
#include "daemon/server/peers/serving.h"
#include "daemon/server/peers/turns.h"

static void on_socket(uv_poll_t *handle, int status, int events);
static void look_at(struct peer *p);
static void flush_peer(struct peer *p);

/* ---- submissions in shared memory, in order with frames -------------------------------------- */

bool peer_may_submit(const struct peer *p)
{
        return ring_is_open(&p->ring) && p->member && p->state == PEER_ACTIVE && !p->muted &&
               !p->doomed && !p->resumption.resuming && !peer_awaits_drop(p);
}

uint32_t peer_take_submissions(struct peer *p, uint32_t budget)
{
        struct state_serving was;
        struct ring_turn turn;
        uint64_t began;

        if (!peer_may_submit(p))
                return 0;
        began = clock_now_nsec();
        was = serving_begin(p);
        turn = ring_drain(&p->ring, p->member, budget, server_now(p->server), turns_ends(p));
        idle_sets_drain(&p->server->store);
        serving_end(p->server, was);
        if (turn.n > 0) {
                (void)turn_watch_since(&p->server->turn_watch, "ring",
                        p->tenancy ? p->tenancy->config.name : NULL, began);
                turns_charge(p, turn.n);
                idle_interval_expect(p->server);
        }
        if (turn.is_news && ring_wakes_client(&p->ring))
                events_ring(p);
        if (turn.violation)
                peer_violation(p, turn.violation);
        else if (turn.more || !ring_sleep(&p->ring))
                peer_schedule(p);
        return turn.n;
}

static bool has_submitted_first(struct peer *p)
{
        if (!peer_may_submit(p))
                return true;
        if (!p->input.is_behind)
                p->input.ring_goal = ring_tail(&p->ring);
        p->input.is_behind = !ring_is_at(&p->ring, p->input.ring_goal);
        if (p->input.is_behind)
                (void)peer_take_submissions(p, SHM_SUB_ENTRIES);
        p->input.is_behind = peer_may_submit(p) && !ring_is_at(&p->ring, p->input.ring_goal);
        return !p->input.is_behind || turns_ends(p) == UINT64_MAX;
}

void peer_catch_up(struct peer *p)
{
        struct state_serving was;

        peer_take_submissions(p, SHM_SUB_ENTRIES);
        if (!p->member)
                return;
        was = serving_begin(p);
        list_for_each (a, &p->member->attachments, struct attach, member_link)
                if (!attach_sync(a))
                        peer_violation(p, "magazine");
        idle_sets_drain(&p->server->store);
        serving_end(p->server, was);
}

/* ---- identity for people, rights, entries in the event log ----------------------------------- */

void peer_set_who(struct peer *p)
{
        if (p->tenancy)
                snprintf(p->identity.who, sizeof(p->identity.who), "process %d%s%s%s",
                        (int)p->identity.pid, p->identity.name[0] ? " (" : "", p->identity.name,
                        p->identity.name[0] ? ")" : "");
        else
                snprintf(p->identity.who, sizeof(p->identity.who), "uid %u",
                        (unsigned)p->identity.uid);
}

static const char *end_reason(const struct peer *p)
{
        if (p->muted || p->doomed)
                return "broke the protocol";
        if (p->resumption.adopted)
                return "did not come back";
        if (peer_is_waiting(p) || (p->conn.pidfd >= 0 && creds_pidfd_exited(p->conn.pidfd)))
                return "exited";
        return "hung up";
}

void peer_note_end(struct peer *p, const char *why)
{
        server_note(p->server, &(struct event_note){.kind = EVENT_CLIENT,
                                       .tenant = p->tenancy->config.name,
                                       .by = p->identity.who,
                                       .reason = why ? why : end_reason(p)});
}

static void note_violation(struct peer *p, const char *rule)
{
        server_note(p->server, &(struct event_note){.kind = EVENT_VIOLATION,
                                       .tenant = p->tenancy ? p->tenancy->config.name : NULL,
                                       .by = p->identity.who,
                                       .reason = rule});
}

void peer_update_rights(struct peer *p)
{
        const struct tenant_config *config = p->tenancy ? &p->tenancy->config : NULL;
        struct creds c = {0};
        bool may = true;

        if (!config || !p->member)
                return;
        if (access_has_publishers(config)) {
                may = p->conn.fd >= 0 && creds_get(p->conn.fd, &c) == 0 &&
                      access_may_publish(config, &c);
                creds_deinit(&c);
        }
        if (may == p->member->read_only)
                member_set_read_only(p->member, !may);
}

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

static void await_hello(struct peer *p)
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
                look_at(list_first(&turn, struct peer, links.unread));
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

/* ---- the end --------------------------------------------------------------------------------- */

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
                flush_peer(p);
}

/* ---- its connection -------------------------------------------------------------------------- */

void peer_unref(struct peer *p)
{
        if (--p->refs > 0)
                return;
        assert(p->state == PEER_GONE);
        free(p->refusal.detail);
        free(p->resumption.missed);
        free(p);
}

static void on_closed(uv_handle_t *handle)
{
        peer_unref(handle->data);
}

/* Closes a handle, which has a reference. */
static void close_handle(struct peer *p, uv_poll_t *poll)
{
        poll->data = p;
        uv_close((uv_handle_t *)poll, on_closed);
}

void peer_close_socket(struct peer *p)
{
        if (p->conn.socket_open)
                close_handle(p, &p->conn.socket);
        p->conn.socket_open = false;
        endings_close(
                p->server, &p->conn.inbound, fd_take(&p->conn.fd), p->tenancy, p->conn.listener_id);
        outqueue_clear(&p->out);
        if (p->conn.parser)
                frame_parser_deinit(p->conn.parser);
        free(p->conn.parser);
        p->conn.parser = NULL;
}

static void close_process(struct peer *p)
{
        if (p->conn.process_open)
                close_handle(p, &p->conn.process);
        p->conn.process_open = false;
        p->conn.pidfd = fd_close(p->conn.pidfd);
}

void peer_introduced(struct peer *p)
{
        p->times.state_nsec = clock_now_nsec();
        p->input.is_overdue = false;
        list_remove(&p->links.hello);
}

/* Frees the pages that the peer's member held, and tells the rest of its group. */
static void end_member(struct peer *p)
{
        struct member *m = p->member;
        struct state_serving was;

        if (!m)
                return;
        was = serving_begin(p);
        p->member = NULL;
        events_member_left(m);
        /* Its sessions were used until then. */
        store_set_now(&p->server->store, server_now(p->server));
        member_leave(m);
        idle_sets_drain(&p->server->store);
        serving_end(p->server, was);
        loop_kick(&p->server->loop);
        p->server->peers.wiring->on_member_end(p->server);
}

void peer_stop_waiting(struct peer *p)
{
        pending_drop_all(p);
        if (p->member)
                member_withdraw(p->member);
}

/* Counts the peer as waiting to resume, or no more. */
static void count_adopted(struct peer *p, bool is_adopted)
{
        p->server->peers.n_adopted += is_adopted - p->resumption.adopted;
        if (p->tenancy)
                p->tenancy->n_adopted += is_adopted - p->resumption.adopted;
        p->resumption.adopted = is_adopted;
}

void peer_retire(struct peer *p, enum peer_state state)
{
        p->state = state;
        p->times.state_nsec = clock_now_nsec();
        peer_stop_waiting(p);
        peer_close_socket(p);
        close_process(p);
        count_adopted(p, false);
        list_remove(&p->links.backlog);
        list_remove(&p->links.unread);
        pending_recount(p);
        peers_note_drained(p->server);
}

void peer_end(struct peer *p)
{
        struct server *s = p->server;

        if (p->state == PEER_GONE)
                return;
        if (p->member)
                peer_note_end(p, NULL);
        p->state = PEER_GONE;
        if (task_is_queued(&p->leaving))
                task_remove(&p->leaving, p->tenancy->tenant);
        peer_stop_waiting(p);
        peer_close_socket(p);
        close_process(p);
        end_member(p);
        ring_close(&p->ring);
        resume_drop(p);
        pending_recount(p);
        count_adopted(p, false);
        if (p->tenancy)
                p->tenancy->n_peers--;
        p->tenancy = NULL;
        s->peers.n_peers--;
        s->peers.n_refused -= p->refusal.code != 0;
        s->peers.n_monitors -= p->kind == LISTEN_MONITOR;
        list_remove(&p->links.all);
        list_remove(&p->links.backlog);
        list_remove(&p->links.hello);
        list_remove(&p->links.unread);
        list_remove(&p->links.linger);
        peers_note_drained(s);
        if (p->kind == LISTEN_ADMIN && s->life.serving)
                (void)admin_fds_hold(s);
        peer_unref(p);
}

static int watch_process(struct peer *p)
{
        int r = uv_poll_init(&p->server->loop.uv, &p->conn.process, p->conn.pidfd);

        if (r < 0)
                return r;
        p->conn.process_open = true;
        p->refs++;
        return uv_poll_start(&p->conn.process, UV_READABLE, peer_exit_seen);
}

static int start_handles(struct peer *p)
{
        uv_loop_t *loop = &p->server->loop.uv;
        int r = uv_poll_init(loop, &p->conn.socket, p->conn.fd);

        if (r < 0)
                return r;
        p->conn.socket_open = true;
        p->refs++;
        return p->conn.pidfd < 0 ? 0 : watch_process(p);
}

static struct peer *peer_alloc(struct server *s, const struct peer_origin *origin)
{
        struct peer *p = calloc(1, sizeof(*p));

        if (!p)
                return NULL;
        p->conn.parser = malloc(sizeof(*p->conn.parser));
        p->refusal.detail = origin->refuse_code ? strdup(origin->refuse_detail) : NULL;
        if (!p->conn.parser || (origin->refuse_code && !p->refusal.detail)) {
                free(p->conn.parser);
                free(p->refusal.detail);
                free(p);
                return NULL;
        }
        frame_parser_init(p->conn.parser);
        outqueue_init(&p->out);
        p->server = s;
        p->refs = 1;
        p->id = ++s->peers.last_id;
        p->conn.version = PROTO_VERSION_MAX;
        p->times.connected_nsec = p->times.state_nsec = p->times.heard_nsec = clock_now_nsec();
        p->kind = origin->kind;
        p->conn.listener_id = origin->listener_id;
        p->identity.pid = origin->pid;
        p->identity.uid = origin->uid;
        p->challenge.by_number = origin->by_number;
        p->input.drain_left = SHM_SUB_ENTRIES;
        p->refusal.code = origin->refuse_code;
        p->tenancy = origin->refuse_code ? NULL : origin->tenancy;
        peer_set_who(p);
        list_init(&p->links.all);
        list_init(&p->links.backlog);
        list_init(&p->links.hello);
        list_init(&p->links.unread);
        list_init(&p->links.linger);
        task_init(&p->leaving);
        list_init(&p->links.parked);
        list_init(&p->links.due);
        pending_init(p);
        return p;
}

/* True if the peer's later input waits for the answer to a request. */
static bool waits_for_answer(const struct peer *p)
{
        return peer_awaits_drop(p) || p->waits[PENDING_TENANT].n > 0;
}

/* Registers for the events that the flags require; no system call if they didn't change. */
static void update_poll(struct peer *p)
{
        /* A hang-up of an unread peer that waits for a paused tenant is seen when it is served. */
        bool waits = turns_are_paused(p) && !list_is_empty(&p->links.backlog);
        int events = waits ? 0 : UV_DISCONNECT;

        if (!p->held && !waits && !waits_for_answer(p) && !p->conn.inbound.tainted)
                events |= UV_READABLE;
        if (!p->out.starved && !outqueue_is_held(&p->out, keeping_passed(p->server)))
                events |= UV_WRITABLE;
        if (events == p->conn.socket_events)
                return;
        p->conn.socket_events = events;
        uv_poll_start(&p->conn.socket, events, on_socket);
}

int peer_new(struct server *s, const struct peer_origin *origin, int fd, int pidfd,
        struct peer **ret_peer)
{
        struct peer *p = peer_alloc(s, origin);
        int r;

        if (!p) {
                endings_refuse(s, fd, origin->listener_id);
                fd_close(pidfd);
                return -ENOMEM;
        }
        p->conn.fd = fd;
        p->conn.pidfd = pidfd;
        list_append(&s->peers.list, &p->links.all);
        s->peers.n_peers++;
        s->peers.n_refused += p->refusal.code != 0;
        s->peers.n_monitors += p->kind == LISTEN_MONITOR;
        if (p->tenancy)
                p->tenancy->n_peers++;
        r = inbound_init(&p->conn.inbound, fd);
        if (r == 0)
                r = start_handles(p);
        if (r < 0) {
                peer_end(p);
                return r;
        }
        await_hello(p);
        update_poll(p);
        *ret_peer = p;
        return 0;
}

int peer_adopt(
        struct server *s, const struct peer_origin *origin, int pidfd, struct peer **ret_peer)
{
        struct peer *p = peer_alloc(s, origin);
        int r;

        if (!p) {
                fd_close(pidfd);
                return -ENOMEM;
        }
        p->conn.fd = -1;
        p->conn.pidfd = pidfd;
        p->state = PEER_WAITING;
        count_adopted(p, true);
        peer_close_socket(p); /* no room: the parser is reset */
        list_append(&s->peers.list, &p->links.all);
        s->peers.n_peers++;
        p->tenancy->n_peers++;
        r = pidfd < 0 ? 0 : watch_process(p);
        if (r < 0) {
                peer_end(p);
                return r;
        }
        *ret_peer = p;
        return 0;
}

void peer_schedule(struct peer *p)
{
        if (p->state == PEER_GONE)
                return;
        if (p->tenancy)
                turns_queue(p);
        else if (list_is_empty(&p->links.backlog))
                list_append(&p->server->peers.backlog, &p->links.backlog);
        loop_kick(&p->server->loop);
}

void peer_close(struct peer *p)
{
        p->state = PEER_CLOSING;
        peer_schedule(p);
}

/* Drains all further input of the peer. */
static void mute_peer(struct peer *p)
{
        if (!p->muted)
                p->times.state_nsec = clock_now_nsec();
        p->muted = true;
        p->held = false;
        if (p->member)
                client_mute(p->member);
}

void peer_violation(struct peer *p, const char *rule)
{
        p->counts.n_violations++;
        p->server->peers.n_violations++;
        calls_note_violation(&p->server->calls, rule);
        note_violation(p, rule);
        if (log_first_of(rule)) {
                char pid[16];

                snprintf(pid, sizeof(pid), "%d", (int)p->identity.pid);
                log_message(LOG_VIOLATION,
                        LOG_FIELDS({"RULE", rule}, {"PEER_PID", pid},
                                {"TENANT", p->tenancy ? p->tenancy->config.name : ""}),
                        "process %s broke the protocol (%s) and is %s; more of this kind is only counted",
                        pid, rule,
                        peer_holds_memory(p) ? "ignored until it exits" : "disconnected");
        }
        outqueue_clear(&p->out);
        if (peer_holds_memory(p))
                mute_peer(p);
        else
                p->doomed = true;
        peer_schedule(p);
}

/* Counts replies delayed because the kernel has too many descriptors in flight, of all peers. */
static void note_starved(struct peer *p)
{
        p->server->peers.n_starved++;
        if (log_first_of("fds-under-way"))
                log_warning("too many file descriptors are under way to clients that do not read: "
                            "replies wait until some are taken; raise LimitNOFILE of kvleased");
}

void peer_send(struct peer *p, const void *frame, size_t len, int *fds, unsigned n_fds)
{
        bool is_mute = p->muted || p->doomed || p->broken || p->conn.fd < 0;
        uint64_t ticket;
        int r;

        if (is_mute) {
                for (unsigned i = 0; i < n_fds; i++)
                        fd_close(fds[i]);
                return;
        }
        ticket = peer_is_watcher(p) ? 0 : keeping_ticket(p->server);
        if (ticket > 0)
                r = outqueue_hold(&p->out, ticket, frame, len, fds, n_fds);
        else
                r = outqueue_send(&p->out, p->conn.fd, frame, len, fds, n_fds);
        if (r == -ENOBUFS) {
                peer_violation(p, "not-reading");
        } else if (r < 0) {
                p->broken = true;
                outqueue_clear(&p->out);
        } else if (p->out.starved)
                note_starved(p);
        if (r < 0 || !outqueue_is_empty(&p->out))
                peer_schedule(p);
        pending_check(p);
}

/* True if received frames may be handled now. */
static bool may_handle(struct peer *p)
{
        if (p->muted || p->doomed || waits_for_answer(p) || p->state == PEER_CLOSING ||
                !p->conn.parser)
                return false;
        pending_recount(p);
        p->held = p->out.bytes > pending_hold_bytes(p) ||
                  (p->out.n_fds_unread >= OUTQUEUE_MAX_UNREAD_FDS && !p->broken &&
                          outqueue_unread_fds(&p->out, p->conn.fd) >= OUTQUEUE_MAX_UNREAD_FDS);
        return !p->held;
}

void peer_process_frames(struct peer *p, unsigned max)
{
        const char *rule = "bad-frame";
        struct frame f;

        p->input.backed_up = false;
        for (unsigned i = 0; may_handle(p); i++) {
                int r;

                if (i == max || (i > 0 && max < UINT32_MAX && !turns_go_on(p)) ||
                        !has_submitted_first(p)) {
                        p->input.backed_up = true;
                        peer_schedule(p);
                        return;
                }
                r = frame_parser_next(p->conn.parser, &f, &rule);
                if (r < 0)
                        peer_violation(p, rule);
                if (r <= 0)
                        return;
                p->server->peers.wiring->on_frame(p, &f);
        }
}

bool peer_receive(struct peer *p)
{
        struct sock_creds *creds = p->state == PEER_AUTH ? &p->challenge.sent_creds : NULL;
        ssize_t n;

        if (p->conn.inbound.tainted)
                return false;
        if (p->muted || p->state == PEER_CLOSING)
                frame_parser_deinit(p->conn.parser); /* drained and ignored */
        n = inbound_receive(&p->conn.inbound, p->conn.fd, p->conn.parser, creds);
        if (n == -EAGAIN || n == -ENOBUFS)
                return false;
        if (n == -EPROTO)
                peer_violation(p, "fds");
        else if (n <= 0)
                p->input.hung_up = true;
        return n > 0;
}

/* False while output is unsent or descriptors aren't taken: after a BYE the next connection would
 * leave more. */
static bool may_close(struct peer *p)
{
        return outqueue_is_empty(&p->out) && outqueue_unread_fds(&p->out, p->conn.fd) == 0;
}

/* True if the peer waits for a state without an event. */
static bool needs_a_look(const struct peer *p)
{
        return p->out.starved || (p->out.n_fds_unread > 0 && (p->held || p->state == PEER_CLOSING));
}

void peer_end_turn(struct peer *p)
{
        if (p->state == PEER_GONE || peer_is_waiting(p) || p->exited)
                return;
        if (p->input.hung_up || p->broken)
                pending_drop(p, PENDING_LEASE);
        else if (p->muted || p->doomed)
                peer_stop_waiting(p);
        if (p->input.hung_up || p->broken) {
                p->broken = true; /* replies to drained input are dropped */
                outqueue_clear(&p->out);
                peer_hang_up(p);
                return;
        }
        if (p->doomed || (p->state == PEER_CLOSING && may_close(p))) {
                peer_leave(p);
                return;
        }
        pending_recount(p);
        update_poll(p);
        if (needs_a_look(p))
                peer_look_later(p);
}

static void flush_output(struct peer *p)
{
        if (outqueue_flush(&p->out, p->conn.fd, keeping_passed(p->server)) < 0)
                p->broken = true;
        pending_recount(p);
        if (outqueue_is_empty(&p->out))
                peers_note_drained(p->server);
        /* Frames waited behind unread output, and leases wait behind others. */
        if (p->held && p->out.bytes <= OUTQUEUE_HOLD_BYTES)
                peer_schedule(p);
}

static void on_socket(uv_poll_t *handle, int status, int events)
{
        struct peer *p = container_of(handle, struct peer, conn.socket);

        turn_watch_wake(&p->server->turn_watch);
        p->refs++;
        if (status < 0)
                p->input.hung_up = true;
        if (events & UV_WRITABLE)
                flush_output(p);
        if (events & UV_READABLE)
                p->input.readable = true;
        else if (events & UV_DISCONNECT)
                p->input.hung_up = true;
        if (!p->tenancy) {
                peer_turn(p);
        } else {
                turns_queue(p);
                update_poll(p);
        }
        peer_unref(p);
}

static void flush_peer(struct peer *p)
{
        if (outqueue_is_empty(&p->out))
                return;
        flush_output(p);
        peer_schedule(p);
}

static void look_at(struct peer *p)
{
        p->refs++;
        list_remove(&p->links.unread);
        if (p->out.starved)
                flush_output(p);
        peer_schedule(p);
        peer_unref(p);
}

/* Ends a late peer whose earlier input was handled. Exception: that was its HELLO and it must prove
 * its identity; then it gets the same time again. */
static void end_overdue(struct peer *p, enum peer_state was)
{
        if (p->input.backed_up || waits_for_answer(p))
                return;
        p->input.is_overdue = false;
        if (p->state == PEER_AUTH && was == PEER_NEW)
                await_hello(p);
        else
                p->doomed = true;
}

void peer_turn(struct peer *p)
{
        enum peer_state was = p->state;
        bool readable = p->input.readable;

        p->server->peers.wiring->on_visit(p->server);
        p->refs++;
        p->input.readable = false;
        list_remove(&p->links.backlog);
        peer_take_submissions(p, PEER_SUBMISSIONS_PER_TURN);
        if (pending_go_on(p, PENDING_LEASE, PEER_FRAMES_PER_TURN))
                peer_schedule(p);
        /* While frames wait for the next turn, no more are received. */
        if (readable && !p->input.hung_up && !p->input.backed_up && !waits_for_answer(p) &&
                p->conn.fd >= 0)
                peer_receive(p);
        peer_process_frames(p, PEER_FRAMES_PER_TURN);
        if (p->input.is_overdue)
                end_overdue(p, was);
        peer_end_turn(p);
        peer_unref(p);
}

void peer_feed(struct peer *p, const uint8_t *data, size_t n)
{
        p->refs++;
        while (n > 0 && p->conn.parser && !p->doomed && !p->muted && p->state != PEER_CLOSING) {
                size_t room;
                uint8_t *space;

                peer_process_frames(p, UINT32_MAX);
                if (!p->conn.parser || p->held || p->doomed)
                        break;
                space = frame_parser_space(p->conn.parser, &room);
                room = MIN(room, n);
                if (room == 0)
                        break;
                memcpy(space, data, room);
                frame_parser_fed(p->conn.parser, room, NULL, 0);
                data += room;
                n -= room;
        }
        peer_process_frames(p, UINT32_MAX);
        peer_end_turn(p);
        peer_unref(p);
}

const char *peer_state_name(const struct peer *p)
{
        if (p->state == PEER_WAITING && p->resumption.adopted && !p->muted)
                return "waiting to resume";
        if (p->state == PEER_WAITING)
                return "waiting for exit";
        if (p->state == PEER_LINGERING)
                return "dead, grace";
        if (p->state == PEER_LEAVING)
                return "leaving";
        if (p->muted)
                return "muted";
        if (p->held)
                return "not reading";
        return p->state == PEER_ACTIVE ? "active" : "new";
}
