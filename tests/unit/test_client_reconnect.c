/*
 * How the library finds a daemon again that went away, over the socket: how long it waits, how it
 * identifies itself, when the connection ends, and the results for callers. Their requests:
 * test_client_resume.c.
 */
#include "base/clock.h"
#include "client/lib/connection/conn-impl.h"
#include "tests/unit/client-resume.h"

/* ---- deadlines and the end ------------------------------------------------------------------ */

static void script_absent(struct fake_peer *p)
{
        p->resumes = true;
        fake_welcome_ns(p);
        while (fake_serve_one(p, fake_receive_any(p)) && p->type != MSG_INVALIDATE)
                ;
        fake_leave(p);
        fake_await_call();
        fake_return(p);
        fake_take_up(p);
        /* The lease that timed out isn't asked for any more; what was to be freed is. */
        FAKE_CHECK(p->n_pending == 0);
        fake_serve_one(p, fake_receive(p, MSG_FREE));
        fake_serve(p);
        fake_check_nothing_held(p);
}

CLIENT_RESUME_SCENE(test_deadline_while_away, script_absent, LONG_MSEC, 0, KVL_CONNECT_NO_SHM)
{
        uint32_t pages[2], more[1];

        assert_int_equal(kvl_lease(c->ns, 0, 2, pages), 0);
        assert_int_equal(kvl_invalidate(c->ns, NULL, NULL), 0);
        while (kvl_is_connected(c->conn))
                resume_dispatch(c);
        test_limit(c->conn, SHORT_MSEC);
        assert_int_equal(kvl_lease(c->ns, 0, 1, more), -ETIMEDOUT);
        assert_non_null(strstr(kvl_last_error(), "away"));
        assert_false(kvl_is_connected(c->conn));
        assert_int_equal(kvl_free(c->ns, pages, 2), -ETIMEDOUT);
        test_limit(c->conn, LONG_MSEC);
        fake_call();
        while (!kvl_is_connected(c->conn))
                resume_dispatch(c);
}

static void script_leaves(struct fake_peer *p)
{
        p->resumes = true;
        fake_welcome_ns(p);
        fake_receive(p, MSG_LEASE);
}

CLIENT_RESUME_SCENE(test_gives_up, script_leaves, LONG_MSEC, SHORT_MSEC, KVL_CONNECT_NO_SHM)
{
        uint32_t page;
        uint64_t began;

        began = clock_now_nsec();
        assert_int_equal(kvl_lease(c->ns, 0, 1, &page), -ENOTCONN);
        assert_true(clock_now_nsec() - began >= SHORT_MSEC * NSEC_PER_MSEC);
        assert_non_null(strstr(kvl_last_error(), "didn't come back within 300 ms"));
        assert_int_equal(c->told.n_away, 1);
        assert_int_equal(c->told.n_gone, 1);
        assert_int_equal(kvl_fd(c->conn), -1);
        assert_int_equal(kvl_lease(c->ns, 0, 1, &page), -ENOTCONN);
}

/* A caller that never waits gets the error, too. */
CLIENT_RESUME_SCENE(
        test_gives_up_in_a_loop, script_leaves, LONG_MSEC, SHORT_MSEC, KVL_CONNECT_NO_SHM)
{
        int code = 1;

        assert_int_equal(kvl_lease_start(c->ns, 0, 1, resume_note_code, &code), 0);
        while (c->told.n_gone == 0)
                resume_dispatch(c);
        assert_int_equal(code, -ENOTCONN);
        assert_int_equal(c->told.n_away, 1);
}

static void answer_hello(struct fake_peer *p, uint32_t status, uint64_t client_id)
{
        Kvlease__V1__HelloReply m = KVLEASE__V1__HELLO_REPLY__INIT;

        fake_accept(p);
        fake_receive(p, MSG_HELLO);
        m.status = status;
        m.version = PROTO_VERSION_MAX;
        m.client_id = client_id;
        m.resume_token.data = (uint8_t *)FAKE_TOKEN;
        m.resume_token.len = 16;
        fake_reply(p, &m.base);
}

static void script_lost(struct fake_peer *p)
{
        script_leaves(p);
        answer_hello(p, WIRE_LOST, 0);
        fake_expect_end(p);
}

static void script_another(struct fake_peer *p)
{
        script_leaves(p);
        answer_hello(p, WIRE_OK, FAKE_CLIENT_ID + 1);
        fake_expect_end(p);
}

static void script_memory_lost(struct fake_peer *p)
{
        script_leaves(p);
        answer_hello(p, WIRE_OK, FAKE_CLIENT_ID);
        fake_receive(p, MSG_RESUME_NS);
        fake_reply_simple(p, WIRE_LOST, "the memory was lost");
        fake_expect_end(p);
}

static void script_refused(struct fake_peer *p)
{
        script_leaves(p);
        answer_hello(p, WIRE_INVALID, 0);
        fake_expect_end(p);
}

static void assert_over(fake_script script, int code, const char *sentence)
{
        struct client c;
        uint32_t page;

        resume_open(&c, script, LONG_MSEC, 0, KVL_CONNECT_NO_SHM);
        assert_int_equal(kvl_lease(c.ns, 0, 1, &page), code);
        assert_non_null(strstr(kvl_last_error(), sentence));
        assert_int_equal(c.told.n_gone, 1);
        assert_int_equal(kvl_free(c.ns, &page, 1), -ENOTCONN);
        resume_close(&c);
}

