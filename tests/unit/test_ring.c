/* The rings: by themselves, and what goes through them with a daemon that is slow, lies or dies. */
#include <poll.h>

#include "client/lib/shared/ring.h"
#include "tests/unit/client-support.h"

#define SHORT_MSEC 100

/* ---- the rings themselves ------------------------------------------------------------------- */

struct world {
        struct fake_rings daemon;
        struct ring ring;
};

static void world_open(struct world *w)
{
        fake_rings_open(&w->daemon, 1);
        ring_init(&w->ring, w->daemon.header);
}

static void world_close(struct world *w)
{
        fake_rings_close(&w->daemon);
}

#define SCENE(fn, ...) TEST_ON(fn, struct world, w, world_open, world_close, ##__VA_ARGS__)

static void submit(struct world *w, uint32_t n, uint64_t *number)
{
        assert_true(ring_begin(&w->ring) >= (int)n);
        for (uint32_t i = 0; i < n; i++)
                ring_entry(&w->ring, i, SHM_OP_FREE, 7, 0)->user_data = (*number)++;
        ring_commit(&w->ring, n);
}

static void take(struct world *w, uint32_t n, uint64_t *number)
{
        struct shm_submission s;

        for (uint32_t i = 0; i < n; i++) {
                assert_true(fake_rings_take(&w->daemon, &s));
                assert_true(s.op == SHM_OP_FREE && s.ns_id == 7 && s.user_data == (*number)++);
                assert_true(s.page == 0 && s.pages[7] == 0);
        }
}

/* Does it want the daemon woken? */
static bool touch_wakes(struct world *w)
{
        const struct shm_submission touch = {.op = SHM_OP_TOUCH};
        bool wakes;

        assert_true(ring_touch(&w->ring, &touch, &wakes));
        return wakes;
}

SCENE(test_full_ring)
{
        const struct shm_submission touch = {.op = SHM_OP_TOUCH};
        uint64_t n_in = 0, n_out = 0;
        struct shm_submission s;
        bool wakes;

        submit(w, RING_LOSSY_ENTRIES - 1, &n_in);
        assert_false(ring_is_busy(&w->ring));
        assert_true(ring_try_submit(&w->ring, &touch, RING_LOSSY_ENTRIES));
        assert_true(ring_is_busy(&w->ring));
        assert_false(ring_try_submit(&w->ring, &touch, RING_LOSSY_ENTRIES));
        assert_false(ring_touch(&w->ring, &touch, &wakes));
        assert_int_equal(w->daemon.header->n_touches_dropped, 1);
        submit(w, SHM_SUB_ENTRIES - RING_LOSSY_ENTRIES, &n_in);
        assert_int_equal(ring_begin(&w->ring), 0);
        ring_commit(&w->ring, 0);
        take(w, RING_LOSSY_ENTRIES - 1, &n_out);
        assert_true(fake_rings_take(&w->daemon, &s) && s.op == SHM_OP_TOUCH);
        take(w, 1, &n_out);
        /* The lock was busy a moment ago, so some touches are skipped without trying it. */
        for (int i = 1; i < RING_SKIP_TOUCHES; i++)
                assert_true(ring_is_busy(&w->ring));
        assert_false(ring_is_busy(&w->ring));
        /* Another thread is submitting: a touch doesn't wait. */
        assert_int_equal(ring_begin(&w->ring), RING_LOSSY_ENTRIES + 1);
        assert_false(ring_touch(&w->ring, &touch, &wakes));
        ring_commit(&w->ring, 0);
        assert_int_equal(w->daemon.header->n_touches_dropped, 2);
        /* A daemon that has taken what wasn't there. */
        w->daemon.header->sub_head = w->ring.tail + 1;
        assert_int_equal(ring_begin(&w->ring), -EPROTO);
}

