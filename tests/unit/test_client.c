/* The library with a daemon that behaves. Misbehaviour: test_client_faults.c. */
#include <poll.h>
#include <pthread.h>
#include <sys/wait.h>

#include "tests/unit/child.h"
#include "tests/unit/client-support.h"

/* ---- connecting ----------------------------------------------------------------------------- */

/* *state of a test: not NULL where it runs in shared memory. */
static int connect_as(void **state, const struct fake *f, int timeout_msec, struct kvl_conn **ret)
{
        return *state ? test_connect_shared(f, timeout_msec, ret)
                      : test_connect(f, timeout_msec, ret);
}

static void script_serve(struct fake_peer *p)
{
        p->shares = true;
        fake_welcome(p);
        fake_serve(p);
        if (p->capacity > 0)
                fake_check_nothing_held(p);
}

static void script_bye(struct fake_peer *p)
{
        fake_welcome(p);
        fake_receive(p, MSG_BYE);
        fake_reply_simple(p, WIRE_OK, "");
        fake_expect_end(p);
}

static void test_connect_and_disconnect(void **state)
{
        uint8_t token[KVL_GROUP_TOKEN_BYTES];
        struct kvl_conn *conn;
        struct fake f;

        fake_start(&f, script_bye);
        assert_int_equal(test_connect(&f, 0, &conn), 0);
        assert_string_equal(kvl_tenant(conn), "blue");
        assert_int_equal(kvl_client_id(conn), FAKE_CLIENT_ID);
        kvl_group_token(conn, token);
        assert_memory_equal(token, "0123456789abcdef", 16);
        assert_true(kvl_fd(conn) >= 0);
        assert_int_equal(kvl_wants_write(conn), 0);
        kvl_disconnect(conn);
        kvl_disconnect(NULL);
        fake_stop(&f);
}

static void script_environment(struct fake_peer *p)
{
        const Kvlease__V1__HelloRequest *m =
                (const Kvlease__V1__HelloRequest *)fake_receive(p, MSG_HELLO);

        FAKE_CHECK(strlen(m->client_name) == 64);
        FAKE_CHECK(m->group_token.len == 16 && m->group_token.data[15] == 9);
        FAKE_CHECK(m->metadata_only && m->min_version == 1 && m->max_version == 1);
        fake_reply_simple(p, WIRE_TOO_MANY, "tenant blue has 8 of 8 clients");
        fake_expect_end(p);
}

static void test_options_and_environment(void **state)
{
        const uint8_t token[KVL_GROUP_TOKEN_BYTES] = {[15] = 9};
        char name[101];
        struct kvl_connect_options options = {
                .size = sizeof(options),
                .client_name = name,
                .group_token = token,
                .flags = KVL_CONNECT_METADATA_ONLY,
        };
        struct kvl_conn *conn = NULL;
        struct fake f;

        memset(name, 'n', sizeof(name) - 1);
        name[100] = '\0';
        fake_start(&f, script_environment);
        setenv("KVLEASE_SOCKET", f.path, 1);
        assert_int_equal(kvl_connect(&options, &conn), -EMFILE);
        assert_string_equal(kvl_last_error(), "tenant blue has 8 of 8 clients");
        assert_null(conn);
        unsetenv("KVLEASE_SOCKET");
        fake_stop(&f);
        options.flags = 8;
        assert_int_equal(kvl_connect(&options, &conn), -EINVAL);
        options.size = 0;
        assert_int_equal(kvl_connect(&options, &conn), -EINVAL);
}

static void test_nobody_there(void **state)
{
        char path[200], *in_dir;
        struct kvl_connect_options options = {.size = sizeof(options)};
        const char *dir = test_dir_make();
        struct kvl_conn *conn;

        in_dir = test_path(dir, "sock");
        options.socket_path = in_dir;
        assert_int_equal(kvl_connect(&options, &conn), -ENOENT);
        assert_non_null(strstr(kvl_last_error(), in_dir));
        assert_non_null(strstr(kvl_last_error(), "systemctl start kvleased"));
        assert_non_null(strstr(kvl_last_error(), "KVLEASE_SOCKET"));
        memset(path, 'x', sizeof(path) - 1);
        path[199] = '\0';
        options.socket_path = path;
        assert_int_equal(kvl_connect(&options, &conn), -ENAMETOOLONG);
        free(in_dir);
        test_dir_remove(dir);
}

