/*
 * Leases that wait, get fewer pages or none: what the library asks for, tells, and does meanwhile.
 * With pages in a magazine: test_client_lease_magazine.c. The daemon's side of it:
 * tests/integration.
 */
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>

#include "base/clock.h"
#include "tests/unit/client-lease-fixture.h"

#define METADATA (KVL_CONNECT_METADATA_ONLY | KVL_CONNECT_NO_SHM)

/* ---- what is asked for, what is told -------------------------------------------------------- */

/* Answers of a daemon without reasons, and of one with reasons that the library doesn't know. */
static const struct {
        struct answer a;
        int code, reason;
} refusals[] = {
        {{.status = WIRE_QUOTA, .reason = 1}, KVL_QUOTA, KVL_REASON_QUOTA},
        {{.status = WIRE_RESERVATION, .reason = 2}, KVL_RESERVATION, KVL_REASON_RESERVATION_FULL},
        {{.status = WIRE_FULL, .reason = 3}, KVL_FULL, KVL_REASON_POOL_FULL},
        {{.status = WIRE_TIMEOUT, .reason = 4, .waited_usec = UINT64_C(1) << 40}, KVL_TIMEOUT,
                KVL_REASON_DEADLINE},
        {{.status = WIRE_DRAINING, .reason = 6}, KVL_DRAINING, KVL_REASON_DRAINING},
        {{.status = WIRE_FULL, .reason = 7}, KVL_FULL, KVL_REASON_DEVICE},
        {{.status = WIRE_FULL, .reason = 200}, KVL_FULL, 200},
        {{.status = WIRE_QUOTA}, KVL_QUOTA, KVL_REASON_QUOTA},
        {{.status = WIRE_RESERVATION}, KVL_RESERVATION, KVL_REASON_RESERVATION_FULL},
        {{.status = WIRE_FULL}, KVL_FULL, KVL_REASON_POOL_FULL},
        {{.status = WIRE_TIMEOUT}, KVL_TIMEOUT, KVL_REASON_DEADLINE},
        {{.status = WIRE_DRAINING}, KVL_DRAINING, KVL_REASON_DRAINING},
        {{.status = WIRE_STALE}, KVL_STALE, KVL_REASON_NONE},
        {{.status = WIRE_IO}, -EIO, KVL_REASON_NONE},
        {{.status = WIRE_BUSY}, -EBUSY, KVL_REASON_NONE},
};

static void script_refuse(struct fake_peer *p)
{
        fake_welcome_ns(p);
        for (size_t i = 0; i < ARRAY_SIZE(refusals); i++) {
                receive_lease(p);
                answer_lease(p, refusals[i].a);
        }
        fake_expect_end(p);
}

CLIENT_SCENE(test_refusals, script_refuse, LONG_MSEC, METADATA)
{
        struct kvl_lease_result result;

        for (size_t i = 0; i < ARRAY_SIZE(refusals); i++) {
                assert_int_equal(lease_with(c, 8, 2, 5, &result), refusals[i].code);
                assert_result(&result, 0, refusals[i].reason, refusals[i].a.waited_usec);
                assert_string_equal(kvl_last_error(), kvl_strerror(refusals[i].code));
        }
}

/* ---- pages with consecutive numbers --------------------------------------------------------- */

static void script_one(struct fake_peer *p)
{
        fake_welcome_ns(p);
        receive_lease(p);
        answer_lease(p, (struct answer){.n_pages = 2, .reason = 3, .waited_usec = 7});
        fake_expect_end(p);
}

CLIENT_SCENE(test_arguments, script_one, LONG_MSEC, METADATA)
{
        struct kvl_lease_options options = {.size = sizeof(options), .min_pages = 3};
        struct kvl_lease_result result = {.size = sizeof(result), .n_pages = 77};
        uint32_t pages[2];

        assert_int_equal(kvl_lease_with(c->ns, 0, 2, &options, pages, &result), -EINVAL);
        assert_non_null(strstr(kvl_last_error(), "min_pages is 3"));
        assert_int_equal(result.n_pages, 0);
        assert_int_equal(kvl_lease_with_start(c->ns, 0, 2, &options, NULL, NULL), -EINVAL);
        options.size = 0;
        assert_int_equal(kvl_lease_with(c->ns, 0, 4, &options, pages, &result), -EINVAL);
        assert_int_equal(kvl_lease_with(c->ns, 0, 0, NULL, pages, &result), -EINVAL);
        assert_int_equal(kvl_lease_with(c->ns, 0, 2, NULL, NULL, &result), -EINVAL);
        assert_int_equal(kvl_lease_with(NULL, 0, 2, NULL, pages, &result), -EINVAL);
        result.size = 0;
        assert_int_equal(kvl_lease_with(c->ns, 0, 2, NULL, pages, &result), -EINVAL);
        /* A program of a time when results had two fields. */
        result = (struct kvl_lease_result){
                .size = offsetof(struct kvl_lease_result, waited_usec), .waited_usec = 55};
        assert_int_equal(kvl_lease_with(c->ns, 0, 2, NULL, pages, &result), 0);
        assert_result(&result, 2, KVL_REASON_POOL_FULL, 55);
}

