#include "client/ctl/admin.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/macros.h"
#include "client/ctl/slow-answer.h"
#include "client/lib/connection/conn.h"
#include "client/lib/connection/error.h"
#include "proto/status.h"

/* Time-out of connecting and of each answer. Not tuned; meanwhile the state checker may walk all
 * pages. */
#define ADMIN_TIMEOUT_SEC 30

/* Longest time that the daemon holds a request of admin_follow(). */
#define FOLLOW_SEC 20

/* Wait for a restarted daemon, and between tries. Not tuned: a restart takes less. */
#define COME_BACK_SEC   5
#define COME_BACK_PAUSE 50 /* ms */

struct admin {
        const char *path;  /* borrowed */
        struct conn *conn; /* owned */
        struct conn_welcome welcome;
        struct arena arena; /* the last reply */
};

static uint64_t answer_deadline(void)
{
        return clock_now_nsec() + ADMIN_TIMEOUT_SEC * NSEC_PER_SEC;
}

/* ---- waiting --------------------------------------------------------------------------------- */

int admin_connect(const char *path, uint64_t until_nsec, struct conn **ret_conn)
{
        struct slow_answer slow;
        int r;

        slow_answer_begin(&slow, path, -1, SLOW_ANSWER_NSEC, until_nsec);
        r = conn_open(path, until_nsec, ret_conn);
        slow_answer_end(&slow);
        return r;
}

/* Does conn_request() until ADMIN_TIMEOUT_SEC; the answer is late after late_nsec. */
static int request_late(struct admin *a, uint16_t type, const ProtobufCMessage *request,
        uint64_t late_nsec, const ProtobufCMessage **ret_reply)
{
        uint64_t until_nsec = answer_deadline();
        struct slow_answer slow;
        int r;

        slow_answer_begin(&slow, a->path, a->conn->fd, late_nsec, until_nsec);
        r = conn_request(a->conn, type, request, &a->arena, until_nsec, ret_reply);
        slow_answer_end(&slow);
        return r;
}

/* ---- failures -------------------------------------------------------------------------------- */

static int fail_connect(const char *path, int r)
{
        switch (r) {
        case -EACCES:
        case -EPERM:
                return fail(CTL_UNREACHABLE,
                        "permission denied on %s: join group kvlease-admin (or kvlease-monitor, to read), or use sudo",
                        path);
        case -ENOENT:
                return fail(CTL_UNREACHABLE,
                        "there is no socket %s: is kvleased running? systemctl start kvleased, or name its socket with --socket",
                        path);
        case -ECONNREFUSED:
                return fail(CTL_UNREACHABLE,
                        "no process listens on %s: is kvleased running? systemctl start kvleased",
                        path);
        case -ETIMEDOUT:
                return fail(CTL_TIMEOUT, "%s", error_get());
        default:
                return fail(CTL_UNREACHABLE, "%s", error_get());
        }
}

/* Returns the verb that shows whether a request was executed. NULL: it only reads. */
static const char *verb_to_look_with(uint16_t type)
{
        switch (type) {
        case MSG_ADMIN_PROCESS:
        case MSG_ADMIN_STATUS:
        case MSG_ADMIN_DEVICES:
        case MSG_ADMIN_TENANTS:
        case MSG_ADMIN_NAMESPACES:
        case MSG_ADMIN_CLIENTS:
        case MSG_ADMIN_CHECK:
        case MSG_ADMIN_REGIONS:
        case MSG_ADMIN_EVICTIONS:
        case MSG_ADMIN_EVENTS:
        case MSG_ADMIN_SESSIONS:
        case MSG_ADMIN_EXPLAIN:
        case MSG_ADMIN_SETS:
        case MSG_ADMIN_CODECS:
        case MSG_ADMIN_EXCHANGES:
        case MSG_ADMIN_REMOTES:
        case MSG_ADMIN_COUNTERS:
        case MSG_ADMIN_CONFIG:
                return NULL;
        case MSG_ADMIN_TENANT_SET:
        case MSG_ADMIN_TENANT_REMOVE:
                return "tenants";
        case MSG_ADMIN_PURGE:
        case MSG_ADMIN_WARM:
                return "namespaces";
        case MSG_ADMIN_RECALL:
                return "regions";
        case MSG_ADMIN_SESSION_PURGE:
                return "sessions";
        default:
                return "status";
        }
}

/* Prints why no answer came. */
static int fail_unanswered(const struct admin *a, int r)
{
        switch (r) {
        case -ETIMEDOUT:
                return fail(CTL_TIMEOUT,
                        "no answer on %s within %ds: the outcome is unknown, see kvleased's log",
                        a->path, ADMIN_TIMEOUT_SEC);
        case -EMSGSIZE:
                return fail(CTL_USAGE, "the request is larger than a frame (%d KiB): split it",
                        FRAME_MAX_SIZE / 1024);
        case -EPROTO:
                return fail(CTL_UNREACHABLE, "bad answer on %s (%s): is it kvleased?", a->path,
                        error_get());
        default:
                return fail(CTL_UNREACHABLE, "the connection on %s broke (%s): see kvleased's log",
                        a->path, error_get());
        }
}

