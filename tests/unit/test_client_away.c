/* Shared memory while the daemon is away, and the client's report when it is back. Over the socket:
 * test_client_resume.c. */
#include <pthread.h>

#include "base/clock.h"
#include "tests/unit/client-resume.h"

#define SMALL_PAGE_BYTES 4096
#define AWAY_MSEC        400 /* that a client may wait in vain first */

static void welcome_shared(struct fake_peer *p)
{
        p->resumes = p->shares = true;
        fake_welcome(p);
        fake_serve_one(p, fake_receive(p, MSG_SHM_OPEN));
        fake_serve_one(p, fake_receive(p, MSG_NS_OPEN));
        fake_share_ns(p);
}

/* Serves requests until a MSG_INVALIDATE, the client's order to leave. */
static void serve_until_order(struct fake_peer *p)
{
        do {
                while (!p->is_resuming && p->has_rings && !fake_rings_sleep(&p->rings))
                        fake_serve_one(p, NULL);
                FAKE_CHECK(fake_serve_one(p, fake_receive_any(p)));
        } while (p->type != MSG_INVALIDATE);
}

static void give_order(struct client *c)
{
        assert_int_equal(kvl_invalidate(c->ns, NULL, NULL), 0);
}

static void wait_until_away(struct client *c)
{
        while (kvl_is_connected(c->conn))
                resume_dispatch(c);
}

static void wait_until_back(struct client *c)
{
        while (!kvl_is_connected(c->conn))
                resume_dispatch(c);
}

static void open_shared(struct client *c, fake_script script, int timeout_msec)
{
        struct kvl_layout layout = test_layout(1, SMALL_PAGE_BYTES);

        resume_connect(c, script, timeout_msec, 0, 0);
        assert_int_equal(kvl_ns_open(c->conn, "chat", &layout, NULL, 0, &c->ns), 0);
        assert_int_equal(kvl_uses_shm(c->ns), 1);
}

#define SCENE(fn, ...) TEST_ON(fn, struct client, c, open_shared, resume_close, ##__VA_ARGS__)

static struct kvl_publish publish_of(const uint32_t *page, const uint8_t *key)
{
        return (struct kvl_publish){
                .size = sizeof(struct kvl_publish),
                .pages = page,
                .keys = key,
                .n_pages = 1,
                .last_tokens = 16,
        };
}

/* ---- the fast path -------------------------------------------------------------------------- */

static void script_away_for_a_while(struct fake_peer *p)
{
        welcome_shared(p);
        serve_until_order(p);
        /* The state of a daemon that was killed while it filled the magazine, about to ring. */
        p->shared_pins.header->refill_asked = 1;
        atomic_store(&p->rings.header->client_sleeps, 0);
        fake_leave(p);
        fake_await_call();
        fake_return(p);
        fake_take_up(p);
        FAKE_CHECK(p->n_resume_ns == 1 && p->is_mapped[0] && !p->is_mapped[1]);
        FAKE_CHECK(p->said_shares);
        fake_serve_one(p, fake_receive(p, MSG_DOORBELL));
        FAKE_CHECK(p->shared_pins.header->refill_asked == 0);
        fake_serve(p);
        fake_check_nothing_held(p);
}

static void count_ok(struct kvl_ns *ns, int code, const uint32_t *pages, uint32_t n_pages,
        uint64_t n_tokens, void *data)
{
        assert_int_equal(code, 0);
        ++*(unsigned *)data;
}