static void script_safepoints(struct fake_peer *p)
{
        const Kvlease__V1__HelloRequest *m =
                (const Kvlease__V1__HelloRequest *)fake_receive(p, MSG_HELLO);

        FAKE_CHECK(m->safepoints && !m->metadata_only);
        fake_reply_simple(p, WIRE_DENIED, "");
        fake_accept(p);
        m = (const Kvlease__V1__HelloRequest *)fake_receive(p, MSG_HELLO);
        FAKE_CHECK(!m->safepoints);
        fake_reply_simple(p, WIRE_DENIED, "");
        fake_expect_end(p);
}

FAKE_DAEMON_SCENE(test_safepoints_are_declared, script_safepoints)
{
        struct kvl_conn *conn;

        assert_int_equal(test_connect_flags(f, LONG_MSEC, KVL_CONNECT_SAFEPOINTS, &conn), -EACCES);
        assert_int_equal(test_connect_flags(f, LONG_MSEC, 0, &conn), -EACCES);
}

/* ---- time ----------------------------------------------------------------------------------- */

#define SHORT_MSEC 500

/* Answers when the connection's timeout is over. */
static void script_slow(struct fake_peer *p)
{
        struct pollfd pfd = {.events = POLLIN};

        fake_welcome_ns(p);
        FAKE_CHECK(receive_lease(p)->max_wait_msec == LONG_MSEC);
        pfd.fd = p->fd;
        FAKE_CHECK(poll(&pfd, 1, 3 * SHORT_MSEC / 2) == 0);
        answer_lease(p, (struct answer){.n_pages = 1, .reason = 3, .waited_usec = 1});
        fake_expect_end(p);
}

CLIENT_SCENE(test_wait_outlasts_timeout, script_slow, LONG_MSEC, METADATA)
{
        struct kvl_lease_result result;

        test_limit(c->conn, SHORT_MSEC);
        assert_int_equal(lease_with(c, 1, 0, LONG_MSEC, &result), 0);
        assert_result(&result, 1, KVL_REASON_POOL_FULL, 1);
}

/* Answers only after the library gave up: what that brings must come back. */
static void script_late(struct fake_peer *p)
{
        const Kvlease__V1__FreeRequest *m;
        const Kvlease__V1__RequestEndRequest *over;
        uint64_t seq;

        fake_welcome_ns(p);
        receive_lease(p);
        seq = p->seq;
        over = (const Kvlease__V1__RequestEndRequest *)fake_receive(p, MSG_REQUEST_END);
        FAKE_CHECK(over->request_id == 9 && over->ending == 0);
        over = (const Kvlease__V1__RequestEndRequest *)fake_receive(p, MSG_REQUEST_END);
        FAKE_CHECK(over->request_id == 10 && over->ending == 77);
        send_lease(p, seq, (struct answer){.n_pages = 5, .first = 20});
        fake_receive(p, MSG_INVALIDATE);
        fake_reply_simple(p, WIRE_OK, "");
        m = (const Kvlease__V1__FreeRequest *)fake_receive(p, MSG_FREE);
        FAKE_CHECK(m->n_pages == 5 && m->pages[0] == 20 && m->pages[4] == 24);
        fake_expect_end(p);
}

CLIENT_SCENE(test_late_answer_is_given_back, script_late, LONG_MSEC, METADATA)
{
        uint64_t start = clock_now_nsec();
        struct kvl_lease_result result;

        test_limit(c->conn, SHORT_MSEC);
        assert_int_equal(lease_with(c, 8, 2, 300, &result), -ETIMEDOUT);
        test_limit(c->conn, LONG_MSEC);
        assert_result(&result, 0, KVL_REASON_NONE, 0);
        assert_true(clock_now_nsec() - start >= (SHORT_MSEC + 300) * NSEC_PER_MSEC);
        assert_int_equal(kvl_request_end(c->ns, 9), 0);
        assert_int_equal(kvl_request_end_as(c->ns, 10, 77), 0);
        assert_int_equal(kvl_invalidate(c->ns, NULL, NULL), 0);
}

/* ---- meanwhile ------------------------------------------------------------------------------ */

struct blocked {
        struct client *client;
        int code;
        uint32_t pages[8];
        _Atomic bool is_done;
};
