/*
 * Resuming after a restart of the daemon.
 *
 *   UP -> AWAY         it hung up
 *   AWAY -> RESUMING   a try connected: HELLO (with the old id and its secret), AUTH if asked,
 *                      conn_side.resume's messages, RESUMED
 *   RESUMING -> UP     RESUMED was answered: pending requests are resent with their old numbers
 *   RESUMING -> AWAY   it hung up again, or refused for now
 *   any -> broken      it refused for good, or was away for too long
 *
 * The thread that does the connection's work does this, too: the reader (conn.h), or
 * conn_dispatch() if there is none. Connecting to a Unix socket doesn't block, and between tries no
 * thread holds the lock. Frames that were half sent or half received are forgotten on both sides.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/timerfd.h>

#include "base/fault-point.h"
#include "base/fd.h"
#include "base/macros.h"
#include "client/lib/connection/conn-impl.h"
#include "client/lib/connection/error.h"
#include "proto/sock.h"
#include "proto/status.h"

/* Between tries: a restart takes some ten ms, a failed one seconds. Not tuned. */
#define FIRST_WAIT_NSEC (10 * NSEC_PER_MSEC)
#define MAX_WAIT_NSEC   NSEC_PER_SEC

#define LOST                                                                                    \
        "kvleased was started without what the one before it knew of this connection: what is " \
        "mapped "                                                                               \
        "stays readable, connect anew"

/* ---- what may be asked twice -------------------------------------------------------------------
 */

/* Before it answers HELLO, the daemon undoes pending requests whose results were never received:
 * opened namespaces, leased pages. Requests of types that aren't listed here are resent:
 * - NS_OPEN, NS_SHARE, SHM_OPEN, MAP, LEASE and SESSION_OPEN get their result anew.
 * - ANNOUNCE, too, as a restart ends announcements.
 * - EXPLAIN, PROBE_HOSTS and WAIT change nothing. IMPORT and SESSION_LOAD bring only what is
 *   missing.
 * - INVALIDATE, SESSION_TRUNCATE, SESSION_KEEP and REPORT drop and count only what is still there.
 *   REPORT is LOST if it continues a forgotten message.
 * - LOOKUP and SESSION_PAGES pin anew. Pins of the first time stay until the namespace is closed.
 */
static const struct {
        uint16_t type;
        enum conn_again again;
} rules[] = {
        /* These end something that the daemon may have ended already. */
        {MSG_RELEASE, CONN_AGAIN_GONE},
        {MSG_FREE, CONN_AGAIN_GONE},
        {MSG_NS_CLOSE, CONN_AGAIN_GONE},
        {MSG_SESSION_CLOSE, CONN_AGAIN_GONE},
        {MSG_UNMAPPED, CONN_AGAIN_GONE},
        /* Pages that this client published under the key stay so; the reply names the pins to
         * release. */
        {MSG_PUBLISH, CONN_AGAIN_LATE},
        /* Hints, and BYE. */
        {MSG_REQUEST_END, CONN_AGAIN_LATE},
        {MSG_SESSION_HINT, CONN_AGAIN_LATE},
        {MSG_EXPECT, CONN_AGAIN_LATE},
        {MSG_NOTE_PREFILL, CONN_AGAIN_LATE},
        {MSG_BYE, CONN_AGAIN_LATE},
};

enum conn_again conn_again(uint16_t type)
{
        for (size_t i = 0; i < ARRAY_SIZE(rules); i++)
                if (rules[i].type == type)
                        return rules[i].again;
        return CONN_AGAIN;
}

/* ---- being polled ------------------------------------------------------------------------------
 */

int conn_poll_fd(const struct conn *c)
{
        if (c->broken)
                return -1;
        return c->poll.fd >= 0 ? c->poll.fd : c->fd;
}

static int add_to_poll(struct conn *c, int fd)
{
        struct epoll_event event = {.events = EPOLLIN};

        return epoll_ctl(c->poll.fd, EPOLL_CTL_ADD, fd, &event) < 0 ? -errno : 0;
}

static void watch_output(struct conn *c)
{
        bool wants = conn_has_unsent(c);
        struct epoll_event event = {.events = EPOLLIN | (wants ? EPOLLOUT : 0)};

        if (c->link == CONN_AWAY || wants == c->poll.waits_for_output)
                return;
        /* This can't fail: the descriptor is in the set. */
        epoll_ctl(c->poll.fd, EPOLL_CTL_MOD, c->fd, &event);
        c->poll.waits_for_output = wants;
}

/* When conn_dispatch() has work, apart from the socket: 0 (now), a time, or CONN_FOREVER. */
static uint64_t next_work(const struct conn *c)
{
        if (c->broken || conn_has_finished(c))
                return 0;
        return c->link == CONN_UP ? CONN_FOREVER : c->resume.wake_at;
}

