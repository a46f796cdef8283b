/* Connections as users see them. */
#include "client/lib/calls/client.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/macros.h"
#include "client/lib/ahead/stream.h"
#include "client/lib/connection/error.h"
#include "kvlease-version.h"
#include "proto/status.h"

#define DEFAULT_SOCKET         "/run/kvlease/sock"
#define GROUP_SECRET_MIN_BYTES 16 /* as a token has */
#define GROUP_SECRET_MAX_BYTES 256
#define DEFAULT_TIMEOUT_MSEC \
        30000 /* longer than any request takes on a host that isn't broken; not tuned */
#define DEFAULT_RECONNECT_MSEC 60000 /* a restart takes less than a second; not tuned */
#define BYE_TIMEOUT_MSEC       1000  /* the daemon finds out by itself, too; not tuned */

#define ASSERT_SAME(name) _Static_assert((int)KVL_##name == (int)KVL_STATUS_##name, #name)
ASSERT_SAME(MISS);
ASSERT_SAME(DUPLICATE);
ASSERT_SAME(QUOTA);
ASSERT_SAME(FULL);
ASSERT_SAME(NO_PARENT);
ASSERT_SAME(STALE);
ASSERT_SAME(DRAINING);
ASSERT_SAME(LAYOUT);
ASSERT_SAME(VERSION);
ASSERT_SAME(TIMEOUT);
ASSERT_SAME(PENDING);
_Static_assert(KVL_GROUP_TOKEN_BYTES == CONN_TOKEN_BYTES, "one size of token");

const char *kvl_version(void)
{
        return KVLEASE_VERSION;
}

const char *kvl_strerror(int code)
{
        return status_text(code);
}

const char *kvl_last_error(void)
{
        return error_get();
}

_Atomic unsigned client_n_forks;

static void note_fork(void)
{
        atomic_fetch_add_explicit(&client_n_forks, 1, memory_order_relaxed);
}

static int watched_forks;

static void watch_forks(void)
{
        watched_forks = -pthread_atfork(NULL, NULL, note_fork);
}

int client_refuse_process(void)
{
        return error_set(-ECHILD,
                "a connection belongs to the process that made it: connect again after fork()");
}

uint64_t client_deadline(const struct kvl_conn *conn)
{
        return conn_deadline(conn->timeout_msec);
}

int client_copy_struct(void *dst, size_t size, const void *src)
{
        size_t src_size;

        memcpy(&src_size, src, sizeof(src_size));
        if (src_size < sizeof(src_size))
                return error_set(-EINVAL, "the struct's size isn't set: .size = sizeof(...)");
        for (size_t i = size; i < src_size; i++)
                if (((const uint8_t *)src)[i] != 0)
                        return error_set(-EINVAL,
                                "the struct sets fields that libkvlease " KVLEASE_VERSION
                                " doesn't know: upgrade libkvlease");
        memset(dst, 0, size);
        memcpy(dst, src, MIN(size, src_size));
        return 0;
}

void client_fill_struct(void *dst, const void *src, size_t size)
{
        size_t dst_size = 0;

        /* The rest of what a newer program has room for is left as it was. */
        if (dst)
                memcpy(&dst_size, dst, sizeof(dst_size));
        if (dst_size > sizeof(dst_size))
                memcpy((uint8_t *)dst + sizeof(dst_size), (const uint8_t *)src + sizeof(dst_size),
                        MIN(dst_size, size) - sizeof(dst_size));
}

/* ---- events ------------------------------------------------------------------------------------
 */

/* 0: nothing that users are told. */
static enum kvl_event_type event_type(uint32_t kind)
{
        switch (kind) {
        case KVLEASE__V1__NOTICE_EVENT__KIND__DRAIN:
                return KVL_EVENT_DRAIN;
        case KVLEASE__V1__NOTICE_EVENT__KIND__DRAIN_END:
                return KVL_EVENT_DRAIN_END;
        case KVLEASE__V1__NOTICE_EVENT__KIND__PRESSURE:
                return KVL_EVENT_PRESSURE;
        case KVLEASE__V1__NOTICE_EVENT__KIND__NS_STALE:
                return KVL_EVENT_STALE;
        case KVLEASE__V1__NOTICE_EVENT__KIND__MEMBER_LEFT:
                return KVL_EVENT_MEMBER_LEFT;
        case KVLEASE__V1__NOTICE_EVENT__KIND__SHUTDOWN:
                return KVL_EVENT_SHUTDOWN;
        default:
                return 0;
        }
}

