/* The library with a daemon that refuses, lies, is late, or dies. */
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include "base/fd.h"
#include "tests/unit/client-support.h"

#define SHORT_MSEC 100   /* that a client waits in vain */
#define LONG_MSEC  20000 /* longer than a busy machine needs */

/* ---- hello ---------------------------------------------------------------------------------- */

static void script_version(struct fake_peer *p)
{
        Kvlease__V1__HelloReply m = KVLEASE__V1__HELLO_REPLY__INIT;

        fake_receive(p, MSG_HELLO);
        m.status = WIRE_VERSION;
        m.detail =
                (char *)"the daemon speaks protocol 2 to 3, the client 1 to 1: upgrade libkvlease";
        m.min_version = 2;
        m.max_version = 3;
        fake_reply(p, &m.base);
}

static void script_version_unasked(struct fake_peer *p)
{
        Kvlease__V1__HelloReply m = KVLEASE__V1__HELLO_REPLY__INIT;

        fake_receive(p, MSG_HELLO);
        m.version = PROTO_VERSION_MAX + 1;
        fake_reply(p, &m.base);
        fake_expect_end(p);
}

static void script_bad_token(struct fake_peer *p)
{
        Kvlease__V1__HelloReply m = KVLEASE__V1__HELLO_REPLY__INIT;

        fake_receive(p, MSG_HELLO);
        m.version = PROTO_VERSION_MAX;
        m.group_token.data = (uint8_t *)"short";
        m.group_token.len = 5;
        fake_reply(p, &m.base);
        fake_expect_end(p);
}

static void script_silent(struct fake_peer *p)
{
        fake_expect_end(p);
}

static void script_hang_up(struct fake_peer *p)
{
        fake_receive(p, MSG_HELLO);
}

static void assert_no_connection(fake_script script, int code, const char *sentence)
{
        struct kvl_conn *conn = NULL;
        struct fake f;

        fake_start(&f, script);
        assert_int_equal(test_connect(&f, code == -ETIMEDOUT ? SHORT_MSEC : 0, &conn), code);
        assert_null(conn);
        if (!strstr(kvl_last_error(), sentence))
                fail_msg("\"%s\" doesn't say \"%s\"", kvl_last_error(), sentence);
        fake_stop(&f);
}

TEST(test_hello_fails)
{
        assert_no_connection(script_version, KVL_VERSION, "upgrade libkvlease");
        assert_no_connection(script_version_unasked, -EPROTO, "wasn't offered");
        assert_no_connection(script_bad_token, -EPROTO, "group token");
        assert_no_connection(script_silent, -ETIMEDOUT, "in time");
        assert_no_connection(script_hang_up, -ECONNRESET, "closed");
}

static void challenge(struct fake_peer *p, bool accept)
{
        Kvlease__V1__HelloReply m = KVLEASE__V1__HELLO_REPLY__INIT;
        Kvlease__V1__ChallengeEvent event = KVLEASE__V1__CHALLENGE_EVENT__INIT;
        const Kvlease__V1__AuthRequest *auth;

        fake_receive(p, MSG_HELLO);
        m.version = PROTO_VERSION_MAX;
        m.auth_required = true;
        m.tenant = (char *)"t";
        fake_reply(p, &m.base);
        event.nonce.data = (uint8_t *)"fedcba9876543210";
        event.nonce.len = 16;
        fake_send(p, MSG_CHALLENGE, FRAME_EVENT, 0, &event.base, NULL, 0);
        auth = (const Kvlease__V1__AuthRequest *)fake_receive(p, MSG_AUTH);
        FAKE_CHECK(auth->nonce.len == 16 && memcmp(auth->nonce.data, event.nonce.data, 16) == 0);
        fake_reply_simple(p, accept ? WIRE_OK : WIRE_DENIED, accept ? "" : "the process is gone");
        fake_serve(p);
}

static void script_challenge(struct fake_peer *p)
{
        challenge(p, true);
}

static void script_challenge_denied(struct fake_peer *p)
{
        challenge(p, false);
}

static void script_challenge_never(struct fake_peer *p)
{
        Kvlease__V1__HelloReply m = KVLEASE__V1__HELLO_REPLY__INIT;

        fake_receive(p, MSG_HELLO);
        m.version = PROTO_VERSION_MAX;
        m.auth_required = true;
        fake_reply(p, &m.base);
        fake_expect_end(p);
}