static void lifecycle(struct kvl_ns *ns, uint32_t n_planes)
{
        uint32_t pages[3], found[3], n = 99;
        uint64_t n_tokens = 0, request = kvl_request_begin(ns);
        uint8_t keys[3 * KVL_KEY_BYTES];
        struct kvl_publish publish = {
                .size = sizeof(publish),
                .pages = pages,
                .keys = keys,
                .n_pages = 3,
                .last_tokens = 16,
                .request = request,
        };

        for (uint32_t i = 0; i < 3; i++)
                test_key(keys + i * KVL_KEY_BYTES, i);
        assert_true(request > 0 && kvl_request_begin(ns) > request);
        assert_int_equal(kvl_lookup(ns, request, keys, 3, found, &n, &n_tokens), KVL_MISS);
        assert_int_equal(n, 99);
        assert_int_equal(kvl_lease(ns, request, 3, pages), 0);
        for (uint32_t i = 0; i < 3; i++)
                for (uint32_t p = 0; p < n_planes; p++)
                        memset(kvl_page_ptr(ns, pages[i], p), (int)(1 + i + p), PAGE_BYTES);
        assert_int_equal(kvl_publish(ns, &publish, found, &n), 0);
        assert_int_equal(n, 3);
        assert_memory_equal(found, pages, sizeof(pages));
        assert_int_equal(kvl_lookup(ns, request, keys, 3, found, &n, &n_tokens), 0);
        assert_true(n == 3 && n_tokens == 48 && memcmp(found, pages, sizeof(pages)) == 0);
        for (uint32_t p = 0; p < n_planes; p++) {
                uint8_t *at = kvl_page_ptr(ns, found[2], p);

                assert_ptr_equal(at, (uint8_t *)kvl_plane_base(ns, p) + found[2] * PAGE_BYTES);
                assert_true(at[0] == 3 + p && at[PAGE_BYTES - 1] == 3 + p);
        }
        assert_int_equal(kvl_release(ns, found, 3), 0);
        assert_int_equal(kvl_release(ns, found, 3), 0);
        assert_int_equal(kvl_release(ns, found, 3), -EINVAL);
        assert_non_null(strstr(kvl_last_error(), "isn't"));
        assert_int_equal(kvl_request_end(ns, request), 0);
}

/* More than the fds of one frame. */
static void test_many_planes(void **state)
{
        const uint32_t n_planes = 20;
        struct kvl_layout layout = test_layout(n_planes, PAGE_BYTES);
        struct kvl_ns_info info = {.size = sizeof(info)};
        struct kvl_conn *conn;
        struct kvl_ns *ns, *again;
        struct fake f;

        fake_start(&f, script_serve);
        assert_int_equal(connect_as(state, &f, 0, &conn), 0);
        assert_int_equal(kvl_ns_open(conn, "chat", &layout, NULL, 0, &ns), 0);
        assert_int_equal(kvl_ns_open(conn, "chat", &layout, NULL, 0, &again), -EEXIST);
        assert_string_equal(kvl_ns_name(ns), "chat");
        kvl_ns_info(ns, &info);
        assert_true(
                info.size == sizeof(info) && info.capacity_pages == 128 && info.set_pages == 32);
        assert_string_equal(info.device, "host");
        assert_null(kvl_page_ptr(ns, 0, 0));
        lifecycle(ns, n_planes);
        assert_null(kvl_page_ptr(ns, 0, n_planes));
        assert_null(kvl_page_ptr(ns, 128, 0));
        assert_null(kvl_plane_base(ns, n_planes));
        kvl_ns_close(ns);
        kvl_disconnect(conn);
        fake_stop(&f);
}

