#include "client/lib/connection/conn-impl.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "base/fault-point.h"
#include "base/fd.h"
#include "base/macros.h"
#include "client/lib/connection/error.h"
#include "proto/sock.h"
#include "proto/status.h"

/* Between tries while the listener's queue is full; not tuned. */
#define CONNECT_RETRY_MSEC 10

/* Every reply begins with these fields, so that status and detail can be read from any. */
typedef Kvlease__V1__SimpleReply any_reply;

#define ASSERT_BEGINS_AS_ANY_REPLY(type)                                              \
        _Static_assert(offsetof(type, status) == offsetof(any_reply, status) &&       \
                               offsetof(type, detail) == offsetof(any_reply, detail), \
                #type)

ASSERT_BEGINS_AS_ANY_REPLY(Kvlease__V1__HelloReply);
ASSERT_BEGINS_AS_ANY_REPLY(Kvlease__V1__CountReply);
ASSERT_BEGINS_AS_ANY_REPLY(Kvlease__V1__NsOpenReply);
ASSERT_BEGINS_AS_ANY_REPLY(Kvlease__V1__MapReply);
ASSERT_BEGINS_AS_ANY_REPLY(Kvlease__V1__LeaseReply);
ASSERT_BEGINS_AS_ANY_REPLY(Kvlease__V1__PublishReply);
ASSERT_BEGINS_AS_ANY_REPLY(Kvlease__V1__LookupReply);
ASSERT_BEGINS_AS_ANY_REPLY(Kvlease__V1__AdminRowsReply);
ASSERT_BEGINS_AS_ANY_REPLY(Kvlease__V1__AdminCheckReply);

uint64_t conn_deadline(int timeout_msec)
{
        if (timeout_msec < 0)
                return CONN_FOREVER;
        return clock_now_nsec() + (uint64_t)timeout_msec * NSEC_PER_MSEC;
}

uint32_t conn_msec_until(uint64_t deadline_nsec)
{
        uint64_t left = minus_u64(deadline_nsec, clock_now_nsec());

        return (uint32_t)((left + NSEC_PER_MSEC - 1) / NSEC_PER_MSEC);
}

static void set_detail(char ret_detail[CONN_DETAIL_BYTES], const char *detail)
{
        snprintf(ret_detail, CONN_DETAIL_BYTES, "%s", detail);
}

/* ---- the end -----------------------------------------------------------------------------------
 */

void conn_finish(struct conn *c, struct conn_call *call, int code)
{
        if (call->is_done)
                return;
        call->code = code;
        call->is_done = true;
        if (call->on_done)
                list_append(&c->finished, &call->link);
        else if (call->waiter)
                conn_wake(c, &call->waiter->wakeup);
}

static int free_late(struct conn_call *call)
{
        free(call);
        return 0;
}

/* No caller waits for the call. */
static bool is_late(const struct conn_call *call)
{
        return call->on_done == free_late;
}

/* Frees the request's frame, which isn't needed any more. */
static void drop_frame(struct conn *c, struct conn_call *call)
{
        c->resume.n_late_frames -= call->frame && is_late(call);
        free(call->frame);
        call->frame = NULL;
}

static void deliver_reply(struct conn *c, struct conn_call *call, int code,
        const ProtobufCMessage *reply, struct frame *frame)
{
        list_remove(&call->link);
        drop_frame(c, call);
        if (call->on_reply)
                call->on_reply(c, call, code, reply, frame);
        else
                conn_finish(c, call, code);
}

void conn_break(struct conn *c, int code, const char *why)
{
        struct conn_call *call;

        if (c->broken)
                return;
        c->broken = code;
        set_detail(c->detail, why);
        /* Ends the polls of other threads; the number stays ours until conn_close(). */
        shutdown(c->fd, SHUT_RDWR);
        conn_drop_output(c);
        while ((call = list_first(&c->calls, struct conn_call, link))) {
                set_detail(call->detail, why);
                deliver_reply(c, call, code, NULL, NULL);
        }
        conn_end_resuming(c);
        c->resume.n_waiting_bytes = 0;
        if (c->side.broken)
                c->side.broken(c->side.data, code, c->detail);
}

void conn_finish_violated(struct conn *c, struct conn_call *call, const char *what)
{
        set_detail(call->detail, what);
        conn_finish(c, call, -EPROTO);
        conn_break(c, -EPROTO, what);
}

/* The socket is lost: the connection goes away or breaks. */
static void lose_socket(struct conn *c, int error, const char *why)
{
        if (c->resume.is_on && !c->broken && error == -ECONNRESET)
                conn_go_away(c, why);
        else
                conn_break(c, error, why);
}

static void lose_by_errno(struct conn *c, int error)
{
        char why[CONN_DETAIL_BYTES];

        snprintf(why, sizeof(why), "the connection to kvleased broke: %s", status_text(error));
        lose_socket(c, error, why);
}

/* ---- output ------------------------------------------------------------------------------------
 */

/* Makes room for a whole frame after the unsent bytes, so that it's packed in place. */
static int reserve_output(struct conn_output *out)
{
        size_t have = out->end - out->begin;
        uint8_t *data;

        if (out->size - out->end >= FRAME_MAX_SIZE)
                return 0;
        /* Bytes are moved only once as many were sent: much may be unsent. */
        if (out->begin >= have) {
                if (have > 0)
                        memmove(out->data, out->data + out->begin, have);
                out->begin = 0;
                out->end = have;
        }
        if (out->size - out->end >= FRAME_MAX_SIZE)
                return 0;
        data = realloc(out->data, 2 * out->size + FRAME_MAX_SIZE);
        if (!data)
                return -ENOMEM;
        out->data = data;
        out->size = 2 * out->size + FRAME_MAX_SIZE;
        return 0;
}

/* All is sent: shrinks a large buffer. */
static void trim_output(struct conn_output *out)
{
        uint8_t *data;

        if (out->size <= CONN_KEEP_OUTPUT_BYTES)
                return;
        data = realloc(out->data, CONN_KEEP_OUTPUT_BYTES);
        if (!data)
                return;
        out->data = data;
        out->size = CONN_KEEP_OUTPUT_BYTES;
}

void conn_flush(struct conn *c)
{
        struct conn_output *out = &c->out;

        while (out->begin < out->end) {
                ssize_t n =
                        sock_send(c->fd, out->data + out->begin, out->end - out->begin, NULL, 0);

                if (n == -EAGAIN)
                        return;
                if (n == -EPIPE || n == -ECONNRESET) {
                        /* The daemon hung up, but its earlier answers can still be read. After the
                         * shutdown the reader surely finds the end behind them. */
                        shutdown(c->fd, SHUT_RDWR);
                        return;
                }
                if (n < 0) {
                        lose_by_errno(c, (int)n);
                        return;
                }
                out->begin += (size_t)n;
                c->n_sent += (uint64_t)n;
        }
        out->begin = out->end = 0;
        trim_output(out);
}

/* Packs a frame after the unsent bytes, and doesn't count it yet. Returns its bytes, or -errno. */
static int pack_frame(struct conn *c, uint16_t type, uint16_t flags, const ProtobufCMessage *m)
{
        int r;

        if (c->broken)
                return -ENOTCONN;
        r = reserve_output(&c->out);
        if (r < 0)
                return r;
        return msg_pack(c->out.data + c->out.end, c->version, type, flags, c->next_seq, 0, m);
}

/* Queues the packed frame. */
static void queue_packed(struct conn *c, size_t bytes)
{
        c->out.end += bytes;
        c->n_queued += bytes;
}

static void begin_call(
        struct conn *c, struct list_link *list, struct conn_call *call, uint16_t type)
{
        call->seq = c->next_seq++;
        call->type = type;
        call->sent_at = c->n_queued;
        call->on_abandon = NULL;
        call->was_sent = call->outlived = false;
        call->is_done = false;
        call->detail[0] = '\0';
        list_append(list, &call->link);
}

int conn_start_on(struct conn *c, struct list_link *list, struct conn_call *call, uint16_t type,
        const ProtobufCMessage *m)
{
        int r = pack_frame(c, type, 0, m);

        if (r < 0)
                return r;
        queue_packed(c, (size_t)r);
        begin_call(c, list, call, type);
        conn_flush(c);
        return 0;
}

#define NOT_OUT UINT64_MAX /* sent_at of a call whose frame isn't in the output */

/* Keeps a copy of the packed frame, which has `bytes`. */
static int keep_frame(struct conn *c, struct conn_call *call, size_t bytes)
{
        call->frame = malloc(sizeof(*call->frame) + bytes);
        if (!call->frame)
                return -ENOMEM;
        call->frame->bytes = bytes;
        memcpy(call->frame->data, c->out.data + c->out.end, bytes);
        c->resume.n_late_frames += is_late(call);
        return 0;
}

int conn_start(struct conn *c, struct conn_call *call, uint16_t type, const ProtobufCMessage *m)
{
        bool is_up = c->link == CONN_UP;
        int bytes = pack_frame(c, type, 0, m), r = MIN(bytes, 0);

        call->frame = NULL;
        if (r == 0 && c->resume.is_on)
                r = keep_frame(c, call, (size_t)bytes);
        if (r < 0) {
                set_detail(call->detail, c->broken ? c->detail : "");
                return r;
        }
        if (is_up)
                queue_packed(c, (size_t)bytes);
        begin_call(c, &c->calls, call, type);
        if (!is_up) {
                call->sent_at = NOT_OUT;
                c->resume.n_waiting_bytes += (size_t)bytes;
                return 0;
        }
        /* May break the connection, which finishes the call: it still counts as started. */
        conn_flush(c);
        return 0;
}

void conn_start_beside(
        struct conn *c, struct conn_call *call, void (*on_abandon)(struct conn_call *call))
{
        call->on_abandon = on_abandon;
        list_init(&call->link);
        call->sent_at = c->n_queued;
        call->is_done = false;
        call->detail[0] = '\0';
}

/* ---- input -------------------------------------------------------------------------------------
 */

/* Replies mostly come in the order of requests, so the first call mostly matches. */
static struct conn_call *find_call(struct conn *c, uint64_t seq)
{
        struct list_link *calls = c->link == CONN_UP ? &c->calls : &c->resume.calls;

        list_for_each (call, calls, struct conn_call, link)
                if (call->seq == seq)
                        return call;
        return NULL;
}

static struct conn_event *add_event(struct conn *c, uint16_t type, uint32_t ns_id)
{
        struct conn_event *event =
                &c->events.ring[(c->events.begin + c->events.n) % CONN_MAX_EVENTS];

        *event = (struct conn_event){.type = type, .ns_id = ns_id};
        c->events.n++;
        return event;
}

static void handle_notice(struct conn *c, const Kvlease__V1__NoticeEvent *m)
{
        struct conn_event *event = add_event(c, MSG_NOTICE, m->ns_id);

        event->kind = m->kind;
        event->client_id = m->client_id;
        set_detail(event->detail, m->detail);
}

static void handle_recall(struct conn *c, const Kvlease__V1__RecallEvent *m)
{
        struct conn_event *event = add_event(c, MSG_RECALL, m->ns_id);

        event->set_index = m->set_index;
        event->timeout_msec = m->timeout_msec;
        event->is_idle = m->idle;
}

static void handle_event(struct conn *c, struct frame *f, const ProtobufCMessage *m)
{
        struct conn_call *challenged;

        if (f->header.type == MSG_NOTICE) {
                handle_notice(c, (const Kvlease__V1__NoticeEvent *)m);
                return;
        }
        if (f->header.type == MSG_RECALL) {
                handle_recall(c, (const Kvlease__V1__RecallEvent *)m);
                return;
        }
        /* conn_side.look looks at the completions anyway. */
        if (f->header.type == MSG_RING)
                return;
        /* conn_hello() waits for it under number 0, which no request has. */
        challenged = find_call(c, 0);
        if (challenged)
                deliver_reply(c, challenged, 0, m, f);
}

static void handle_reply(struct conn *c, struct frame *f, const ProtobufCMessage *m)
{
        const any_reply *reply = (const any_reply *)m;
        struct conn_call *call = find_call(c, f->header.seq);
        int code;

        if (!call || call->type != f->header.type) {
                conn_break(c, -EPROTO, "kvleased sent a reply without a request");
                return;
        }
        code = status_from_wire(reply->status);
        set_detail(call->detail, reply->detail);
        if (call->outlived && conn_again(call->type) == CONN_AGAIN_GONE &&
                (code == -EINVAL || code == -ENOENT))
                code = 0;
        deliver_reply(c, call, code, m, f);
}

static void handle_frame(struct conn *c, struct frame *f)
{
        const struct msg_info *info = msg_find(f->header.type);
        bool is_event = f->header.flags == FRAME_EVENT;
        const ProtobufCMessage *m;

        /* An event that this build doesn't know is no error. */
        if (!info && is_event)
                return;
        if (!info || is_event != !info->request || !is_event != (f->header.flags == FRAME_REPLY) ||
                f->header.fd_count > info->max_reply_fds) {
                conn_break(c, -EPROTO, "kvleased sent a frame that is no reply and no event");
                return;
        }
        m = msg_unpack(info->reply, &c->arena, f->payload, f->header.length);
        if (!m)
                conn_break(c, -EPROTO, "kvleased sent a message that can't be read");
        else if (is_event)
                handle_event(c, f, m);
        else
                handle_reply(c, f, m);
        arena_reset(&c->arena);
}

void conn_take_frames(struct conn *c)
{
        char why[CONN_DETAIL_BYTES];
        const char *rule;
        struct frame f;
        int r = 0;

        c->events.is_stalled = false;
        while (!c->broken && !c->events.is_stalled) {
                r = frame_parser_next(&c->in, &f, &rule);
                if (r <= 0)
                        break;
                handle_frame(c, &f);
                frame_close_fds(&f);
                c->events.is_stalled = c->events.n == CONN_MAX_EVENTS;
        }
        if (r < 0) {
                snprintf(why, sizeof(why), "kvleased broke the protocol: %s", rule);
                conn_break(c, -EPROTO, why);
        }
}

bool conn_receive(struct conn *c)
{
        ssize_t n;

        if (c->events.is_stalled || c->broken || c->link == CONN_AWAY)
                return false;
        n = sock_receive(c->fd, &c->in);
        if (n == -EAGAIN)
                return false;
        if (n == 0)
                lose_socket(c, -ECONNRESET, "kvleased closed the connection");
        else if (n == -EMFILE)
                conn_break(c, -EMFILE,
                        "this process can't take the file descriptors of memory that kvleased sent: raise its limit (ulimit -n, LimitNOFILE)");
        else if (n < 0)
                lose_by_errno(c, (int)n);
        else
                conn_take_frames(c);
        return true;
}

/* ---- late calls --------------------------------------------------------------------------------
 */

static void handle_late(struct conn *c, struct conn_call *call, int code,
        const ProtobufCMessage *reply, struct frame *frame)
{
        conn_reply_fn fn = TAKE(call->on_late);

        if (fn)
                fn(c, call, code, reply, frame);
        else
                conn_finish(c, call, code);
}

/* Starts a call that is late from the start. */
static int start_forgotten(struct conn *c, uint16_t type, const ProtobufCMessage *m)
{
        struct conn_call *call = calloc(1, sizeof(*call));
        int r;

        if (!call)
                return -ENOMEM;
        call->on_reply = handle_late;
        call->on_done = free_late;
        r = conn_start(c, call, type, m);
        if (r < 0)
                free(call);
        return r;
}

int conn_notify(struct conn *c, uint16_t type, const ProtobufCMessage *m)
{
        int r;

        /* Only requests with replies are resent. */
        if (c->resume.is_on && (c->link != CONN_UP || conn_again(type) == CONN_AGAIN_GONE))
                return start_forgotten(c, type, m);
        r = pack_frame(c, type, FRAME_NO_REPLY, m);
        if (r < 0)
                return r;
        queue_packed(c, (size_t)r);
        c->next_seq++;
        conn_flush(c);
        return 0;
}

void conn_abandon(struct conn *c, struct conn_call *call)
{
        struct conn_call *late;

        if (call->is_done)
                return;
        if (call->on_abandon) {
                call->on_abandon(call);
                return;
        }
        /* The daemon is away, and the request wasn't sent: drop it. */
        if (call->sent_at == NOT_OUT && !call->was_sent && conn_again(call->type) == CONN_AGAIN) {
                c->resume.n_waiting_bytes -= call->frame->bytes;
                list_remove(&call->link);
                drop_frame(c, call);
                return;
        }
        late = calloc(1, sizeof(*late));
        if (!late) {
                /* Its reply would later pass for a violation, and end the connection anyway. */
                conn_break(c, -ENOMEM, "out of memory while a call timed out");
                return;
        }
        *late = (struct conn_call){
                .on_reply = handle_late,
                .on_done = free_late,
                .on_late = call->on_late,
                .cookie = call->cookie,
                .seq = call->seq,
                .sent_at = call->sent_at,
                .frame = TAKE(call->frame),
                .type = call->type,
                .was_sent = call->was_sent,
                .outlived = call->outlived,
        };
        c->resume.n_late_frames += late->frame != NULL;
        list_insert_before(&call->link, &late->link);
        list_remove(&call->link);
}

void conn_forget_cookie(struct conn *c, const void *cookie)
{
        list_for_each (call, &c->calls, struct conn_call, link)
                if (is_late(call) && call->cookie == cookie)
                        call->on_late = NULL;
}

/* ---- after a restart of the daemon -------------------------------------------------------------
 */

void conn_drop_output(struct conn *c)
{
        c->out.begin = c->out.end = 0;
        c->resume.n_waiting_bytes = 0;
        list_for_each (call, &c->calls, struct conn_call, link) {
                if (!call->frame)
                        continue;
                call->was_sent |= !conn_is_unsent(c, call);
                call->sent_at = NOT_OUT;
                c->resume.n_waiting_bytes += call->frame->bytes;
        }
        c->n_sent = c->n_queued;
}

/* The first call that isn't resent; NULL: none. */
static struct conn_call *find_done_with(struct conn *c)
{
        list_for_each (call, &c->calls, struct conn_call, link)
                if (conn_again(call->type) == CONN_AGAIN && is_late(call))
                        return call;
        return NULL;
}

void conn_send_again(struct conn *c)
{
        struct conn_call *done_with;

        /* Late calls were undone, as HELLO named them as pending. If one goes on by another
         * request, that is sent below. */
        while ((done_with = find_done_with(c)))
                deliver_reply(c, done_with, -ECONNRESET, NULL, NULL);
        if (c->broken)
                return;
        c->link = CONN_UP;
        list_for_each (call, &c->calls, struct conn_call, link) {
                if (reserve_output(&c->out) < 0) {
                        conn_break(c, -ENOMEM, "out of memory while calling kvleased again");
                        return;
                }
                memcpy(c->out.data + c->out.end, call->frame->data, call->frame->bytes);
                queue_packed(c, call->frame->bytes);
                call->sent_at = c->n_queued;
                call->outlived = true;
                FAULT_POINT("resume-queued");
        }
        c->resume.n_waiting_bytes = 0;
        conn_flush(c);
}

/* ---- life --------------------------------------------------------------------------------------
 */

static int connect_error(const char *path, int error)
{
        bool is_default = strcmp(path, conn_socket_path(NULL)) == 0;

        switch (error) {
        case -ENOENT:
        case -ECONNREFUSED:
                return error_set(error,
                        "no kvleased listens at %s: start it (systemctl start kvleased) or %s",
                        path, is_default ? "set KVLEASE_SOCKET" : "name another socket");
        case -EACCES:
        case -EPERM:
                return error_set(-EACCES,
                        "permission denied on %s: join the group that owns its directory, or ask for a tenant's socket",
                        path);
        case -ENAMETOOLONG:
                return error_set(error,
                        "the socket path %s is longer than the 107 bytes of a Unix address: use a shorter one",
                        path);
        case -ETIMEDOUT:
                return error_set(error,
                        "kvleased at %s takes no connections: is it stopped or overloaded?", path);
        default:
                return error_set(error, "can't connect to %s: %s", path, status_text(error));
        }
}

static int connect_until(const char *path, uint64_t deadline_nsec)
{
        for (;;) {
                int fd = sock_connect(path);

                /* A Unix listener with a full queue can't be polled for room: try again. */
                if (fd != -EAGAIN)
                        return fd;
                if (clock_now_nsec() >= deadline_nsec)
                        return -ETIMEDOUT;
                poll(NULL, 0, CONNECT_RETRY_MSEC);
        }
}

static int init_buffers(struct conn *c)
{
        int r = arena_init(&c->arena, ARENA_BUDGET_BYTES);

        if (r < 0)
                return r;
        r = reserve_output(&c->out);
        if (r < 0)
                arena_deinit(&c->arena);
        return r;
}

static struct conn *conn_new(void)
{
        struct conn *c = calloc(1, sizeof(*c));

        if (!c)
                return NULL;
        if (init_buffers(c) < 0) {
                free(c);
                return NULL;
        }
        pthread_mutex_init(&c->lock, NULL);
        pthread_mutex_init(&c->sleep_lock, NULL);
        frame_parser_init(&c->in);
        list_init(&c->calls);
        list_init(&c->finished);
        list_init(&c->waiters);
        list_init(&c->resume.calls);
        c->fd = c->poll.fd = c->poll.timer_fd = -1;
        c->poll.timer_at = CONN_FOREVER;
        c->version = PROTO_VERSION_MAX;
        c->next_seq = 1;
        return c;
}

const char *conn_socket_path(const char *given)
{
        const char *variable = secure_getenv("KVLEASE_SOCKET");

        if (given)
                return given;
        return variable && *variable ? variable : "/run/kvlease/sock";
}

int conn_open(const char *path, uint64_t deadline_nsec, struct conn **ret_conn)
{
        struct conn *c = conn_new();

        if (!c)
                return error_note(-ENOMEM, "out of memory");
        c->fd = connect_until(path, deadline_nsec);
        if (c->fd < 0) {
                int r = connect_error(path, c->fd);

                conn_close(c);
                return r;
        }
        *ret_conn = c;
        return 0;
}

static void forget_calls(struct conn *c, struct list_link *calls)
{
        list_for_each_safe (call, calls, struct conn_call, link) {
                list_remove(&call->link);
                drop_frame(c, call);
                if (is_late(call))
                        free(call);
        }
}

void conn_close(struct conn *c)
{
        if (!c)
                return;
        /* Against the rules, other threads are inside: keep the memory that they use. */
        if (!list_is_empty(&c->waiters) || c->has_reader)
                return;
        forget_calls(c, &c->calls);
        forget_calls(c, &c->finished);
        conn_end_resuming(c);
        frame_parser_deinit(&c->in);
        fd_close(c->fd);
        fd_close(c->poll.fd);
        fd_close(c->poll.timer_fd);
        free(c->resume.path);
        free(c->out.data);
        arena_deinit(&c->arena);
        pthread_mutex_destroy(&c->sleep_lock);
        pthread_mutex_destroy(&c->lock);
        free(c);
}

void conn_close_in_child(struct conn *c)
{
        /* Another thread of the parent may have held the lock, or been in the middle of a change:
         * only the descriptors can be trusted here. */
        c->fd = fd_close(c->fd);
        c->poll.fd = fd_close(c->poll.fd);
        c->poll.timer_fd = fd_close(c->poll.timer_fd);
}