TEST(test_challenge)
{
        struct kvl_conn *conn;
        struct fake f;

        fake_start(&f, script_challenge);
        assert_int_equal(test_connect(&f, 0, &conn), 0);
        kvl_disconnect(conn);
        fake_stop(&f);
        assert_no_connection(script_challenge_denied, -EACCES, "the process is gone");
        assert_no_connection(script_challenge_never, -ETIMEDOUT, "in time");
}

/* ---- broken replies ------------------------------------------------------------------------- */

static void reply_to_lease(struct fake_peer *p, uint16_t type, uint16_t flags, uint64_t seq_off,
        uint32_t status, uint32_t n, uint32_t first)
{
        Kvlease__V1__LeaseReply m = KVLEASE__V1__LEASE_REPLY__INIT;
        uint32_t pages[8];

        fake_welcome_ns(p);
        fake_receive(p, MSG_LEASE);
        for (uint32_t i = 0; i < n; i++)
                pages[i] = first + i;
        m.status = status;
        m.n_pages = n;
        m.pages = pages;
        fake_send(p, type, flags, p->seq + seq_off, &m.base, NULL, 0);
        fake_expect_end(p);
}

static void script_too_few(struct fake_peer *p)
{
        reply_to_lease(p, MSG_LEASE, FRAME_REPLY, 0, WIRE_OK, 1, 0);
}

static void script_too_many(struct fake_peer *p)
{
        reply_to_lease(p, MSG_LEASE, FRAME_REPLY, 0, WIRE_OK, 3, 0);
}

static void script_refused_with_pages(struct fake_peer *p)
{
        reply_to_lease(p, MSG_LEASE, FRAME_REPLY, 0, WIRE_FULL, 2, 0);
}

static void script_page_beyond(struct fake_peer *p)
{
        reply_to_lease(p, MSG_LEASE, FRAME_REPLY, 0, WIRE_OK, 2, 127);
}

static void script_wrong_seq(struct fake_peer *p)
{
        reply_to_lease(p, MSG_LEASE, FRAME_REPLY, 1, WIRE_OK, 2, 0);
}

static void script_wrong_type(struct fake_peer *p)
{
        reply_to_lease(p, MSG_LOOKUP, FRAME_REPLY, 0, WIRE_OK, 2, 0);
}

static void script_no_reply_flag(struct fake_peer *p)
{
        reply_to_lease(p, MSG_LEASE, 0, 0, WIRE_OK, 2, 0);
}

static void script_garbage(struct fake_peer *p)
{
        fake_welcome_ns(p);
        fake_receive(p, MSG_LEASE);
        fake_send_raw(p, "HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n", 47);
        fake_expect_end(p);
}

static void send_header(struct fake_peer *p, uint32_t length, uint16_t fd_count)
{
        uint8_t header[FRAME_HEADER_SIZE];

        fake_welcome_ns(p);
        fake_receive(p, MSG_LEASE);
        frame_encode_header(
                &(struct frame_header){
                        .magic = FRAME_MAGIC,
                        .version = 1,
                        .type = MSG_LEASE,
                        .length = length,
                        .fd_count = fd_count,
                        .flags = FRAME_REPLY,
                        .seq = p->seq,
                },
                header);
        fake_send_raw(p, header, sizeof(header));
}

static void script_oversize(struct fake_peer *p)
{
        send_header(p, FRAME_MAX_PAYLOAD + 1, 0);
        fake_expect_end(p);
}

static void script_missing_fds(struct fake_peer *p)
{
        send_header(p, 0, 1);
        fake_expect_end(p);
}

static void script_half_a_frame(struct fake_peer *p)
{
        send_header(p, 100, 0);
        fake_send_raw(p, "half", 4);
}

static void script_unreadable(struct fake_peer *p)
{
        send_header(p, 4, 0);
        fake_send_raw(p, "\xff\xff\xff\xff", 4);
        fake_expect_end(p);
}