TEST(test_fast_path_goes_on)
{
        uint8_t keys[3][KVL_KEY_BYTES];
        uint32_t pages[2], found, leased, n_pages;
        struct kvl_publish publish;
        unsigned n_done = 0;
        uint64_t n_tokens;
        struct client c;

        for (uint32_t i = 0; i < 3; i++)
                test_key(keys[i], i);
        open_shared(&c, script_away_for_a_while, LONG_MSEC);
        assert_int_equal(kvl_lease(c.ns, 0, 2, pages), 0);
        publish = publish_of(&pages[0], keys[0]);
        assert_int_equal(kvl_publish(c.ns, &publish, NULL, NULL), 0);
        give_order(&c);
        wait_until_away(&c);
        assert_int_equal(kvl_lookup(c.ns, 0, keys[0], 1, &found, &n_pages, &n_tokens), 0);
        assert_int_equal(found, pages[0]);
        assert_int_equal(kvl_release(c.ns, &found, 1), 0);
        assert_int_equal(kvl_lookup(c.ns, 0, keys[1], 1, &found, &n_pages, &n_tokens), KVL_MISS);
        assert_int_equal(kvl_lease(c.ns, 0, 1, &leased), 0);
        assert_int_equal(kvl_page_write(c.ns, leased, 0, 0, "written while away", 18), 0);
        publish = publish_of(&leased, keys[1]);
        assert_int_equal(kvl_publish_start(c.ns, &publish, count_ok, &n_done), 0);
        assert_int_equal(kvl_safepoint(c.conn, NULL), 0);
        assert_false(kvl_is_connected(c.conn));
        assert_int_equal(n_done, 0);
        fake_call();
        publish = publish_of(&pages[1], keys[2]);
        assert_int_equal(kvl_publish(c.ns, &publish, NULL, NULL), 0);
        assert_int_equal(n_done, 1);
        assert_int_equal(c.told.n_away, 1);
        assert_int_equal(c.told.n_back, 1);
        assert_int_equal(kvl_lookup(c.ns, 0, keys[1], 1, &found, &n_pages, &n_tokens), 0);
        assert_int_equal(found, leased);
        assert_int_equal(kvl_release(c.ns, &found, 1), 0);
        assert_int_equal(kvl_release(c.ns, pages, 2), 0);
        assert_int_equal(kvl_release(c.ns, &leased, 1), 0);
        resume_close(&c);
}

static void script_away_with_a_full_ring(struct fake_peer *p)
{
        welcome_shared(p);
        serve_until_order(p);
        fake_leave(p);
        fake_await_call();
        fake_return(p);
        fake_serve(p);
        fake_check_nothing_held(p);
}

TEST(test_full_ring)
{
        enum { N = SHM_SUB_ENTRIES + 100 };
        static uint32_t pages[N];
        unsigned n_started = 0, n_done = 0;
        struct client c;

        open_shared(&c, script_away_with_a_full_ring, LONG_MSEC);
        assert_int_equal(kvl_lease(c.ns, 0, N, pages), 0);
        give_order(&c);
        wait_until_away(&c);
        /* A request that doesn't fit the ring waits for it. */
        for (; n_started < N - 1; n_started++)
                assert_int_equal(kvl_free_start(c.ns, &pages[n_started], 1, count_ok, &n_done), 0);
        test_limit(c.conn, AWAY_MSEC);
        assert_int_equal(kvl_free(c.ns, &pages[n_started], 1), -ETIMEDOUT);
        test_limit(c.conn, LONG_MSEC);
        assert_false(kvl_is_connected(c.conn));
        fake_call();
        while (n_done < n_started)
                resume_dispatch(&c);
        /* Nothing of the one that timed out was ever submitted. */
        assert_int_equal(kvl_free(c.ns, &pages[n_started], N - n_started), 0);
        resume_close(&c);
}

/* ---- what it is told ------------------------------------------------------------------------ */

/* The daemon recalls a set that the client has already reported as unmapped. */
static void script_asks_twice(struct fake_peer *p)
{
        welcome_shared(p);
        serve_until_order(p);
        for (unsigned i = 0; i < 2; i++) {
                fake_recall(p, 0, true, 60000);
                serve_until_order(p);
                while (fake_receive_any(p) && p->type != MSG_UNMAPPED)
                        ;
                fake_reply_simple(p, i == 0 ? WIRE_OK : WIRE_NOT_FOUND, "it isn't mapped");
        }
        fake_serve(p);
        fake_check_nothing_held(p);
}

SCENE(test_unmapped_already, script_asks_twice, LONG_MSEC)
{
        uint32_t page;

        assert_int_equal(kvl_lease(c->ns, 0, 1, &page), 0);
        assert_int_equal(kvl_free(c->ns, &page, 1), 0);
        give_order(c);
        give_order(c);
        assert_int_equal(kvl_safepoint(c->conn, NULL), 1);
        give_order(c);
        assert_int_equal(kvl_safepoint(c->conn, NULL), 0);
}

/* Answers a request of this type, and tells of something else before that; dies of what the client
 * asks then. */