SCENE(test_doorbells)
{
        struct shm_submission s;

        assert_false(ring_take_doorbell(&w->ring));
        assert_true(fake_rings_sleep(&w->daemon));
        for (int i = 1; i < RING_WAKE_ENTRIES; i++)
                assert_false(touch_wakes(w));
        assert_true(touch_wakes(w));
        assert_true(ring_take_doorbell(&w->ring));
        assert_false(ring_take_doorbell(&w->ring));
        assert_false(touch_wakes(w));
        ring_return_doorbell(&w->ring);
        assert_true(touch_wakes(w));
        assert_false(fake_rings_sleep(&w->daemon));
        while (fake_rings_take(&w->daemon, &s))
                ;
        assert_false(touch_wakes(w));
}

/* ---- with a daemon -------------------------------------------------------------------------- */

static struct kvl_publish publish_of(const uint32_t *pages, const uint8_t *keys, uint32_t n)
{
        return (struct kvl_publish){.size = sizeof(struct kvl_publish),
                .pages = pages,
                .keys = keys,
                .n_pages = n,
                .last_tokens = 16};
}

static void open_shared(struct fake *f, fake_script script, int timeout_msec,
        struct kvl_conn **conn, struct kvl_ns **ns)
{
        struct kvl_layout layout = test_layout(1, 64);

        fake_start(f, script);
        assert_int_equal(test_connect_shared(f, timeout_msec, conn), 0);
        assert_int_equal(kvl_ns_open(*conn, "chat", &layout, NULL, 0, ns), 0);
        assert_int_equal(kvl_uses_shm(*ns), 1);
}

static void welcome_shared(struct fake_peer *p)
{
        fake_welcome(p);
        fake_share(p);
        p->type = 0;
        fake_serve_one(p, fake_receive(p, MSG_NS_OPEN));
        fake_share_ns(p);
}

static void test_keys(uint8_t *keys, uint32_t n)
{
        for (uint32_t i = 0; i < n; i++)
                test_key(keys + i * KVL_KEY_BYTES, i);
}

struct told {
        int n_calls, n_bad;
};

static void count_calls(struct kvl_ns *ns, int code, const uint32_t *pages, uint32_t n_pages,
        uint64_t n_tokens, void *data)
{
        struct told *t = data;

        t->n_calls++;
        t->n_bad += code != 0;
}

/* Awake, but looks at nothing for a while. */
static void script_slow(struct fake_peer *p)
{
        welcome_shared(p);
        p->rings.header->daemon_sleeps = 0;
        fake_serve_one(p, fake_receive(p, MSG_LEASE));
        fake_serve_one(p, fake_receive(p, MSG_MAP));
        poll(NULL, 0, 5 * SHORT_MSEC);
        fake_serve(p);
        fake_check_nothing_held(p);
        FAKE_CHECK(p->n_roots == KVL_MAX_STARTED + 1); /* texts, in however many parts */
}

/* The ring fills up; what doesn't fit it gets its turn; a hint is refused. */
TEST(test_daemon_that_is_slow)
{
        static uint8_t keys[3000 * KVL_KEY_BYTES];
        static uint32_t pages[3000];
        struct told told = {0};
        struct kvl_publish publish;
        struct kvl_conn *conn;
        struct kvl_ns *ns;
        struct fake f;
        uint32_t n = 0, found;
        uint64_t n_tokens;
        int r = 0;

        test_keys(keys, 3000);
        open_shared(&f, script_slow, 60000, &conn, &ns);
        assert_int_equal(kvl_lease(ns, 0, 3000, pages), 0);
        for (; r == 0; n += r == 0) {
                publish = publish_of(pages + n, keys + n * KVL_KEY_BYTES, 1);
                r = kvl_publish_start(ns, &publish, count_calls, &told);
        }
        assert_int_equal(r, -EAGAIN);
        assert_non_null(strstr(kvl_last_error(), "when one of them has called back"));
        assert_int_equal(n, KVL_MAX_STARTED);
        assert_int_equal(kvl_free_start(ns, pages + n, 1, count_calls, &told), -EAGAIN);
        assert_int_equal(kvl_request_end(ns, 1), -EAGAIN);
        assert_int_equal(kvl_lookup(ns, 0, keys, 1, &found, &found, &n_tokens), KVL_MISS);
        publish = publish_of(pages + n, keys + n * KVL_KEY_BYTES, 900);
        assert_int_equal(kvl_publish(ns, &publish, NULL, NULL), 0);
        assert_int_equal(kvl_free(ns, pages + n + 900, 3000 - n - 900), 0);
        while (told.n_calls < (int)n)
                assert_true(kvl_dispatch(conn) >= 0);
        assert_int_equal(told.n_bad, 0);
        assert_int_equal(kvl_release(ns, pages, n + 900), 0);
        kvl_disconnect(conn);
        fake_stop(&f);
}