static void send_map(struct fake_peer *p, uint32_t n_planes, const int *fds, unsigned n_fds)
{
        Kvlease__V1__MapReply m = KVLEASE__V1__MAP_REPLY__INIT;
        uint32_t pages[] = {0, 1};

        fake_welcome_ns(p);
        fake_receive(p, MSG_LEASE);
        fake_reply_pages(p, WIRE_OK, pages, 2);
        fake_receive(p, MSG_MAP);
        m.n_planes = n_planes;
        fake_send(p, MSG_MAP, FRAME_REPLY, p->seq, &m.base, fds, n_fds);
}

static void script_map_without_fds(struct fake_peer *p)
{
        send_map(p, 1, NULL, 0);
        fake_expect_end(p);
}

static void script_map_too_many(struct fake_peer *p)
{
        int fd = memfd_create_sized("fake", FAKE_EXTENT_BYTES);

        send_map(p, 2, (int[]){fd, fd}, 2);
        fake_expect_end(p);
}

struct told {
        int n, n_disconnected;
        _Atomic int code; /* callbacks of one connection run in several threads */
        char detail[256];
};

static void count_events(struct kvl_conn *conn, const struct kvl_event *event, void *data)
{
        struct told *told = data;

        told->n++;
        if (event->type == KVL_EVENT_DISCONNECTED)
                told->n_disconnected++;
        snprintf(told->detail, sizeof(told->detail), "%s", event->detail);
}

static void keep_code(struct kvl_ns *ns, int code, const uint32_t *pages, uint32_t n_pages,
        uint64_t n_tokens, void *data)
{
        ((struct told *)data)->code = code;
}

/* A lease of 2 ends the connection with `code`: once told, and known from then on. */
static void assert_breaks(fake_script script, int code)
{
        struct kvl_layout layout = test_layout(1, PAGE_BYTES);
        struct told told = {0};
        struct kvl_conn *conn;
        struct kvl_ns *ns;
        uint32_t pages[2];
        struct fake f;

        fake_start(&f, script);
        assert_int_equal(test_connect(&f, 5000, &conn), 0);
        kvl_set_event_handler(conn, count_events, &told);
        assert_int_equal(kvl_ns_open(conn, "chat", &layout, NULL, 0, &ns), 0);
        assert_int_equal(kvl_lease(ns, 0, 2, pages), code);
        assert_int_equal(told.n, 1);
        assert_int_equal(told.n_disconnected, 1);
        assert_int_equal(kvl_fd(conn), -1);
        assert_int_equal(kvl_lease(ns, 0, 2, pages), -ENOTCONN);
        assert_int_equal(kvl_lease_start(ns, 0, 2, keep_code, &told), -ENOTCONN);
        assert_int_equal(kvl_request_end(ns, 1), -ENOTCONN);
        assert_int_equal(kvl_dispatch(conn), code);
        assert_int_equal(told.n, 1);
        kvl_ns_close(ns);
        kvl_disconnect(conn);
        fake_stop(&f);
}

TEST(test_broken_replies)
{
        static const struct {
                fake_script script;
                int code;
        } rows[] = {
                {script_too_few, -EPROTO},
                {script_too_many, -EPROTO},
                {script_refused_with_pages, -EPROTO},
                {script_page_beyond, -EPROTO},
                {script_wrong_seq, -EPROTO},
                {script_wrong_type, -EPROTO},
                {script_no_reply_flag, -EPROTO},
                {script_garbage, -EPROTO},
                {script_oversize, -EPROTO},
                {script_missing_fds, -EPROTO},
                {script_unreadable, -EPROTO},
                {script_map_without_fds, -EPROTO},
                {script_map_too_many, -EPROTO},
                {script_half_a_frame, -ECONNRESET},
        };

        for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
                assert_breaks(rows[i].script, rows[i].code);
}

static void script_bad_geometry(struct fake_peer *p)
{
        Kvlease__V1__NsOpenReply m = KVLEASE__V1__NS_OPEN_REPLY__INIT;

        fake_welcome(p);
        fake_receive(p, MSG_NS_OPEN);
        m.capacity_pages = UINT32_MAX;
        m.set_pages = 1;
        m.extent_bytes = PAGE_BYTES;
        m.device = (char *)"host";
        m.transport = 1;
        fake_reply(p, &m.base);
        fake_expect_end(p);
}