TEST(test_lost)
{
        assert_over(script_lost, -ESTALE, "connect anew");
        assert_over(script_another, -ESTALE, "connect anew");
        assert_over(script_memory_lost, -ESTALE, "the memory was lost");
        assert_over(script_refused, -ENOTCONN, "");
}

/* Refused for now, hung up in the middle, slow: it goes on. */
static void script_hesitates(struct fake_peer *p)
{
        p->resumes = true;
        fake_welcome_ns(p);
        fake_receive(p, MSG_LEASE);
        answer_hello(p, WIRE_DRAINING, 0);
        answer_hello(p, WIRE_TOO_MANY, 0);
        fake_accept(p);
        fake_receive(p, MSG_HELLO);
        answer_hello(p, WIRE_OK, FAKE_CLIENT_ID);
        fake_receive(p, MSG_RESUME_NS);
        answer_hello(p, WIRE_OK, FAKE_CLIENT_ID);
        fake_receive(p, MSG_RESUME_NS);
        fake_reply_simple(p, WIRE_OK, "");
        fake_receive(p, MSG_RESUMED);
        fake_accept(p);
        poll(NULL, 0, SHORT_MSEC);
        fake_serve(p);
        fake_check_nothing_held(p);
}

CLIENT_RESUME_SCENE(test_daemon_that_hesitates, script_hesitates, LONG_MSEC, 0, KVL_CONNECT_NO_SHM)
{
        uint32_t page;

        assert_int_equal(kvl_lease(c->ns, 0, 1, &page), 0);
        assert_int_equal(kvl_free(c->ns, &page, 1), 0);
        assert_int_equal(c->told.n_away, 1);
        assert_int_equal(c->told.n_back, 1);
}

static void script_challenges(struct fake_peer *p)
{
        Kvlease__V1__HelloReply m = KVLEASE__V1__HELLO_REPLY__INIT;
        Kvlease__V1__ChallengeEvent event = KVLEASE__V1__CHALLENGE_EVENT__INIT;
        const Kvlease__V1__AuthRequest *auth;

        script_leaves(p);
        fake_accept(p);
        fake_receive(p, MSG_HELLO);
        m.version = PROTO_VERSION_MAX;
        m.client_id = FAKE_CLIENT_ID;
        m.resume_token.data = (uint8_t *)FAKE_TOKEN;
        m.resume_token.len = 16;
        m.auth_required = true;
        fake_reply(p, &m.base);
        event.nonce.data = (uint8_t *)"fedcba9876543210";
        event.nonce.len = 16;
        fake_send(p, MSG_CHALLENGE, FRAME_EVENT, 0, &event.base, NULL, 0);
        auth = (const Kvlease__V1__AuthRequest *)fake_receive(p, MSG_AUTH);
        FAKE_CHECK(auth->nonce.len == 16 && memcmp(auth->nonce.data, event.nonce.data, 16) == 0);
        fake_reply_simple(p, WIRE_OK, "");
        fake_take_up(p);
        fake_serve(p);
}

CLIENT_RESUME_SCENE(test_challenge, script_challenges, LONG_MSEC, 0, KVL_CONNECT_NO_SHM)
{
        uint32_t page;

        assert_int_equal(kvl_lease(c->ns, 0, 1, &page), 0);
}

TEST(test_back_off)
{
        for (unsigned n = 1; n <= 100; n++) {
                uint64_t most = n <= 7 ? (UINT64_C(10) << (n - 1)) : 1000;

                for (uint64_t random = 0; random < 1000; random++) {
                        uint64_t wait = conn_back_off(n, random * UINT64_C(0x9e3779b97f4a7c15));

                        assert_in_range(wait, most / 2 * NSEC_PER_MSEC, most * NSEC_PER_MSEC);
                }
                assert_int_not_equal(conn_back_off(n, 1), conn_back_off(n, 12345678));
        }
}

/* ---- disconnecting -------------------------------------------------------------------------- */

/* The daemon comes back within the second that kvl_disconnect() waits, and gets the BYE. */
static void script_back_for_bye(struct fake_peer *p)
{
        const ProtobufCMessage *m;

        p->resumes = true;
        fake_welcome_ns(p);
        fake_leave(p);
        poll(NULL, 0, SHORT_MSEC);
        fake_return(p);
        fake_take_up(p);
        FAKE_CHECK(p->n_resume_ns == 0);
        m = fake_receive(p, MSG_BYE);
        FAKE_CHECK(!fake_serve_one(p, m));
}

static void script_gone(struct fake_peer *p)
{
        p->resumes = true;
        fake_welcome_ns(p);
        fake_leave(p);
}

static void assert_disconnects(fake_script script, uint64_t most_msec)
{
        uint64_t began;
        struct client c;

        resume_open(&c, script, LONG_MSEC, 0, KVL_CONNECT_NO_SHM);
        while (kvl_is_connected(c.conn))
                resume_dispatch(&c);
        began = clock_now_nsec();
        resume_close(&c);
        assert_true(clock_now_nsec() - began < most_msec * NSEC_PER_MSEC);
}

TEST(test_disconnect_while_away)
{
        assert_disconnects(script_back_for_bye, 5000);
        assert_disconnects(script_gone, 5000);
}