static void script_late(struct fake_peer *p)
{
        welcome_shared(p);
        p->leased[1] = p->leased[2] = p->leased[3] = 1;
        fake_receive(p, MSG_DOORBELL);
        fake_await_call();
        fake_serve(p);
        fake_check_nothing_held(p);
        FAKE_CHECK(p->has_key[1] && p->has_key[2]);
}

/* The caller has given up when the pages are published: they are unpinned. */
TEST(test_late_completions)
{
        const uint32_t pages[] = {1, 2, 3};
        uint32_t found[3], n = 99;
        uint8_t keys[3 * KVL_KEY_BYTES];
        struct kvl_publish publish = publish_of(pages, keys, 2);
        struct told told = {0};
        struct kvl_conn *conn;
        struct kvl_ns *ns;
        uint64_t n_tokens;
        struct fake f;

        test_keys(keys, 3);
        open_shared(&f, script_late, 0, &conn, &ns);
        test_limit(conn, SHORT_MSEC);
        assert_int_equal(kvl_publish(ns, &publish, NULL, &n), -ETIMEDOUT);
        assert_int_equal(n, 0);
        test_limit(conn, 20000);
        fake_call();
        assert_int_equal(kvl_free_start(ns, pages + 2, 1, count_calls, &told), 0);
        while (told.n_calls == 0) {
                struct pollfd p = {.fd = kvl_fd(conn), .events = POLLIN};

                assert_int_equal(poll(&p, 1, 5000), 1);
                assert_true(kvl_dispatch(conn) >= 0);
        }
        assert_int_equal(kvl_release(ns, pages, 1), -EINVAL);
        assert_int_equal(kvl_lookup(ns, 0, keys, 3, found, &n, &n_tokens), 0);
        assert_true(n == 2 && n_tokens == 32);
        assert_int_equal(kvl_release(ns, found, 2), 0);
        kvl_disconnect(conn);
        fake_stop(&f);
}

/* ---- lies ----------------------------------------------------------------------------------- */

static void (*lie)(struct fake_peer *p, const struct shm_submission *first);

static void lie_unknown(struct fake_peer *p, const struct shm_submission *first)
{
        fake_complete(p, first->user_data + (1 << 20), WIRE_OK, 1);
}

static void lie_order(struct fake_peer *p, const struct shm_submission *first)
{
        fake_complete(p, first->user_data + 1, WIRE_OK, 2);
}

static void lie_other_page(struct fake_peer *p, const struct shm_submission *first)
{
        fake_complete(p, first->user_data, WIRE_OK, 2);
}

static void lie_beyond(struct fake_peer *p, const struct shm_submission *first)
{
        fake_complete(p, first->user_data, WIRE_DUPLICATE, p->capacity);
}

static void lie_status(struct fake_peer *p, const struct shm_submission *first)
{
        fake_complete(p, first->user_data, 31, 1);
}

static void lie_after_failure(struct fake_peer *p, const struct shm_submission *first)
{
        fake_complete(p, first->user_data, WIRE_STALE, 1);
        fake_complete(p, first->user_data + 1, WIRE_OK, 2);
}