static struct kvl_ns *find_ns(struct kvl_conn *conn, uint32_t id)
{
        list_for_each (ns, &conn->namespaces, struct kvl_ns, link)
                if (ns->id == id && ns->is_open)
                        return ns;
        return NULL;
}

/* [L] False: nothing that users are told. */
static bool fill_recall(struct kvl_conn *conn, const struct conn_event *e, struct kvl_event *event)
{
        struct kvl_ns *ns = find_ns(conn, e->ns_id);

        if (!ns || !ns_note_recall(ns, e->set_index, e->is_idle))
                return false;
        event->type = KVL_EVENT_REVOKE;
        event->ns = ns;
        event->first_page = e->set_index * ns->info.set_pages;
        event->n_pages = ns->info.set_pages;
        event->timeout_msec = e->timeout_msec;
        event->is_idle = e->is_idle;
        event->detail = e->is_idle ? "memory goes back to kvleased at the next safe point"
                                   : "kvleased takes memory back: release and free its pages";
        return true;
}

/* [L] Likewise. */
static bool fill_notice(struct kvl_conn *conn, const struct conn_event *e, struct kvl_event *event)
{
        event->type = event_type(e->kind);
        if (event->type == KVL_EVENT_PRESSURE || event->type == KVL_EVENT_STALE)
                event->ns = find_ns(conn, e->ns_id);
        /* About a namespace that is closed: its user isn't interested any more. */
        return event->type != 0 && (event->type != KVL_EVENT_STALE || event->ns);
}

static bool fill_event(struct kvl_conn *conn, const struct conn_event *e, enum conn_news news,
        struct kvl_event *event)
{
        static const enum kvl_event_type types[] = {
                [CONN_NEWS_AWAY] = KVL_EVENT_AWAY,
                [CONN_NEWS_BACK] = KVL_EVENT_BACK,
                [CONN_NEWS_GONE] = KVL_EVENT_DISCONNECTED,
        };

        *event = (struct kvl_event){.client_id = e->client_id, .detail = e->detail};
        if (news == CONN_NEWS_EVENT)
                return e->type == MSG_RECALL ? fill_recall(conn, e, event)
                                             : fill_notice(conn, e, event);
        event->type = types[news];
        return true;
}

static int on_event(struct conn *c, const struct conn_event *e, enum conn_news news, void *data)
{
        struct kvl_conn *conn = data;
        struct ns_callback callback;
        struct kvl_event event;
        kvl_event_fn fn;
        void *fn_data;

        conn_lock(c);
        fn = conn->event_fn;
        fn_data = conn->event_data;
        if (!fill_event(conn, e, news, &event) || !fn) {
                conn_unlock(c);
                return 0;
        }
        if (event.ns)
                ns_callback_enter(&callback, event.ns);
        conn_unlock(c);
        fn(conn, &event, fn_data);
        if (event.ns)
                ns_callback_leave(&callback);
        return 1;
}

void kvl_set_event_handler(struct kvl_conn *conn, kvl_event_fn fn, void *data)
{
        if (!conn || client_check_process(conn) < 0)
                return;
        conn_lock(conn->conn);
        conn->event_fn = fn;
        conn->event_data = data;
        conn_unlock(conn->conn);
}

int kvl_fd(const struct kvl_conn *conn)
{
        int fd;

        if (!conn || client_check_process(conn) < 0)
                return -1;
        conn_lock(conn->conn);
        conn_note_polled(conn->conn);
        fd = conn_poll_fd(conn->conn);
        conn_unlock(conn->conn);
        return fd;
}

int kvl_wants_write(const struct kvl_conn *conn)
{
        bool wants;

        if (!conn || client_check_process(conn) < 0)
                return 0;
        conn_lock(conn->conn);
        wants = conn_has_unsent(conn->conn) || conn_has_finished(conn->conn);
        conn_unlock(conn->conn);
        return wants;
}

int kvl_is_connected(const struct kvl_conn *conn)
{
        bool is_up;

        if (!conn || client_check_process(conn) < 0)
                return 0;
        conn_lock(conn->conn);
        is_up = !conn->conn->broken && conn->conn->link == CONN_UP;
        conn_unlock(conn->conn);
        return is_up;
}

