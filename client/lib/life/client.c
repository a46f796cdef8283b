/* Connections as users see them: connecting, and the end. */

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/macros.h"
#include "client/lib/connection/error.h"
#include "client/lib/keys/layout.h"
#include "client/lib/life/life-impl.h"
#include "client/lib/objects/args.h"
#include "client/lib/objects/ns.h"
#include "client/lib/calls/fetch.h"
#include "client/lib/calls/flight.h"
#include "kvlease-version.h"
#include "proto/status.h"

#define GROUP_SECRET_MIN_BYTES 16 /* as a token */
#define GROUP_SECRET_MAX_BYTES 256
#define DEFAULT_RECONNECT_MSEC 60000 /* a restart takes less than a second; not tuned */

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
ASSERT_SAME(RESERVATION);
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
        int r = abi_copy_options(&o, sizeof(o), options);

        if (r == 0)
                r = abi_check_flags(o.flags,
                        KVL_CONNECT_METADATA_ONLY | KVL_CONNECT_NO_SHM | KVL_CONNECT_SAFEPOINTS);
        if (r < 0)
                return r;
        o.socket_path = conn_socket_path(o.socket_path);
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
                o.timeout_msec = CONN_TIMEOUT_MSEC;
        if (o.reconnect_msec == 0)
                o.reconnect_msec = DEFAULT_RECONNECT_MSEC;
        if (is_shm_off())
                o.flags |= KVL_CONNECT_NO_SHM;
        *ret = o;
        return 0;
}

/* Returns 0, or -errno with the sentence. */
static int watch_socket(const struct kvl_connect_options *o, const struct conn_hello *hello,
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

        r = o->group_secret ? group_token_of(o->group_secret, o->group_secret_bytes, token) : 0;
        if (r == 0)
                r = conn_open(o->socket_path, deadline, &c);
        if (r < 0)
                return r;
        r = conn_hello(c, &hello, deadline, ret_welcome);
        if (r == 0 && !ret_welcome->tenant[0])
                r = error_set(-EINVAL,
                        "%s is a socket of kvleased for administration, not for workers: name that of a tenant, RUNTIME_DIR/t/TENANT/sock",
                        o->socket_path);
        if (r == 0)
                r = watch_socket(o, &hello, ret_welcome, c);
        if (r != 0) {
                conn_close(c);
                return r;
        }
        *ret_conn = c;
        return 0;
}

int kvl_connect(const struct kvl_connect_options *options, struct kvl_conn **ret_conn)
{
        _cleanup_free_ struct kvl_conn *conn = NULL;
        struct kvl_connect_options o = {0};
        int r;

        if (!ret_conn)
                return error_set(-EINVAL, "there is no room for the connection");
        r = copy_options(options, &o);
        if (r < 0)
                return r;
        conn = process_watch_forks() < 0 ? NULL : calloc(1, sizeof(*conn));
        if (!conn)
                return error_set(-ENOMEM, "out of memory");
        conn->n_forks = atomic_load(&process_n_forks);
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
        client_wire(conn);
        r = o.flags & KVL_CONNECT_NO_SHM ? 0 : share_open(conn);
        conn_unlock(conn->conn);
        if (r < 0) {
                conn_close(conn->conn);
                return r;
        }
        *ret_conn = TAKE(conn);
        return 0;
}

static void end_calls(struct kvl_conn *conn)
{
        conn_lock(conn->conn);
        list_for_each (ns, &conn->namespaces, struct kvl_ns, link)
                ns_cancel_calls(ns);
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
        /* Again, for calls that callbacks of finished calls started. */
        end_calls(conn);
        conn_lock(conn->conn);
        list_for_each (it, &conn->namespaces, struct kvl_ns, link)
                ns_wait_calls(it);
        conn_unlock(conn->conn);
        while ((ns = list_first(&conn->namespaces, struct kvl_ns, link)))
                ns_free(ns);
        conn_say_bye(conn->conn);
        conn_close(conn->conn);
        fetches_deinit(conn);
        flights_deinit(conn);
        pthread_cond_destroy(&conn->idle);
        free(conn);
}

const char *kvl_tenant(const struct kvl_conn *conn)
{
        return conn ? conn->welcome.tenant : "";
}

uint64_t kvl_client_id(const struct kvl_conn *conn)
{
        return conn ? conn->welcome.client_id : 0;
}

void kvl_group_token(const struct kvl_conn *conn, uint8_t ret_token[KVL_GROUP_TOKEN_BYTES])
{
        if (conn && ret_token)
                memcpy(ret_token, conn->welcome.group_token, KVL_GROUP_TOKEN_BYTES);
}