static void lie_too_many(struct fake_peer *p, const struct shm_submission *first)
{
        fake_complete(p, first->user_data, WIRE_OK, 1);
        fake_complete(p, first->user_data + 1, WIRE_OK, 2);
        fake_complete(p, first->user_data + 2, WIRE_OK, 3);
}

static void lie_tail(struct fake_peer *p, const struct shm_submission *first)
{
        p->rings.header->comp_tail = SHM_COMP_ENTRIES + 1;
        p->rings.tail = SHM_COMP_ENTRIES + 1;
        fake_complete(p, first->user_data, WIRE_OK, 1);
}

static void script_lie(struct fake_peer *p)
{
        struct shm_submission first;

        welcome_shared(p);
        fake_index_add(&p->index, 9, p->keys[FAKE_MAX_PAGES - 1], 16, 1);
        fake_serve_one(p, fake_receive(p, MSG_HELD));
        fake_serve_one(p, fake_receive(p, MSG_MAP));
        fake_receive(p, MSG_DOORBELL);
        FAKE_CHECK(fake_rings_take(&p->rings, &first));
        lie(p, &first);
        fake_expect_end(p);
}

TEST(test_lies)
{
        void (*const lies[])(struct fake_peer * p, const struct shm_submission *first) = {
                lie_unknown, lie_order, lie_other_page, lie_beyond, lie_status, lie_after_failure,
                lie_too_many, lie_tail};
        const uint32_t pages[] = {1, 2}, nine = 9;
        const uint8_t zero[KVL_KEY_BYTES] = {0};
        uint8_t keys[2 * KVL_KEY_BYTES];
        struct kvl_publish publish = publish_of(pages, keys, 2);
        uint32_t found = 0, n;
        struct kvl_conn *conn;
        struct kvl_ns *ns;
        uint64_t n_tokens;
        struct fake f;

        test_keys(keys, 2);
        for (size_t i = 0; i < ARRAY_SIZE(lies); i++) {
                lie = lies[i];
                open_shared(&f, script_lie, 5000, &conn, &ns);
                assert_int_equal(kvl_map_pages(ns, &nine, 1), 0);
                assert_int_equal(
                        kvl_publish(ns, &publish, NULL, &n), lie == lie_too_many ? 0 : -EPROTO);
                /* The lie may come after what was true. */
                for (int tries = 0; kvl_dispatch(conn) >= 0 && tries < 50; tries++)
                        poll(NULL, 0, SHORT_MSEC);
                assert_int_equal(kvl_dispatch(conn), -EPROTO);
                assert_int_equal(kvl_publish(ns, &publish, NULL, NULL), -ENOTCONN);
                assert_int_equal(kvl_free(ns, pages, 1), -ENOTCONN);
                /* Calls that need no daemon still work. */
                assert_int_equal(kvl_lookup(ns, 0, zero, 1, &found, &n, &n_tokens), 0);
                assert_int_equal(found, 9);
                assert_int_equal(kvl_release(ns, &found, 1), 0);
                kvl_disconnect(conn);
                fake_stop(&f);
        }
}

static void script_dies(struct fake_peer *p)
{
        struct shm_submission first;

        welcome_shared(p);
        fake_pins_put(&p->shared_pins, 5);
        fake_serve_one(p, fake_receive(p, MSG_HELD));
        fake_serve_one(p, fake_receive(p, MSG_MAP));
        fake_receive(p, MSG_DOORBELL);
        FAKE_CHECK(fake_rings_take(&p->rings, &first));
        fake_rings_complete(&p->rings, first.user_data, WIRE_OK, 1);
}