int kvl_dispatch(struct kvl_conn *conn)
{
        int r;

        if (!conn)
                return error_set(-EINVAL, "no connection was given");
        r = client_check_process(conn);
        return r < 0 ? r : conn_dispatch(conn->conn);
}

/* ---- connecting --------------------------------------------------------------------------------
 */

static bool is_shm_off(void)
{
        const char *variable = secure_getenv("KVLEASE_NO_SHM");

        return variable && *variable && strcmp(variable, "0") != 0;
}

static int copy_options(const struct kvl_connect_options *options, struct kvl_connect_options *ret)
{
        struct kvl_connect_options o = {0};
        const char *variable = secure_getenv("KVLEASE_SOCKET");
        int r = options ? client_copy_struct(&o, sizeof(o), options) : 0;

        if (r < 0)
                return r;
        if (o.flags & ~(unsigned)(KVL_CONNECT_METADATA_ONLY | KVL_CONNECT_NO_SHM |
                                  KVL_CONNECT_SAFEPOINTS))
                return error_set(-EINVAL, "flags 0x%x aren't known: upgrade libkvlease", o.flags);
        if (!o.socket_path)
                o.socket_path = variable && *variable ? variable : DEFAULT_SOCKET;
        if (!*o.socket_path)
                return error_set(-EINVAL, "the socket path is empty");
        if (o.group_token && o.group_secret)
                return error_set(
                        -EINVAL, "a group is joined by its token or by a secret, not by both");
        if (o.group_secret && (o.group_secret_bytes < GROUP_SECRET_MIN_BYTES ||
                                      o.group_secret_bytes > GROUP_SECRET_MAX_BYTES))
                return error_set(-EINVAL, "group_secret has %zu bytes: %d to %d are allowed",
                        o.group_secret_bytes, GROUP_SECRET_MIN_BYTES, GROUP_SECRET_MAX_BYTES);
        if (!o.client_name)
                o.client_name = program_invocation_short_name;
        if (o.timeout_msec == 0)
                o.timeout_msec = DEFAULT_TIMEOUT_MSEC;
        if (o.reconnect_msec == 0)
                o.reconnect_msec = DEFAULT_RECONNECT_MSEC;
        if (is_shm_off())
                o.flags |= KVL_CONNECT_NO_SHM;
        *ret = o;
        return 0;
}

static bool look_beside(void *data)
{
        struct kvl_conn *conn = data;
        bool completed = conn->flights.ring.header && flights_look(conn);

        return streams_look(conn) || completed;
}

static void on_broken(void *data, int code, const char *why)
{
        struct kvl_conn *conn = data;

        if (conn->flights.ring.header)
                flights_broken(conn, code, why);
        fetches_broken(conn, code, why);
        streams_broken(conn, code, why);
}

/* 0, or -errno with the sentence. */
static int watch(const struct kvl_connect_options *o, const struct conn_hello *hello,
        const struct conn_welcome *welcome, struct conn *c)
{
        int r;

        conn_lock(c);
        r = conn_make_pollable(c);
        if (r == 0 && welcome->can_resume)
                r = conn_outlive(c, o->socket_path, hello, welcome, o->reconnect_msec);
        conn_unlock(c);
        return r;
}

static int open_and_hello(const struct kvl_connect_options *o, struct conn_welcome *ret_welcome,
        struct conn **ret_conn)
{
        uint8_t token[KVL_GROUP_TOKEN_BYTES];
        const struct conn_hello hello = {
                .client_name = o->client_name,
                .group_token = o->group_secret ? token : o->group_token,
                .group_create = o->group_secret != NULL,
                .metadata_only = o->flags & KVL_CONNECT_METADATA_ONLY,
                .has_safepoints = o->flags & KVL_CONNECT_SAFEPOINTS,
        };
        uint64_t deadline = conn_deadline(o->timeout_msec);
        struct conn *c;
        int r;

        r = o->group_secret ? client_group_token(o->group_secret, o->group_secret_bytes, token) : 0;
        if (r == 0)
                r = conn_open(o->socket_path, deadline, &c);
        if (r < 0)
                return r;
        r = conn_hello(c, &hello, deadline, ret_welcome);
        if (r == 0 && !ret_welcome->tenant[0])
                r = error_set(-EINVAL,
                        "%s is a socket of kvleased for administration, not for workers: name "
                        "that of a tenant, RUNTIME_DIR/t/TENANT/sock",
                        o->socket_path);
        if (r == 0)
                r = watch(o, &hello, ret_welcome, c);
        if (r != 0) {
                conn_close(c);
                return r;
        }
        *ret_conn = c;
        return 0;
}