FAKE_DAEMON_SCENE(test_absurd_namespace, script_bad_geometry)
{
        struct kvl_layout layout = test_layout(1, PAGE_BYTES);
        struct kvl_conn *conn;
        struct kvl_ns *ns = NULL;

        assert_int_equal(test_connect(f, 0, &conn), 0);
        assert_int_equal(kvl_ns_open(conn, "chat", &layout, NULL, 0, &ns), -EPROTO);
        assert_null(ns);
        kvl_disconnect(conn);
}

/* ---- too late ------------------------------------------------------------------------------- */

static void script_late_lease(struct fake_peer *p)
{
        const Kvlease__V1__FreeRequest *m;
        uint32_t pages[] = {5, 6};

        fake_welcome_ns(p);
        fake_receive(p, MSG_LEASE);
        fake_await_call();
        fake_reply_pages(p, WIRE_OK, pages, 2);
        m = (const Kvlease__V1__FreeRequest *)fake_receive(p, MSG_FREE);
        FAKE_CHECK(p->flags == FRAME_NO_REPLY && m->n_pages == 2 && m->pages[0] == 5);
        fake_serve(p);
}

static void script_late_lookup(struct fake_peer *p)
{
        const Kvlease__V1__ReleaseRequest *m;
        uint32_t page = 9;

        fake_welcome_ns(p);
        fake_receive(p, MSG_LOOKUP);
        fake_await_call();
        fake_reply_pages(p, WIRE_OK, &page, 1);
        m = (const Kvlease__V1__ReleaseRequest *)fake_receive(p, MSG_RELEASE);
        FAKE_CHECK(p->flags == FRAME_NO_REPLY && m->n_pages == 1 && m->pages[0] == 9);
        fake_serve(p);
}

static void script_late_map(struct fake_peer *p)
{
        const Kvlease__V1__FreeRequest *m;
        uint32_t pages[] = {5, 6};

        fake_welcome_ns(p);
        fake_receive(p, MSG_LEASE);
        fake_reply_pages(p, WIRE_OK, pages, 2);
        fake_receive(p, MSG_MAP);
        m = (const Kvlease__V1__FreeRequest *)fake_receive(p, MSG_FREE);
        FAKE_CHECK(p->flags == FRAME_NO_REPLY && m->n_pages == 2 && m->pages[0] == 5);
        fake_serve(p);
}

/* Waits for a message, and handles it. */
static void dispatch_next(struct kvl_conn *conn)
{
        struct pollfd p = {.fd = kvl_fd(conn), .events = POLLIN};

        assert_int_equal(poll(&p, 1, LONG_MSEC), 1);
        assert_int_equal(kvl_dispatch(conn), 0);
}

static void late(fake_script script, bool is_lookup)
{
        struct kvl_layout layout = test_layout(1, PAGE_BYTES);
        uint8_t key[KVL_KEY_BYTES] = {1};
        uint64_t n_tokens;
        struct kvl_conn *conn;
        struct kvl_ns *ns;
        uint32_t pages[2], n;
        struct fake f;

        fake_start(&f, script);
        assert_int_equal(test_connect(&f, 0, &conn), 0);
        assert_int_equal(kvl_ns_open(conn, "chat", &layout, NULL, 0, &ns), 0);
        /* The lease of the last one isn't late. */
        test_limit(conn, (script == script_late_map ? 10 : 1) * SHORT_MSEC);
        if (is_lookup)
                assert_int_equal(kvl_lookup(ns, 0, key, 1, pages, &n, &n_tokens), -ETIMEDOUT);
        else
                assert_int_equal(kvl_lease(ns, 0, 2, pages), -ETIMEDOUT);
        assert_non_null(strstr(kvl_last_error(), "unknown"));
        test_limit(conn, LONG_MSEC);
        if (script != script_late_map) {
                fake_call();
                dispatch_next(conn);
        }
        /* The connection goes on. */
        if (script != script_late_map)
                assert_int_equal(kvl_lease(ns, 0, 2, pages), 0);
        kvl_disconnect(conn);
        fake_stop(&f);
}

TEST(test_late_replies_are_given_back)
{
        late(script_late_lease, false);
        late(script_late_lookup, true);
        late(script_late_map, false);
}