/* Completions from before count. Pages that were granted ahead can't be published any more. */
TEST(test_daemon_that_dies)
{
        const uint32_t pages[] = {1, 2};
        uint8_t keys[2 * KVL_KEY_BYTES];
        struct kvl_publish publish = publish_of(pages, keys, 2);
        struct told told = {0};
        uint32_t n = 99, page;
        struct kvl_conn *conn;
        struct kvl_ns *ns;
        struct fake f;

        test_keys(keys, 2);
        open_shared(&f, script_dies, 5000, &conn, &ns);
        assert_int_equal(kvl_map_pages(ns, pages, 1), 0);
        assert_int_equal(kvl_publish(ns, &publish, NULL, &n), -ECONNRESET);
        assert_int_equal(n, 1);
        assert_int_equal(kvl_release(ns, pages, 1), 0);
        assert_int_equal(kvl_lease(ns, 0, 1, &page), -ENOTCONN); /* though the magazine has one */
        assert_int_equal(kvl_publish_start(ns, &publish, count_calls, &told), -ENOTCONN);
        kvl_disconnect(conn);
        assert_int_equal(told.n_calls, 0);
        fake_stop(&f);
}

static void script_dies_of_duplicate(struct fake_peer *p)
{
        struct shm_submission first;

        welcome_shared(p);
        fake_receive(p, MSG_DOORBELL);
        FAKE_CHECK(fake_rings_take(&p->rings, &first));
        fake_rings_complete(&p->rings, first.user_data, KVL_STATUS_DUPLICATE, 3);
}

/* Its page has to be mapped, and asking for that finds the connection broken. */
TEST(test_daemon_that_dies_of_a_duplicate)
{
        const uint32_t pages[] = {1, 2};
        uint8_t keys[2 * KVL_KEY_BYTES];
        struct kvl_publish publish = publish_of(pages, keys, 1);
        struct told told = {0};
        struct kvl_conn *conn;
        struct kvl_ns *ns;
        struct fake f;

        test_keys(keys, 2);
        open_shared(&f, script_dies_of_duplicate, 5000, &conn, &ns);
        assert_int_equal(kvl_publish_start(ns, &publish, count_calls, &told), 0);
        fake_stop(&f); /* it is gone before anything of it is read */
        publish = publish_of(pages + 1, keys + KVL_KEY_BYTES, 1);
        assert_true(
                kvl_publish(ns, &publish, NULL, NULL) < 0); /* looks at what is complete first */
        while (told.n_calls == 0)
                kvl_dispatch(conn);
        assert_int_equal(told.n_bad, 1);
        assert_int_equal(told.n_calls, 1);
        assert_int_equal(kvl_request_end(ns, 1), -ENOTCONN);
        kvl_disconnect(conn);
}

/* ---- with and without ----------------------------------------------------------------------- */

static void script_serve(struct fake_peer *p)
{
        p->shares = true;
        fake_serve(p);
        fake_check_nothing_held(p);
}

static void script_old(struct fake_peer *p)
{
        fake_serve(p);
        fake_check_nothing_held(p);
        FAKE_CHECK(!p->has_rings && !p->has_index);
}

static void script_other_layout(struct fake_peer *p)
{
        Kvlease__V1__ShmOpenReply m = KVLEASE__V1__SHM_OPEN_REPLY__INIT;

        fake_welcome(p);
        fake_receive(p, MSG_SHM_OPEN);
        fake_rings_open(&p->rings, FAKE_CLIENT_ID);
        p->rings.header->header.version++;
        m.bytes = p->rings.bytes;
        fake_send(p, MSG_SHM_OPEN, FRAME_REPLY, p->seq, &m.base, &p->rings.fd, 1);
        script_old(p);
}