/* The layout's, as what the daemon is asked for. */
static void test_no_name(void **state)
{
        struct kvl_layout layout = test_layout(1, PAGE_BYTES), other = layout;
        char name[KVL_NS_NAME_BYTES], long_name[KVL_NS_NAME_BYTES + 1] = "";
        struct kvl_conn *conn;
        struct kvl_ns *ns, *again;
        struct fake f;

        fake_start(&f, script_serve);
        assert_int_equal(connect_as(state, &f, 0, &conn), 0);
        assert_int_equal(kvl_layout_name(&layout, name), 0);
        assert_int_equal(kvl_ns_open(conn, NULL, &layout, NULL, 0, &ns), 0);
        assert_string_equal(kvl_ns_name(ns), name);
        assert_int_equal(kvl_ns_open(conn, "", &layout, NULL, 0, &again), -EEXIST);
        assert_int_equal(kvl_ns_open(conn, name, &layout, NULL, 0, &again), -EEXIST);
        kvl_ns_close(ns);
        memset(long_name, 'n', KVL_NS_NAME_BYTES);
        assert_int_equal(kvl_ns_open(conn, long_name, &layout, NULL, 0, &ns), -EINVAL);
        other.tp_size = 1025;
        assert_int_equal(kvl_ns_open(conn, NULL, &other, NULL, 0, &ns), -EINVAL);
        assert_int_equal(kvl_ns_open(conn, NULL, NULL, NULL, 0, &ns), -EINVAL);
        kvl_disconnect(conn);
        fake_stop(&f);
}

static void test_duplicates_and_invalidate(void **state)
{
        struct kvl_layout layout = test_layout(1, PAGE_BYTES);
        uint32_t pages[2], got[2], many[128], n = 0;
        uint8_t key[KVL_KEY_BYTES], parent[KVL_KEY_BYTES];
        uint64_t count = 0;
        struct kvl_publish publish = {
                .size = sizeof(publish), .keys = key, .n_pages = 1, .last_tokens = 1};
        struct kvl_conn *conn;
        struct kvl_ns *ns;
        struct fake f;

        test_key(key, 1);
        test_key(parent, 2);
        fake_start(&f, script_serve);
        assert_int_equal(connect_as(state, &f, 0, &conn), 0);
        assert_int_equal(kvl_ns_open(conn, "chat", &layout, "host", 0, &ns), 0);
        assert_int_equal(kvl_lease(ns, 0, 2, pages), 0);
        publish.pages = pages;
        assert_int_equal(kvl_publish(ns, &publish, &got[0], NULL), 0);
        publish.pages = pages + 1;
        assert_int_equal(kvl_publish(ns, &publish, &got[1], &n), KVL_DUPLICATE);
        assert_true(n == 1 && got[1] == pages[0]);
        publish.parent_key = parent;
        assert_int_equal(kvl_publish(ns, &publish, NULL, &n), KVL_NO_PARENT);
        assert_int_equal(n, 0);
        publish.last_tokens = 17;
        assert_int_equal(kvl_publish(ns, &publish, NULL, &n), -EINVAL);
        assert_int_equal(kvl_free(ns, pages + 1, 1), 0);
        assert_int_equal(kvl_release(ns, got, 2), 0);
        assert_int_equal(kvl_invalidate(ns, key, &count), 0);
        assert_int_equal(count, 5);
        assert_int_equal(kvl_lease(ns, 0, 0, pages), -EINVAL);
        assert_int_equal(kvl_lease(ns, 0, 4097, pages), -EINVAL);
        assert_int_equal(kvl_lease(ns, 0, 128, many), KVL_FULL);
        assert_string_equal(kvl_last_error(), kvl_strerror(KVL_FULL));
        got[0] = 128;
        assert_int_equal(kvl_free(ns, got, 1), -EINVAL);
        kvl_disconnect(conn);
        fake_stop(&f);
}