void conn_watch(struct conn *c)
{
        struct itimerspec spec = {0};
        uint64_t at;

        if (c->poll.fd < 0)
                return;
        if (!c->broken)
                watch_output(c);
        at = next_work(c);
        if (at == c->poll.timer_at)
                return;
        if (at != CONN_FOREVER)
                spec.it_value = conn_timespec(MAX(at, (uint64_t)1)); /* 0 would stop it */
        timerfd_settime(c->poll.timer_fd, TFD_TIMER_ABSTIME, &spec, NULL);
        c->poll.timer_at = at;
}

static int open_poll(struct conn *c)
{
        int r;

        c->poll.fd = epoll_create1(EPOLL_CLOEXEC);
        if (c->poll.fd < 0)
                return -errno;
        c->poll.timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
        r = c->poll.timer_fd < 0 ? -errno : add_to_poll(c, c->poll.timer_fd);
        return r < 0 ? r : add_to_poll(c, c->fd);
}

int conn_make_pollable(struct conn *c)
{
        int r = open_poll(c);

        if (r == 0)
                return 0;
        c->poll.fd = fd_close(c->poll.fd);
        c->poll.timer_fd = fd_close(c->poll.timer_fd);
        return error_set(r, "can't watch the connection to kvleased: %s", status_text(r));
}

int conn_outlive(struct conn *c, const char *path, const struct conn_hello *hello,
        const struct conn_welcome *welcome, int patience_msec)
{
        struct conn_resume *resume = &c->resume;
        char *copy = strdup(path);

        if (!copy)
                return error_set(-ENOMEM, "out of memory");
        resume->is_on = true;
        resume->path = copy;
        snprintf(resume->name, sizeof(resume->name), "%s", hello->client_name);
        resume->metadata_only = hello->metadata_only;
        resume->has_safepoints = hello->has_safepoints;
        resume->client_id = welcome->client_id;
        memcpy(resume->token, welcome->resume_token, sizeof(resume->token));
        resume->patience_nsec =
                patience_msec < 0 ? CONN_FOREVER : (uint64_t)patience_msec * NSEC_PER_MSEC;
        resume->random = clock_now_nsec() ^ welcome->client_id << 32;
        return 0;
}

/* ---- away --------------------------------------------------------------------------------------
 */

uint64_t conn_back_off(unsigned n_tries, uint64_t random)
{
        uint64_t most = MAX_WAIT_NSEC;

        if (n_tries <= 7) /* 10 ms doubled 7 times exceeds the maximum */
                most = MIN(most, FIRST_WAIT_NSEC << (n_tries - 1));
        return most / 2 + random % (most / 2 + 1);
}

/* xorshift64 (Marsaglia, 2003), so that clients of a restarted daemon return at different times. */
static uint64_t next_random(struct conn_resume *resume)
{
        resume->random |= 1;
        resume->random ^= resume->random << 13;
        resume->random ^= resume->random >> 7;
        resume->random ^= resume->random << 17;
        return resume->random;
}

static uint64_t add_time(uint64_t at, uint64_t nsec)
{
        return nsec == CONN_FOREVER ? CONN_FOREVER : at + nsec;
}

void conn_end_resuming(struct conn *c)
{
        list_for_each_safe (call, &c->resume.calls, struct conn_call, link) {
                list_remove(&call->link);
                free(call);
        }
}

/* Drops queued recalls: the new daemon repeats them. */
static void drop_recalls(struct conn *c)
{
        unsigned n = c->events.n, end = 0;

        for (unsigned i = 0; i < n; i++) {
                struct conn_event *e = &c->events.ring[(c->events.begin + i) % CONN_MAX_EVENTS];

                if (e->type == MSG_RECALL)
                        continue;
                if (end != i)
                        c->events.ring[(c->events.begin + end) % CONN_MAX_EVENTS] = *e;
                end++;
        }
        c->events.n = end;
}

/* The connection was UP. */
static void begin_absence(struct conn *c)
{
        struct conn_resume *resume = &c->resume;
        uint64_t now = clock_now_nsec();

        resume->give_up_at = add_time(now, resume->patience_nsec);
        resume->wake_at = now;
        resume->n_tries = 0;
        /* If BACK wasn't reported yet, AWAY needn't be either. */
        resume->tells_away |= !resume->tells_back;
        resume->tells_back = false;
        drop_recalls(c);
        if (c->side.away)
                c->side.away(c->side.data);
}

static void plan_next_try(struct conn_resume *resume)
{
        uint64_t wait = conn_back_off(++resume->n_tries, next_random(resume));

        resume->wake_at = MIN(clock_now_nsec() + wait, resume->give_up_at);
}