static void answer_and_die(struct fake_peer *p, uint16_t type)
{
        Kvlease__V1__NoticeEvent event = KVLEASE__V1__NOTICE_EVENT__INIT;
        const ProtobufCMessage *m;

        while ((m = fake_receive_any(p)) && p->type != type)
                fake_serve_one(p, m);
        event.kind = KVLEASE__V1__NOTICE_EVENT__KIND__DRAIN;
        fake_send(p, MSG_NOTICE, FRAME_EVENT, 0, &event.base, NULL, 0);
        fake_serve_one(p, m);
        fake_receive(p, MSG_INVALIDATE);
        fake_accept(p);
        fake_take_up(p);
}

static void script_session_and_die(struct fake_peer *p)
{
        p->resumes = true;
        fake_welcome_ns(p);
        answer_and_die(p, MSG_SESSION_OPEN);
        FAKE_CHECK(p->n_resume_ns == 1 && p->n_reopened == 1);
        fake_serve(p);
}

static void script_close_and_die(struct fake_peer *p)
{
        p->resumes = true;
        fake_welcome_ns(p);
        answer_and_die(p, MSG_SESSION_CLOSE);
        FAKE_CHECK(p->n_resume_ns == 1 && p->n_reopened == 0);
        fake_serve(p);
}

static void script_ns_and_die(struct fake_peer *p)
{
        p->resumes = true;
        fake_welcome_ns(p);
        answer_and_die(p, MSG_NS_OPEN);
        FAKE_CHECK(p->n_resume_ns == 2);
        fake_serve(p);
}

static void invalidate_on_drain(struct kvl_conn *conn, const struct kvl_event *event, void *data)
{
        struct client *c = data;

        resume_on_event(conn, event, data);
        if (event->type == KVL_EVENT_DRAIN)
                give_order(c);
}

/* A restart while the call that opened or closed them hasn't returned yet, as a callback runs in
 * it. */
CLIENT_RESUME_SCENE(
        test_opened_a_moment_ago, script_session_and_die, LONG_MSEC, 0, KVL_CONNECT_NO_SHM)
{
        struct kvl_layout layout = test_layout(1, PAGE_BYTES);
        struct kvl_session *session;
        struct kvl_ns *more;

        kvl_set_event_handler(c->conn, invalidate_on_drain, c);
        assert_int_equal(kvl_session_open(c->ns, "s", 1, NULL, NULL, &session), 0);
        assert_int_equal(c->told.n_back, 1);
        resume_close(c);
        resume_open(c, script_close_and_die, LONG_MSEC, 0, KVL_CONNECT_NO_SHM);
        kvl_set_event_handler(c->conn, invalidate_on_drain, c);
        assert_int_equal(kvl_session_open(c->ns, "s", 1, NULL, NULL, &session), 0);
        assert_int_equal(kvl_session_close(session, 0), 0);
        assert_int_equal(c->told.n_back, 1);
        resume_close(c);
        resume_open(c, script_ns_and_die, LONG_MSEC, 0, KVL_CONNECT_NO_SHM);
        kvl_set_event_handler(c->conn, invalidate_on_drain, c);
        assert_int_equal(kvl_ns_open(c->conn, "more", &layout, NULL, 0, &more), 0);
        assert_int_equal(c->told.n_back, 1);
}

/* Over the socket: they are no calls that anybody waits for. */
static void script_expects_hints(struct fake_peer *p)
{
        const Kvlease__V1__SessionHintRequest *hint;

        p->resumes = true;
        fake_welcome_ns(p);
        while (fake_serve_one(p, fake_receive_any(p)) && p->type != MSG_INVALIDATE)
                ;
        fake_leave(p);
        fake_await_call();
        fake_return(p);
        fake_take_up(p);
        hint = (const Kvlease__V1__SessionHintRequest *)fake_receive(p, MSG_SESSION_HINT);
        FAKE_CHECK(hint->session == 1 && hint->hint == KVL_HINT_DONE);
        fake_serve_one(p, &hint->base);
        fake_serve_one(p, fake_receive(p, MSG_REQUEST_END));
        fake_serve(p);
}

CLIENT_RESUME_SCENE(test_hints_while_away, script_expects_hints, LONG_MSEC, 0, KVL_CONNECT_NO_SHM)
{
        struct kvl_session *session;

        assert_int_equal(kvl_session_open(c->ns, "s", 1, NULL, NULL, &session), 0);
        give_order(c);
        wait_until_away(c);
        assert_int_equal(kvl_session_hint(session, KVL_HINT_DONE, 0), 0);
        assert_int_equal(kvl_request_end(c->ns, 1), 0);
        fake_call();
        wait_until_back(c);
        give_order(c);
}