static int fail_protocol(const struct admin *a, const char *what)
{
        return fail_unanswered(a, error_set(-EPROTO, "%s", what));
}

static int hello(struct admin *a, uint64_t until_nsec)
{
        struct slow_answer slow;
        int r;

        slow_answer_begin(&slow, a->path, a->conn->fd, SLOW_ANSWER_NSEC, until_nsec);
        r = conn_hello(a->conn, &(struct conn_hello){.client_name = "kvleasectl"}, until_nsec,
                &a->welcome);
        slow_answer_end(&slow);
        return r;
}

/* Judges HELLO's result: CTL_OK, or the failure is printed. */
static int check_hello(const struct admin *a, int r)
{
        if (r > 0 || r == -EACCES || r == -EMFILE || r == -ENOENT)
                return fail(CTL_REFUSED, "%s", error_get());
        if (r < 0)
                return fail_unanswered(a, r);
        if (a->welcome.tenant[0])
                return fail(CTL_UNREACHABLE,
                        "%s is the socket of tenant %s, not the admin socket: name admin.sock",
                        a->path, a->welcome.tenant);
        return CTL_OK;
}

/* ---- calls ----------------------------------------------------------------------------------- */

/* The daemon went away before it answered: the outcome is unknown. */
static int fail_unknown(const char *look_with)
{
        return fail(CTL_UNREACHABLE,
                "the outcome is unknown, since kvleased exited before it answered: see kvleasectl %s",
                look_with);
}

/* Connects anew to a daemon that may be restarting. Returns CTL_OK, or as admin_open(). */
static int come_back(struct admin *a, uint64_t until_nsec)
{
        struct conn *conn;
        int r = admin_connect(a->path, until_nsec, &conn);

        while ((r == -ENOENT || r == -ECONNREFUSED) && clock_now_nsec() < until_nsec) {
                poll(NULL, 0, COME_BACK_PAUSE);
                r = admin_connect(a->path, until_nsec, &conn);
        }
        if (r < 0)
                return fail_connect(a->path, r);
        conn_close(a->conn);
        a->conn = conn;
        r = hello(a, until_nsec);
        /* A stored socket takes connections without a daemon. */
        return r == -ETIMEDOUT
                       ? fail(CTL_TIMEOUT, "kvleased didn't start again in time: see its log")
                       : check_hello(a, r);
}

int admin_await_next(struct admin *a, uint64_t until_nsec)
{
        uint64_t now = clock_now_nsec(), left_nsec = minus_u64(until_nsec, now);
        struct pollfd p = {conn_poll_fd(a->conn), POLLRDHUP, 0};

        if (poll(&p, 1, (int)MIN(left_nsec / NSEC_PER_MSEC, (uint64_t)INT_MAX)) <= 0)
                return fail(CTL_TIMEOUT, "kvleased didn't end in time: see its log");
        return come_back(a, until_nsec);
}

/* Returns CTL_OK, or CTL_REFUSED with the daemon's sentence printed. */
static int take_reply(
        uint16_t type, const ProtobufCMessage *reply, const ProtobufCMessage **ret_reply)
{
        const Kvlease__V1__SimpleReply *m = (const Kvlease__V1__SimpleReply *)reply;

        if (m->status == WIRE_OK) {
                *ret_reply = reply;
                return CTL_OK;
        }
        if (m->detail[0])
                return fail(CTL_REFUSED, "%s", m->detail);
        return fail(CTL_REFUSED, "kvleased refused %s: %s", msg_find(type)->name,
                status_text(status_from_wire(m->status)));
}

/* Tries once. Returns true with *ret as the result; false: no daemon is there yet. */
static bool try_next(struct admin *a, int *ret)
{
        struct conn *conn;
        int r = admin_connect(a->path, answer_deadline(), &conn);

        if (r == -ENOENT || r == -ECONNREFUSED || r == -ETIMEDOUT)
                return false;
        if (r < 0) {
                *ret = fail_connect(a->path, r);
                return true;
        }
        conn_close(a->conn);
        a->conn = conn;
        r = hello(a, answer_deadline());
        if (r == -ECONNRESET) /* that daemon was ending itself */
                return false;
        *ret = check_hello(a, r);
        return true;
}

int admin_follow(struct admin *a, uint16_t type, const ProtobufCMessage *request,
        const ProtobufCMessage **ret_reply)
{
        uint64_t epoch = a->welcome.boot_epoch;
        const ProtobufCMessage *reply = NULL;
        int r = request_late(
                a, type, request, FOLLOW_SEC * NSEC_PER_SEC + SLOW_ANSWER_NSEC, &reply);

        *ret_reply = NULL;
        if (r == -ECONNRESET) {
                fprintf(stderr, "kvleasectl: kvleased has exited: waiting for the next one\n");
                while (!try_next(a, &r))
                        poll(NULL, 0, COME_BACK_PAUSE);
                if (r == CTL_OK)
                        fprintf(stderr, "kvleasectl: kvleased is back%s\n",
                                a->welcome.boot_epoch != epoch ? ", and was restarted" : "");
                return r;
        }
        if (!reply)
                return fail_unanswered(a, r);
        return take_reply(type, reply, ret_reply);
}