static void script_late_open(struct fake_peer *p)
{
        Kvlease__V1__NsOpenReply m = KVLEASE__V1__NS_OPEN_REPLY__INIT;
        const Kvlease__V1__NsCloseRequest *request;

        fake_welcome(p);
        fake_receive(p, MSG_NS_OPEN);
        fake_await_call();
        m.ns_id = 77;
        fake_reply(p, &m.base);
        request = (const Kvlease__V1__NsCloseRequest *)fake_receive(p, MSG_NS_CLOSE);
        FAKE_CHECK(request->ns_id == 77);
        fake_reply_simple(p, WIRE_OK, "");
        fake_serve(p);
}

FAKE_DAEMON_SCENE(test_late_open_is_closed, script_late_open)
{
        struct kvl_layout layout = test_layout(1, PAGE_BYTES);
        struct kvl_conn *conn;
        struct kvl_ns *ns;

        assert_int_equal(test_connect(f, 0, &conn), 0);
        test_limit(conn, SHORT_MSEC);
        assert_int_equal(kvl_ns_open(conn, "chat", &layout, NULL, 0, &ns), -ETIMEDOUT);
        test_limit(conn, LONG_MSEC);
        fake_call();
        dispatch_next(conn);
        assert_int_equal(kvl_ns_open(conn, "chat", &layout, NULL, 0, &ns), 0);
        kvl_disconnect(conn);
}

/* ---- events and pressure -------------------------------------------------------------------- */

#define N_NOTICES 50 /* more than wait for the handler at once */

static void script_notices(struct fake_peer *p)
{
        Kvlease__V1__NoticeEvent m = KVLEASE__V1__NOTICE_EVENT__INIT;
        uint32_t pages[] = {0, 1};

        fake_welcome_ns(p);
        fake_receive(p, MSG_LEASE);
        m.kind = KVLEASE__V1__NOTICE_EVENT__KIND__MEMBER_LEFT;
        for (int i = 0; i < N_NOTICES; i++) {
                m.client_id = (uint64_t)i;
                fake_send(p, MSG_NOTICE, FRAME_EVENT, 0, &m.base, NULL, 0);
        }
        fake_reply_pages(p, WIRE_OK, pages, 2);
        fake_serve(p);
}

static void in_order(struct kvl_conn *conn, const struct kvl_event *event, void *data)
{
        uint64_t *n = data;

        assert_int_equal(event->type, KVL_EVENT_MEMBER_LEFT);
        assert_int_equal(event->client_id, *n);
        ++*n;
}

FAKE_DAEMON_SCENE(test_many_events, script_notices)
{
        struct kvl_layout layout = test_layout(1, PAGE_BYTES);
        struct kvl_conn *conn;
        struct kvl_ns *ns;
        uint32_t pages[2];
        uint64_t n = 0;

        assert_int_equal(test_connect(f, 5000, &conn), 0);
        kvl_set_event_handler(conn, in_order, &n);
        assert_int_equal(kvl_ns_open(conn, "chat", &layout, NULL, 0, &ns), 0);
        assert_int_equal(kvl_lease(ns, 0, 2, pages), 0);
        assert_int_equal(n, N_NOTICES);
        kvl_disconnect(conn);
}

static void script_deaf_for_a_while(struct fake_peer *p)
{
        fake_welcome_ns(p);
        poll(NULL, 0, 1000);
        fake_serve(p);
}

static void *lease_and_free(void *ns)
{
        uint32_t page;
        int r = kvl_lease(ns, 0, 1, &page);

        if (r == 0)
                r = kvl_free(ns, &page, 1);
        return r == 0 ? ns : NULL;
}