int kvl_connect(const struct kvl_connect_options *options, struct kvl_conn **ret_conn)
{
        static pthread_once_t once = PTHREAD_ONCE_INIT;
        _cleanup_free_ struct kvl_conn *conn = NULL;
        struct kvl_connect_options o = {0};
        int r;

        if (!ret_conn)
                return error_set(-EINVAL, "there is no room for the connection");
        r = copy_options(options, &o);
        if (r < 0)
                return r;
        pthread_once(&once, watch_forks);
        conn = watched_forks < 0 ? NULL : calloc(1, sizeof(*conn));
        if (!conn)
                return error_set(-ENOMEM, "out of memory");
        conn->n_forks = atomic_load(&client_n_forks);
        conn->timeout_msec = o.timeout_msec;
        conn->metadata_only = o.flags & KVL_CONNECT_METADATA_ONLY;
        list_init(&conn->namespaces);
        list_init(&conn->flights.list);
        fetches_init(conn);
        pthread_cond_init(&conn->idle, NULL); /* can't fail (glibc) */
        r = open_and_hello(&o, &conn->welcome, &conn->conn);
        if (r != 0)
                return r;
        conn_lock(conn->conn);
        conn->conn->on_event = on_event;
        conn->conn->event_data = conn;
        conn->conn->side = (struct conn_side){
                .look = look_beside,
                .broken = on_broken,
                .away = client_away,
                .resume = client_resume,
                .back = client_back,
                .data = conn,
        };
        r = o.flags & KVL_CONNECT_NO_SHM ? 0 : share_open(conn);
        conn_unlock(conn->conn);
        if (r < 0) {
                conn_close(conn->conn);
                return r;
        }
        *ret_conn = TAKE(conn);
        return 0;
}

static void say_bye(struct kvl_conn *conn)
{
        Kvlease__V1__ByeRequest m = KVLEASE__V1__BYE_REQUEST__INIT;
        uint64_t deadline = conn_deadline(BYE_TIMEOUT_MSEC);
        struct conn_call call = {0};

        conn_lock(conn->conn);
        conn->conn->on_event = NULL;
        /* Without an answer it is a hang-up, which the daemon handles as well. */
        if (conn_start(conn->conn, &call, MSG_BYE, &m.base) == 0)
                conn_wait(conn->conn, &call, deadline);
        conn_unlock(conn->conn);
}

static void end_calls(struct kvl_conn *conn)
{
        conn_lock(conn->conn);
        list_for_each (ns, &conn->namespaces, struct kvl_ns, link)
                ns_cancel_ops(ns);
        conn_unlock(conn->conn);
        conn_dispatch(conn->conn);
}

void kvl_disconnect(struct kvl_conn *conn)
{
        struct kvl_ns *ns;

        if (!conn)
                return;
        if (client_check_process(conn) < 0) {
                conn_close_in_child(conn->conn);
                return;
        }
        end_calls(conn);
        /* And what callbacks started then, of calls that were done before. */
        end_calls(conn);
        conn_lock(conn->conn);
        list_for_each (it, &conn->namespaces, struct kvl_ns, link)
                ns_wait_callbacks(it);
        conn_unlock(conn->conn);
        while ((ns = list_first(&conn->namespaces, struct kvl_ns, link)))
                ns_free(ns);
        say_bye(conn);
        conn_close(conn->conn);
        fetches_deinit(conn);
        flights_deinit(conn);
        pthread_cond_destroy(&conn->idle);
        free(conn);
}

const char *kvl_tenant(const struct kvl_conn *conn)
{
        return conn->welcome.tenant;
}

uint64_t kvl_client_id(const struct kvl_conn *conn)
{
        return conn->welcome.client_id;
}

void kvl_group_token(const struct kvl_conn *conn, uint8_t ret_token[KVL_GROUP_TOKEN_BYTES])
{
        memcpy(ret_token, conn->welcome.group_token, KVL_GROUP_TOKEN_BYTES);
}