void conn_go_away(struct conn *c, const char *why)
{
        bool was_up = c->link == CONN_UP;

        snprintf(c->resume.why, sizeof(c->resume.why), "%s", why);
        /* Explicitly: the socket would stay in the set if a forked child has a copy of it. */
        epoll_ctl(c->poll.fd, EPOLL_CTL_DEL, c->fd, NULL);
        shutdown(c->fd, SHUT_RDWR);
        conn_end_resuming(c);
        conn_drop_output(c);
        frame_parser_deinit(&c->in);
        frame_parser_init(&c->in);
        c->events.is_stalled = false;
        c->link = CONN_AWAY;
        if (was_up)
                begin_absence(c);
        else
                plan_next_try(&c->resume);
        conn_watch(c);
}

/* ---- resuming ----------------------------------------------------------------------------------
 */

/* The daemon refused. Some reasons are temporary. */
static void take_refusal(struct conn *c, int code, const char *detail)
{
        switch (code) {
        case -ESTALE:
                conn_break(c, -ESTALE, *detail ? detail : LOST);
                break;
        case -EINVAL:
        case -EMSGSIZE:
        case -EPROTO:
        case -EOPNOTSUPP:
        case KVL_STATUS_VERSION:
                conn_break(c, -ENOTCONN, *detail ? detail : status_text(code));
                break;
        default:
                conn_go_away(c, *detail ? detail : status_text(code));
        }
}

/* Starts a call of the connection's own. */
static int start_own_call(
        struct conn *c, uint16_t type, const ProtobufCMessage *m, conn_reply_fn on_reply)
{
        struct conn_call *call = calloc(1, sizeof(*call));
        int r;

        if (!call)
                return -ENOMEM;
        call->on_reply = on_reply;
        /* May find that the daemon hung up, which ends and frees the call. */
        r = conn_start_on(c, &c->resume.calls, call, type, m);
        if (r < 0)
                free(call);
        return r;
}

static void on_told(struct conn *c, struct conn_call *call, int code, const ProtobufCMessage *reply,
        struct frame *frame)
{
        /* A lost session is noticed when it is used. */
        if (code != 0 && call->type == MSG_RESUME_NS)
                take_refusal(c, -ESTALE, call->detail);
        free(call);
}

int conn_tell(struct conn *c, uint16_t type, const ProtobufCMessage *m)
{
        /* The daemon is gone again: nothing to tell. */
        if (c->link != CONN_RESUMING)
                return 0;
        return start_own_call(c, type, m, on_told);
}

static void on_resumed(struct conn *c, struct conn_call *call, int code,
        const ProtobufCMessage *reply, struct frame *frame)
{
        struct conn_resume *resume = &c->resume;

        if (code != 0) {
                take_refusal(c, code, call->detail);
                free(call);
                return;
        }
        free(call);
        FAULT_POINT("resume-known");
        resume->tells_back = true;
        conn_send_again(c);
        if (c->link == CONN_UP && c->side.back)
                c->side.back(c->side.data);
        FAULT_POINT("resume-sent-again");
        conn_watch(c);
}

static void tell_all(struct conn *c)
{
        Kvlease__V1__ResumedRequest m = KVLEASE__V1__RESUMED_REQUEST__INIT;
        int r;

        /* The daemon knows both tokens by now, and forgets the old one with RESUMED. */
        memcpy(c->resume.token, c->resume.next_token, CONN_TOKEN_BYTES);
        r = c->side.resume ? c->side.resume(c->side.data) : 0;
        FAULT_POINT("resume-told");
        if (r == 0 && c->link == CONN_RESUMING)
                r = start_own_call(c, MSG_RESUMED, &m.base, on_resumed);
        if (r < 0 && !c->broken)
                conn_break(c, r, "out of memory while telling kvleased what is in use");
}

static void on_auth(struct conn *c, struct conn_call *call, int code, const ProtobufCMessage *reply,
        struct frame *frame)
{
        if (code != 0)
                take_refusal(c, code, call->detail);
        else
                tell_all(c);
        free(call);
}

static void on_challenge(struct conn *c, struct conn_call *call, int code,
        const ProtobufCMessage *event, struct frame *frame)
{
        const Kvlease__V1__ChallengeEvent *challenge = (const Kvlease__V1__ChallengeEvent *)event;
        Kvlease__V1__AuthRequest m = KVLEASE__V1__AUTH_REQUEST__INIT;

        free(call);
        if (challenge->nonce.len != CONN_NONCE_BYTES) {
                conn_break(c, -EPROTO, "kvleased sent a challenge of a wrong size");
                return;
        }
        m.nonce = challenge->nonce;
        if (start_own_call(c, MSG_AUTH, &m.base, on_auth) < 0)
                conn_go_away(c, "out of memory while answering kvleased");
}

