#include "client/ctl/admin.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/macros.h"
#include "base/thread.h"
#include "client/ctl/ctl.h"
#include "client/lib/connection/conn.h"
#include "client/lib/connection/error.h"
#include "proto/status.h"

/* ---- answers that come late ------------------------------------------------------------------ */

/*
 * Prints a sentence on stderr if kvleased takes long to answer, so that kvleasectl doesn't seem to
 * hang. It has the socket, kvleased's pid if known, how long kvleasectl waits, and what to do.
 *
 * The caller blocks in a call that knows nothing of this, so a thread prints. Each caller has its
 * own wait, and there may be many at a time. At most one sentence is printed in 30 s.
 */
/* Answers that take longer are late. A person's patience; not tuned. */
#define SLOW_ANSWER_NSEC NSEC_PER_SEC

struct slow_answer {
        pthread_t thread;
        pthread_mutex_t lock;
        pthread_cond_t changed;
        bool is_watched, is_over;
        const char *path;
        int fd;
        uint64_t late_nsec, until_nsec, since_nsec;
};

/* Between two sentences. Not tuned. */
#define AGAIN_NSEC (30 * NSEC_PER_SEC)

#define STAT_MAX 4096 /* /proc/PID/stat has some 400 bytes */

static atomic_bool is_hushed;
static _Atomic uint64_t said_nsec; /* 0: nothing yet */

/* ---- the process ----------------------------------------------------------------------------- */

/* Returns 'R', 'S', 'D', 'T' and so on of /proc; '\0': there is no such process, or it isn't
 * kvleased. */
static char kvleased_state(pid_t pid)
{
        static const char name[] = "(kvleased) ";
        _cleanup_free_ char *text = NULL, *path = NULL;
        const char *at;
        size_t len;

        if (pid <= 0 || asprintf(&path, "/proc/%d/stat", (int)pid) < 0)
                return '\0';
        if (file_read(path, STAT_MAX, &text, &len) < 0)
                return '\0';
        at = strstr(text, name);
        return at ? at[sizeof(name) - 1] : '\0';
}

/* Returns the process that made the socket: kvleased, systemd, or an ended one, which left it to
 * kvleased. */
static pid_t socket_maker(int fd)
{
        struct ucred cred = {0};
        socklen_t len = sizeof(cred);

        if (fd < 0 || getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &len) < 0)
                return 0;
        return cred.pid;
}

/* Returns the pid in the lock file beside the socket, which root may read. */
static pid_t lock_holder(const char *path)
{
        const char *slash = strrchr(path, '/');
        _cleanup_free_ char *lock = NULL, *text = NULL;
        size_t len;

        if (asprintf(&lock, "%.*slock", slash ? (int)(slash + 1 - path) : 0, path) < 0)
                need(NULL);
        return file_read(lock, STAT_MAX, &text, &len) < 0 ? 0 : (pid_t)strtol(text, NULL, 10);
}

/* Returns 0 if unknown. */
static pid_t find_kvleased(const struct slow_answer *s, char *ret_state)
{
        pid_t pid = socket_maker(s->fd);

        *ret_state = kvleased_state(pid);
        if (*ret_state)
                return pid;
        pid = lock_holder(s->path);
        *ret_state = kvleased_state(pid);
        return *ret_state ? pid : 0;
}

/* ---- the sentence ---------------------------------------------------------------------------- */

static bool may_say(uint64_t now)
{
        uint64_t before = atomic_load(&said_nsec);

        return !atomic_load(&is_hushed) && (before == 0 || now - before > AGAIN_NSEC) &&
               atomic_compare_exchange_strong(&said_nsec, &before, now);
}

static uint64_t round_seconds(uint64_t nsec)
{
        return (nsec + NSEC_PER_SEC / 2) / NSEC_PER_SEC;
}

static void say(const struct slow_answer *s)
{
        uint64_t due = s->since_nsec + s->late_nsec;
        _cleanup_free_ char *path = text_printable(s->path);
        char process[32] = "", state, remedy[96];
        pid_t pid = find_kvleased(s, &state);

        if (pid > 0)
                snprintf(process, sizeof(process), " (pid %d)", (int)pid);
        if (state == 'T' || state == 't')
                snprintf(remedy, sizeof(remedy), "it is stopped: kill -CONT %d lets it go on",
                        (int)pid);
        else
                snprintf(remedy, sizeof(remedy),
                        "it may be busy: see its log (journalctl -u kvleased)");
        /* Overwrites a progress line on a terminal. */
        fprintf(stderr,
                "%skvleasectl: kvleased%s hasn't answered on %s for %" PRIu64
                "s, kvleasectl waits up to %" PRIu64 "s more; %s\n",
                isatty(STDERR_FILENO) ? "\r\033[K" : "", process, path, round_seconds(s->late_nsec),
                round_seconds(minus_u64(s->until_nsec, due)), remedy);
}

static void *await_lateness(void *data)
{
        struct slow_answer *s = data;
        uint64_t due = s->since_nsec + s->late_nsec;
        struct timespec at = {(time_t)(due / NSEC_PER_SEC), (long)(due % NSEC_PER_SEC)};
        int r = 0;

        pthread_mutex_lock(&s->lock);
        while (!s->is_over && r == 0)
                r = pthread_cond_timedwait(&s->changed, &s->lock, &at);
        if (!s->is_over && may_say(clock_now_nsec()))
                say(s);
        pthread_mutex_unlock(&s->lock);
        return NULL;
}

/* ---- the wait -------------------------------------------------------------------------------- */

/* Begins to wait for an answer at the socket `path` (borrowed until the end), until until_nsec; it
 * is late after late_nsec. fd: connected to the socket; -1: not yet. Without a thread nothing is
 * printed. */
static void slow_answer_begin(
        struct slow_answer *s, const char *path, int fd, uint64_t late_nsec, uint64_t until_nsec)
{
        pthread_condattr_t monotonic;

        *s = (struct slow_answer){.path = path,
                .fd = fd,
                .late_nsec = late_nsec,
                .until_nsec = until_nsec,
                .since_nsec = clock_now_nsec()};
        pthread_mutex_init(&s->lock, NULL);
        pthread_condattr_init(&monotonic);
        pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
        pthread_cond_init(&s->changed, &monotonic);
        pthread_condattr_destroy(&monotonic);
        s->is_watched = s->since_nsec + late_nsec < until_nsec &&
                        thread_start(&s->thread, NULL, await_lateness, s) == 0;
}

/* Ends the wait. */
static void slow_answer_end(struct slow_answer *s)
{
        pthread_mutex_lock(&s->lock);
        s->is_over = true;
        pthread_cond_signal(&s->changed);
        pthread_mutex_unlock(&s->lock);
        if (s->is_watched)
                pthread_join(s->thread, NULL);
        pthread_cond_destroy(&s->changed);
        pthread_mutex_destroy(&s->lock);
}

void admin_hush(void)
{
        atomic_store(&is_hushed, true);
}

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