static void lease_and_free(const struct fake *f, unsigned flags, int uses_shm)
{
        struct kvl_layout layout = test_layout(1, 64);
        uint32_t pages[9];
        struct kvl_conn *conn;
        struct kvl_ns *ns;

        assert_int_equal(test_connect_flags(f, 5000, flags, &conn), 0);
        assert_int_equal(kvl_ns_open(conn, "chat", &layout, NULL, 0, &ns), 0);
        assert_int_equal(kvl_uses_shm(ns), uses_shm);
        assert_int_equal(kvl_uses_shm(NULL), 0);
        for (int i = 0; i < 20; i++) {
                assert_int_equal(kvl_lease(ns, 0, 9, pages), 0);
                assert_int_equal(kvl_free(ns, pages, 9), 0);
                assert_int_equal(kvl_free(ns, pages, 9), -EINVAL);
        }
        kvl_ns_close(ns);
        kvl_disconnect(conn);
}

static void with_and_without(fake_script script, unsigned flags, int uses_shm)
{
        struct fake f;

        fake_start(&f, script);
        lease_and_free(&f, flags, uses_shm);
        fake_stop(&f);
}

TEST(test_who_shares)
{
        with_and_without(script_serve, 0, 1);
        with_and_without(script_old, 0, 0);
        with_and_without(script_old, KVL_CONNECT_NO_SHM, 0);
        with_and_without(script_other_layout, 0, 0);
        setenv("KVLEASE_NO_SHM", "1", 1);
        with_and_without(script_old, 0, 0);
        setenv("KVLEASE_NO_SHM", "0", 1);
        with_and_without(script_serve, 0, 1);
        unsetenv("KVLEASE_NO_SHM");
}

static void script_without_fd(struct fake_peer *p)
{
        Kvlease__V1__ShmOpenReply m = KVLEASE__V1__SHM_OPEN_REPLY__INIT;

        fake_welcome(p);
        fake_receive(p, MSG_SHM_OPEN);
        m.bytes = SHM_CLIENT_BYTES;
        fake_reply(p, &m.base);
        fake_expect_end(p);
}

FAKE_DAEMON_SCENE(test_segment_that_is_missing, script_without_fd)
{
        struct kvl_conn *conn;

        assert_int_equal(test_connect_shared(f, 5000, &conn), -EPROTO);
}

static void script_report(struct fake_peer *p)
{
        Kvlease__V1__CountReply reply = KVLEASE__V1__COUNT_REPLY__INIT;
        const Kvlease__V1__ReportRequest *m;

        fake_welcome_ns(p);
        m = (const Kvlease__V1__ReportRequest *)fake_receive(p, MSG_REPORT);
        FAKE_CHECK(m->ns_id == FAKE_NS_ID && m->n_pages == 4096 && m->more && !m->continues &&
                   m->pages[1] == 1);
        fake_reply(p, &reply.base);
        m = (const Kvlease__V1__ReportRequest *)fake_receive(p, MSG_REPORT);
        FAKE_CHECK(m->n_pages == 4 && !m->more && m->continues && m->pages[3] == 4099);
        reply.count = 12;
        fake_reply(p, &reply.base);
        m = (const Kvlease__V1__ReportRequest *)fake_receive(p, MSG_REPORT);
        FAKE_CHECK(m->n_pages == 0 && !m->more);
        fake_reply_simple(p, WIRE_BUSY, "another member has it open");
        fake_serve(p);
}

TEST(test_report)
{
        struct kvl_layout layout = test_layout(1, 64);
        static uint32_t pages[4100];
        struct kvl_conn *conn;
        uint64_t n = 0;
        struct kvl_ns *ns;
        struct fake f;

        for (uint32_t i = 0; i < 4100; i++)
                pages[i] = i;
        fake_start(&f, script_report);
        assert_int_equal(test_connect(&f, 5000, &conn), 0);
        assert_int_equal(kvl_ns_open(conn, "chat", &layout, NULL, 0, &ns), 0);
        assert_int_equal(kvl_report(ns, pages, 4100, &n), 0);
        assert_int_equal(n, 12);
        assert_int_equal(kvl_report(ns, NULL, 0, &n), -EBUSY);
        assert_int_equal(n, 12);
        kvl_disconnect(conn);
        fake_stop(&f);
}