/* The maximum of calls is started. Then several threads wait for room and for replies at once. */
FAKE_DAEMON_SCENE(test_daemon_that_does_not_read, script_deaf_for_a_while)
{
        struct kvl_layout layout = test_layout(1, PAGE_BYTES);
        static uint8_t keys[200 * KVL_KEY_BYTES];
        pthread_t threads[4];
        struct kvl_conn *conn;
        struct kvl_ns *ns;
        struct told told = {0};
        int r = 0, n = 0;
        void *result;

        assert_int_equal(test_connect(f, 30000, &conn), 0);
        assert_int_equal(kvl_ns_open(conn, "chat", &layout, NULL, 0, &ns), 0);
        while ((r = kvl_lookup_start(ns, 0, keys, 200, keep_code, &told)) == 0)
                n++;
        assert_int_equal(r, -EAGAIN);
        assert_int_equal(n, KVL_MAX_STARTED);
        assert_int_equal(kvl_wants_write(conn), 1);
        for (size_t i = 0; i < ARRAY_SIZE(threads); i++)
                assert_int_equal(pthread_create(&threads[i], NULL, lease_and_free, ns), 0);
        for (size_t i = 0; i < ARRAY_SIZE(threads); i++) {
                pthread_join(threads[i], &result);
                assert_ptr_equal(result, ns);
        }
        assert_int_equal(told.code, KVL_MISS);
        assert_int_equal(kvl_wants_write(conn), 0);
        kvl_disconnect(conn);
}

static void script_one_after_the_other(struct fake_peer *p)
{
        uint64_t first, second;
        uint32_t page = 0;

        fake_welcome_ns(p);
        fake_serve_one(p, fake_receive(p, MSG_HELD));
        fake_serve_one(p, fake_receive(p, MSG_MAP));
        fake_receive(p, MSG_LEASE);
        first = p->seq;
        fake_receive(p, MSG_LEASE);
        second = p->seq;
        p->seq = first;
        p->leased[0] = p->leased[1] = 1;
        fake_reply_pages(p, WIRE_OK, &page, 1);
        fake_serve_one(p, fake_receive(p, MSG_FREE));
        poll(NULL, 0, SHORT_MSEC);
        p->type = MSG_LEASE;
        p->seq = second;
        page = 1;
        fake_reply_pages(p, WIRE_OK, &page, 1);
        fake_serve(p);
}

/* The polling thread returns with its answer, and the sleeping one polls from then on. */
FAKE_DAEMON_SCENE(test_reader_hands_on, script_one_after_the_other)
{
        struct kvl_layout layout = test_layout(1, PAGE_BYTES);
        const uint32_t page = 0;
        pthread_t threads[2];
        struct kvl_conn *conn;
        struct kvl_ns *ns;
        void *result;

        assert_int_equal(test_connect(f, 3000, &conn), 0);
        assert_int_equal(kvl_ns_open(conn, "chat", &layout, NULL, 0, &ns), 0);
        assert_int_equal(kvl_map_pages(ns, &page, 1), 0);
        for (int i = 0; i < 2; i++) {
                assert_int_equal(pthread_create(&threads[i], NULL, lease_and_free, ns), 0);
                poll(NULL, 0, SHORT_MSEC / 2); /* the first is the reader */
        }
        for (int i = 0; i < 2; i++) {
                pthread_join(threads[i], &result);
                assert_ptr_equal(result, ns);
        }
        kvl_disconnect(conn);
}

static void script_dies(struct fake_peer *p)
{
        fake_welcome_ns(p);
        fake_receive(p, MSG_LEASE);
        fake_receive(p, MSG_LEASE);
        fake_receive(p, MSG_LEASE);
}

/* Every waiting thread gets an error. */
FAKE_DAEMON_SCENE(test_daemon_that_dies, script_dies)
{
        struct kvl_layout layout = test_layout(1, PAGE_BYTES);
        pthread_t threads[2];
        struct kvl_conn *conn;
        struct kvl_ns *ns;
        struct told told = {0};
        void *result;

        assert_int_equal(test_connect(f, -1, &conn), 0);
        kvl_set_event_handler(conn, count_events, &told);
        assert_int_equal(kvl_ns_open(conn, "chat", &layout, NULL, 0, &ns), 0);
        assert_int_equal(kvl_lease_start(ns, 0, 1, keep_code, &told), 0);
        for (int i = 0; i < 2; i++)
                assert_int_equal(pthread_create(&threads[i], NULL, lease_and_free, ns), 0);
        for (int i = 0; i < 2; i++) {
                pthread_join(threads[i], &result);
                assert_null(result);
        }
        assert_int_equal(kvl_dispatch(conn), -ECONNRESET);
        assert_int_equal(told.code, -ECONNRESET);
        assert_int_equal(told.n_disconnected, 1);
        kvl_disconnect(conn);
}