uint64_t admin_boot_epoch(const struct admin *a)
{
        return a->welcome.boot_epoch;
}

int admin_ask(struct admin *a, uint16_t type, const ProtobufCMessage *request, uint32_t *ret_status,
        const ProtobufCMessage **ret_reply)
{
        const char *look_with = verb_to_look_with(type);
        const ProtobufCMessage *reply = NULL;
        int back, r = request_late(a, type, request, SLOW_ANSWER_NSEC, &reply);

        if (r == -ECONNRESET && look_with)
                return fail_unknown(look_with);
        /* Once only: a request that kills the daemon isn't repeated for ever. */
        if (r == -ECONNRESET) {
                back = come_back(a, clock_now_nsec() + COME_BACK_SEC * NSEC_PER_SEC);
                if (back != CTL_OK)
                        return back;
                r = request_late(a, type, request, SLOW_ANSWER_NSEC, &reply);
        }
        if (!reply)
                return fail_unanswered(a, r);
        /* Every reply starts like SimpleReply (client/lib asserts it). */
        *ret_status = ((const Kvlease__V1__SimpleReply *)reply)->status;
        *ret_reply = reply;
        return CTL_OK;
}

int admin_call(struct admin *a, uint16_t type, const ProtobufCMessage *request,
        const ProtobufCMessage **ret_reply)
{
        const ProtobufCMessage *reply = NULL;
        uint32_t status;
        int r = admin_ask(a, type, request, &status, &reply);

        return r == CTL_OK ? take_reply(type, reply, ret_reply) : r;
}

/* ---- lists ----------------------------------------------------------------------------------- */

struct rows {
        const char *row; /* the first one */
        size_t n;
        uint64_t next;
};

static int list_page(struct admin *a, const struct noun *noun, const char *tenant, uint64_t after,
        struct rows *ret)
{
        Kvlease__V1__AdminListRequest request = KVLEASE__V1__ADMIN_LIST_REQUEST__INIT;
        const ProtobufCMessage *reply = NULL;
        const void *rows = NULL;
        int r;

        request.tenant = (char *)(tenant ? tenant : "");
        request.after = after;
        r = admin_call(a, noun->type, &request.base, &reply);
        if (r != CTL_OK)
                return r;
        ret->next = ((const Kvlease__V1__AdminRowsReply *)reply)->next;
        if (ret->next && ret->next <= after)
                return fail_protocol(a, "a list that goes in circles");
        if (figures_read((const Kvlease__V1__AdminRowsReply *)reply, noun->figures, &a->arena,
                    &rows, &ret->n) < 0)
                return fail_protocol(a, "another list than the one asked for");
        ret->row = rows;
        return CTL_OK;
}

int admin_each(struct admin *a, const struct noun *noun, const char *tenant,
        void (*take)(const void *row, void *data), void *data)
{
        struct rows rows = {.next = 0};

        do {
                int r = list_page(a, noun, tenant, rows.next, &rows);

                if (r != CTL_OK)
                        return r;
                for (size_t i = 0; i < rows.n; i++)
                        take(rows.row + i * noun->figures->size, data);
        } while (rows.next);
        return CTL_OK;
}

static void add_to_list(const void *row, void *data)
{
        show_list_add(data, row);
}

int admin_list(struct admin *a, const struct noun *noun, const char *tenant, struct show_list *l)
{
        return admin_each(a, noun, tenant, add_to_list, l);
}

int admin_first(struct admin *a, const struct noun *noun, const char *tenant, const void **ret_row)
{
        struct rows rows;
        int r = list_page(a, noun, tenant, 0, &rows);

        if (r == CTL_OK)
                *ret_row = rows.n ? rows.row : NULL;
        return r;
}

int admin_status(struct admin *a, const struct figures_status **ret_status)
{
        const void *row;
        int r = admin_first(a, &noun_status, NULL, &row);

        if (r == CTL_OK && !row)
                return fail_protocol(a, "a status without figures");
        if (r == CTL_OK)
                *ret_status = row;
        return r;
}

/* ---- opening --------------------------------------------------------------------------------- */

int admin_open(const char *path, struct admin **ret_admin)
{
        struct conn *conn;
        struct admin *a;
        int r = admin_connect(path, answer_deadline(), &conn);

        if (r < 0)
                return fail_connect(path, r);
        a = need(calloc(1, sizeof(*a)));
        a->path = path;
        a->conn = conn;
        if (arena_init(&a->arena, ARENA_BUDGET_BYTES) < 0)
                need(NULL);
        r = check_hello(a, hello(a, answer_deadline()));
        if (r != CTL_OK)
                admin_close(a);
        else
                *ret_admin = a;
        return r;
}

void admin_close(struct admin *a)
{
        if (!a)
                return;
        conn_close(a->conn);
        arena_deinit(&a->arena);
        free(a);
}

const char *admin_daemon_version(const struct admin *a)
{
        return a->welcome.daemon_version;
}

uint32_t admin_protocol(const struct admin *a)
{
        return a->conn->version;
}