/* More than one frame takes, in each direction. */
static void test_batches(void **state)
{
        enum { N = 5000 };
        static uint32_t pages[N + 1], got[N + 1];
        static uint8_t keys[(N + 1) * KVL_KEY_BYTES];
        struct kvl_layout layout = test_layout(1, 64);
        uint64_t n_tokens = 0;
        uint32_t n = 0;
        struct kvl_publish publish = {.size = sizeof(publish),
                .pages = pages,
                .keys = keys,
                .n_pages = N,
                .last_tokens = 16};
        struct kvl_conn *conn;
        struct kvl_ns *ns;
        struct fake f;

        for (uint32_t i = 0; i <= N; i++)
                test_key(keys + i * KVL_KEY_BYTES, i);
        fake_start(&f, script_serve);
        assert_int_equal(connect_as(state, &f, 0, &conn), 0);
        assert_int_equal(kvl_ns_open(conn, "chat", &layout, NULL, 0, &ns), 0);
        assert_int_equal(kvl_lease(ns, 0, 4096, pages), 0);
        assert_int_equal(kvl_lease(ns, 0, N - 4096, pages + 4096), 0);
        assert_int_equal(kvl_publish(ns, &publish, NULL, &n), 0);
        assert_int_equal(n, N);
        assert_int_equal(kvl_lookup(ns, 0, keys, N + 1, got, &n, &n_tokens), 0);
        assert_true(n == N && n_tokens == N * 16 && memcmp(got, pages, N * sizeof(*got)) == 0);
        /* 3072 is a whole number of batches: the next finds nothing, which is no miss. */
        test_key(keys + 3072 * KVL_KEY_BYTES, N + 7);
        assert_int_equal(kvl_release(ns, got, N), 0);
        assert_int_equal(kvl_lookup(ns, 0, keys, N, got, &n, &n_tokens), 0);
        assert_int_equal(n, 3072);
        assert_int_equal(kvl_release(ns, got, n), 0);
        assert_int_equal(kvl_release(ns, pages, N), 0);
        kvl_disconnect(conn);
        fake_stop(&f);
}

/* ---- without blocking ----------------------------------------------------------------------- */

struct outcome {
        int n_calls, code;
        uint32_t pages[4], n_pages;
        struct kvl_ns *ns;
};

static void note(struct kvl_ns *ns, int code, const uint32_t *pages, uint32_t n_pages,
        uint64_t n_tokens, void *data)
{
        struct outcome *o = data;

        o->n_calls++;
        o->code = code;
        o->ns = ns;
        o->n_pages = n_pages;
        assert_true(n_pages <= 4);
        if (n_pages > 0)
                memcpy(o->pages, pages, n_pages * sizeof(*pages));
}

static void dispatch_until(struct kvl_conn *conn, const int *n, int wanted)
{
        while (*n < wanted) {
                struct pollfd p = {.fd = kvl_fd(conn), .events = POLLIN};

                if (kvl_wants_write(conn))
                        p.events |= POLLOUT;
                assert_int_equal(poll(&p, 1, 10000), 1);
                assert_true(kvl_dispatch(conn) >= 0);
        }
}

static void test_started_calls(void **state)
{
        struct kvl_layout layout = test_layout(1, PAGE_BYTES);
        struct outcome o = {0};
        uint8_t key[KVL_KEY_BYTES];
        struct kvl_publish publish = {.size = sizeof(publish),
                .pages = o.pages,
                .keys = key,
                .n_pages = 1,
                .last_tokens = 16};
        struct kvl_conn *conn;
        struct kvl_ns *ns;
        struct fake f;

        test_key(key, 3);
        fake_start(&f, script_serve);
        assert_int_equal(connect_as(state, &f, 0, &conn), 0);
        assert_int_equal(kvl_ns_open(conn, "chat", &layout, NULL, 0, &ns), 0);
        assert_int_equal(kvl_dispatch(conn), 0);
        assert_int_equal(kvl_lease_start(ns, 0, 2, note, &o), 0);
        dispatch_until(conn, &o.n_calls, 1);
        assert_true(o.code == 0 && o.n_pages == 2 && o.ns == ns);
        assert_non_null(kvl_page_ptr(ns, o.pages[1], 0));
        assert_int_equal(kvl_free_start(ns, o.pages + 1, 1, note, &o), 0);
        dispatch_until(conn, &o.n_calls, 2);
        assert_int_equal(kvl_publish_start(ns, &publish, note, &o), 0);
        dispatch_until(conn, &o.n_calls, 3);
        assert_int_equal(kvl_lookup_start(ns, 0, key, 1, note, &o), 0);
        /* In shared memory the call is done already, and no other sign says so. */
        assert_int_equal(kvl_wants_write(conn), *state ? 1 : 0);
        if (*state)
                dispatch_until(conn, &o.n_calls, 4);
        /* A blocking call runs the callbacks of others, too. */
        assert_int_equal(kvl_release(ns, o.pages, 1), 0);
        assert_true(o.n_calls == 4 && o.code == 0 && o.n_pages == 1);
        assert_int_equal(kvl_release_start(ns, o.pages, 1, NULL, NULL), 0);
        assert_int_equal(kvl_lease_start(ns, 0, 4097, note, &o), -EINVAL);
        assert_int_equal(kvl_lookup_start(ns, 0, key, 1537, note, &o), -EINVAL);
        assert_int_equal(kvl_request_end(ns, 1), 0);
        kvl_disconnect(conn);
        fake_stop(&f);
}

