/*
 * Leases of a client that has a magazine in shared memory: the library takes pages from there, asks
 * the daemon for those that it lacks, and gives back what it took before it waits for others.
 */
#include "tests/unit/client-lease-fixture.h"

/* Pages 0 to 2 are in it; the client knows once its INVALIDATE is answered. */
static void put_into_magazine(struct fake_peer *p)
{
        receive(p, MSG_INVALIDATE);
        for (uint32_t page = 0; page < 3; page++)
                fake_pins_put(&p->shared_pins, page);
        fake_reply_simple(p, WIRE_OK, "");
}

static void welcome_shared(struct fake_peer *p)
{
        fake_welcome(p);
        fake_share(p);
        fake_serve_one(p, fake_receive(p, MSG_NS_OPEN));
        fake_share_ns(p);
        put_into_magazine(p);
}

static void expect_given_back(struct fake_peer *p)
{
        const Kvlease__V1__FreeRequest *m = (const Kvlease__V1__FreeRequest *)receive(p, MSG_FREE);

        FAKE_CHECK(p->flags & FRAME_NO_REPLY);
        FAKE_CHECK(m->n_pages == 3 && m->pages[0] == 0 && m->pages[2] == 2);
}

static void script_magazine_whole(struct fake_peer *p)
{
        welcome_shared(p);
        fake_receive_any(p);
        fake_expect_end(p);
}

/* Nothing is asked. */
CLIENT_SCENE(test_whole_from_magazine, script_magazine_whole, LONG_MSEC, KVL_CONNECT_METADATA_ONLY)
{
        struct kvl_lease_result result;
        struct outcome o = {0};

        assert_true(kvl_uses_shm(c->ns));
        assert_int_equal(kvl_invalidate(c->ns, NULL, NULL), 0);
        assert_int_equal(lease_with(c, 2, 1, 5, &result), 0);
        assert_result(&result, 2, KVL_REASON_NONE, 0);
        assert_int_equal(kvl_lease_with_start(c->ns, 0, 1, NULL, note, &o), 0);
        dispatch_until(c->conn, &o.n_calls, 1);
        assert_true(o.code == 0 && o.pages[0] == 2);
        assert_result(&o.result, 1, KVL_REASON_NONE, 0);
}

static void script_magazine_run(struct fake_peer *p)
{
        const Kvlease__V1__LeaseRequest *m;

        welcome_shared(p);
        m = receive_lease(p);
        FAKE_CHECK(m->n_pages == 2 && m->contiguous == 1 && !m->holds_some);
        answer_lease(p, (struct answer){.n_pages = 2, .first = 8});
        fake_expect_end(p);
}

/* Its pages lie anywhere; one page of it is a run. */
CLIENT_SCENE(test_run_beside_magazine, script_magazine_run, LONG_MSEC, KVL_CONNECT_METADATA_ONLY)
{
        struct kvl_lease_options o = {.size = sizeof(o), .flags = KVL_LEASE_CONTIGUOUS};
        uint32_t pages[2];

        assert_int_equal(kvl_invalidate(c->ns, NULL, NULL), 0);
        assert_int_equal(kvl_lease_with(c->ns, 0, 1, &o, pages, NULL), 0);
        assert_int_equal(pages[0], 0);
        assert_int_equal(kvl_lease_with(c->ns, 0, 2, &o, pages, NULL), 0);
        assert_true(pages[0] == 8 && pages[1] == 9);
}

/* Enough are of use already: only the daemon may say that no more than these are to be had. */
static void script_magazine_enough(struct fake_peer *p)
{
        const Kvlease__V1__LeaseRequest *m;

        welcome_shared(p);
        expect_given_back(p);
        m = receive_lease(p);
        FAKE_CHECK(m->n_pages == 8 && m->min_pages == 3 && !m->holds_some);
        answer_lease(p, (struct answer){.n_pages = 3, .reason = KVL_REASON_DEGRADED});
        fake_expect_end(p);
}

CLIENT_SCENE(test_enough_in_magazine, script_magazine_enough, LONG_MSEC, KVL_CONNECT_METADATA_ONLY)
{
        struct kvl_lease_result result;

        assert_int_equal(kvl_invalidate(c->ns, NULL, NULL), 0);
        assert_int_equal(lease_with(c, 8, 3, 0, &result), 0);
        assert_result(&result, 3, KVL_REASON_DEGRADED, 0);
}

/* The lease would have to wait: nothing is held meanwhile. */
static void script_magazine_held(struct fake_peer *p)
{
        const Kvlease__V1__LeaseRequest *m;

        welcome_shared(p);
        for (int i = 0; i < 2; i++) {
                m = receive_lease(p);
                FAKE_CHECK(m->n_pages == 5 && m->holds_some);
                answer_lease(p, (struct answer){.status = WIRE_BUSY});
                expect_given_back(p);
                m = receive_lease(p);
                FAKE_CHECK(m->n_pages == 8 && m->request_id == 9 && !m->holds_some);
                answer_lease(p, (struct answer){.n_pages = 8, .reason = 3, .waited_usec = 6});
                put_into_magazine(p);
        }
        m = receive_lease(p);
        FAKE_CHECK(m->n_pages == 5 && !m->holds_some && m->no_wait);
        answer_lease(p, (struct answer){.status = WIRE_FULL});
        expect_given_back(p);
        fake_expect_end(p);
}

CLIENT_SCENE(test_nothing_is_held_while_it_waits, script_magazine_held, LONG_MSEC,
        KVL_CONNECT_METADATA_ONLY)
{
        struct kvl_lease_result result;
        uint32_t pages[8];

        assert_int_equal(kvl_invalidate(c->ns, NULL, NULL), 0);
        assert_int_equal(lease_with(c, 8, 0, 0, &result), 0);
        assert_result(&result, 8, KVL_REASON_POOL_FULL, 6);
        assert_int_equal(kvl_invalidate(c->ns, NULL, NULL), 0);
        assert_int_equal(kvl_lease(c->ns, 9, 8, pages), 0);
        for (uint32_t i = 0; i < 8; i++)
                assert_int_equal(pages[i], i);
        assert_int_equal(kvl_invalidate(c->ns, NULL, NULL), 0);
        assert_int_equal(lease_with(c, 8, 0, -1, &result), KVL_FULL);
        assert_result(&result, 0, KVL_REASON_POOL_FULL, 0);
}