/* Registers the challenge under number 0, which no request has. */
static int expect_challenge(struct conn *c)
{
        struct conn_call *call = calloc(1, sizeof(*call));

        if (!call)
                return -ENOMEM;
        call->on_reply = on_challenge;
        list_append(&c->resume.calls, &call->link);
        return 0;
}

static void on_hello(struct conn *c, struct conn_call *call, int code,
        const ProtobufCMessage *reply, struct frame *frame)
{
        const Kvlease__V1__HelloReply *m = (const Kvlease__V1__HelloReply *)reply;
        const char *wrong = code == 0 ? conn_check_hello(m) : NULL;

        FAULT_POINT("resume-answered");
        if (code != 0) {
                take_refusal(c, code, call->detail);
        } else if (wrong) {
                conn_break(c, -EPROTO, wrong);
        } else if (m->client_id != c->resume.client_id || m->resume_token.len == 0) {
                take_refusal(c, -ESTALE, "");
        } else {
                c->version = (uint16_t)m->version;
                memcpy(c->resume.next_token, m->resume_token.data, CONN_TOKEN_BYTES);
                if (!m->auth_required)
                        tell_all(c);
                else if (expect_challenge(c) < 0)
                        conn_go_away(c, "out of memory while answering kvleased");
        }
        free(call);
}

/* Numbers of calls that the previous daemon may have begun: owned, *ret_n of them. */
static uint64_t *list_pending(const struct conn *c, size_t *ret_n)
{
        uint64_t *pending;
        size_t n = 0;

        list_for_each (call, &c->calls, struct conn_call, link)
                n += call->was_sent;
        pending = malloc((n + 1) * sizeof(*pending));
        *ret_n = 0;
        list_for_each (call, &c->calls, struct conn_call, link)
                if (pending && call->was_sent)
                        pending[(*ret_n)++] = call->seq;
        return pending;
}

static int start_hello(
        struct conn *c, struct conn_call *call, uint16_t type, const ProtobufCMessage *m)
{
        return conn_start_on(c, &c->resume.calls, call, type, m);
}

static int say_hello(struct conn *c)
{
        struct conn_hello hello = {
                .client_name = c->resume.name,
                .metadata_only = c->resume.metadata_only,
                .has_safepoints = c->resume.has_safepoints,
                .resume_client = c->resume.client_id,
                .resume_token = c->resume.token,
        };
        _cleanup_free_ uint64_t *pending = list_pending(c, &hello.n_pending);
        struct conn_call *call = calloc(1, sizeof(*call));
        int r = -ENOMEM;

        if (pending && call) {
                call->on_reply = on_hello;
                hello.pending = pending;
                r = conn_send_hello(c, call, &hello, start_hello);
        }
        if (r < 0)
                free(call);
        return r;
}

static void try_once(struct conn *c)
{
        int r;

        /* c->fd is never a closed number: a forked child would close another file by it. */
        fd_close(fd_take(&c->fd));
        c->fd = sock_connect(c->resume.path);
        r = c->fd < 0 ? c->fd : add_to_poll(c, c->fd);
        if (r < 0) {
                snprintf(c->resume.why, sizeof(c->resume.why), "can't connect to %s: %s",
                        c->resume.path, status_text(r));
                plan_next_try(&c->resume);
                conn_watch(c);
                return;
        }
        FAULT_POINT("resume-connected");
        c->link = CONN_RESUMING;
        c->poll.waits_for_output = false;
        /* The daemon may take its time. */
        c->resume.wake_at = c->resume.give_up_at;
        r = say_hello(c);
        if (r < 0)
                conn_go_away(c, "out of memory while calling kvleased again");
        conn_watch(c);
}

static void give_up(struct conn *c)
{
        char why[CONN_DETAIL_BYTES];

        snprintf(why, sizeof(why),
                "kvleased didn't come back within %llu ms (%.512s): connect anew",
                (unsigned long long)(c->resume.patience_nsec / NSEC_PER_MSEC), c->resume.why);
        conn_break(c, -ENOTCONN, why);
}

void conn_come_back(struct conn *c)
{
        uint64_t now;

        if (c->link == CONN_UP || c->broken)
                return;
        now = clock_now_nsec();
        if (now >= c->resume.give_up_at)
                give_up(c);
        /* Else the thread that polls the socket, or sleeps until then, does it. */
        else if (c->link == CONN_AWAY && now >= c->resume.wake_at && !c->has_reader &&
                 !c->has_writer)
                try_once(c);
}