static void script_deaf(struct fake_peer *p)
{
        fake_welcome_ns(p);
        fake_expect_end(p);
}

static void test_close_cancels(void **state)
{
        struct kvl_layout layout = test_layout(1, PAGE_BYTES);
        struct outcome o = {0};
        struct kvl_conn *conn;
        struct kvl_ns *ns;
        struct fake f;

        fake_start(&f, script_deaf);
        assert_int_equal(test_connect(&f, 200, &conn), 0);
        assert_int_equal(kvl_ns_open(conn, "chat", &layout, NULL, 0, &ns), 0);
        assert_int_equal(kvl_lease_start(ns, 0, 1, note, &o), 0);
        kvl_disconnect(conn);
        assert_int_equal(o.n_calls, 1);
        assert_int_equal(o.code, -ECANCELED);
        fake_stop(&f);
}

static void test_child_is_refused(void **state)
{
        struct kvl_layout layout = test_layout(1, PAGE_BYTES);
        struct kvl_conn *conn;
        struct kvl_ns *ns;
        int status = -1;
        uint32_t page;
        struct fake f;
        pid_t pid;

        fake_start(&f, script_serve);
        assert_int_equal(connect_as(state, &f, 0, &conn), 0);
        assert_int_equal(kvl_ns_open(conn, "chat", &layout, NULL, 0, &ns), 0);
        pid = child_fork();
        if (pid == 0) {
                bool is_refused =
                        kvl_lease(ns, 0, 1, &page) == -ECHILD && kvl_dispatch(conn) == -ECHILD;

                kvl_disconnect(conn);
                _exit(!is_refused);
        }
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_int_equal(status, 0);
        /* Nothing the child did is felt here. */
        assert_int_equal(kvl_lease(ns, 0, 1, &page), 0);
        memset(kvl_page_ptr(ns, page, 0), 1, PAGE_BYTES);
        assert_int_equal(kvl_free(ns, &page, 1), 0);
        kvl_disconnect(conn);
        fake_stop(&f);
}

#define TEST_SHARED(fn)                                                            \
        {                                                                          \
#fn "_shared", fn, test_fds_note, test_fds_check, (void *)"shared" \
        }

int main(void)
{
        const struct CMUnitTest tests[] = {
                TEST_ROW(test_connect_and_disconnect),
                TEST_ROW(test_options_and_environment),
                TEST_ROW(test_nobody_there),
                TEST_ROW(test_no_name),
                TEST_ROW(test_many_planes),
                TEST_ROW(test_duplicates_and_invalidate),
                TEST_ROW(test_batches),
                TEST_ROW(test_started_calls),
                TEST_ROW(test_close_cancels),
                TEST_ROW(test_child_is_refused),
                TEST_SHARED(test_many_planes),
                TEST_SHARED(test_duplicates_and_invalidate),
                TEST_SHARED(test_started_calls),
                TEST_SHARED(test_child_is_refused),
        };

        return RUN_TESTS(tests);
}
