/*
 * Announcing, waiting and lookups that wait, over the socket: what the library asks for, and what
 * it makes of the answers. Shared memory: test_wait_key.c.
 */
#include "base/clock.h"
#include "base/macros.h"
#include "tests/unit/client-scene.h"

#define LATE_MSEC 20000

#define SOCKET (KVL_CONNECT_METADATA_ONLY | KVL_CONNECT_NO_SHM)

static bool is_key(const uint8_t *key, uint32_t i)
{
        uint8_t wanted[KVL_KEY_BYTES];

        test_key(wanted, i);
        return memcmp(key, wanted, KVL_KEY_BYTES) == 0;
}

/* ---- announce ------------------------------------------------------------------------------- */

static const struct {
        uint32_t status, n_announced;
        int code;
        uint32_t n; /* told */
} announcements[] = {
        {WIRE_OK, 3, 0, 3},
        {WIRE_PENDING, 1, KVL_PENDING, 1},
        {WIRE_DUPLICATE, 0, KVL_DUPLICATE, 0},
        {WIRE_INVALID, 2, -EINVAL, 2},
        {WIRE_STALE, 0, KVL_STALE, 0},
        {WIRE_UNSUPPORTED, 0, -EOPNOTSUPP, 0},
        /* Wrong: the connection ends. */
        {WIRE_OK, 2, -EPROTO, 0},
        {WIRE_PENDING, 3, -EPROTO, 0},
        {WIRE_OK, 4, -EPROTO, 0},
};

static void reply_announced(struct fake_peer *p, uint32_t status, uint32_t n)
{
        Kvlease__V1__AnnounceReply m = KVLEASE__V1__ANNOUNCE_REPLY__INIT;

        m.status = status;
        m.n_announced = n;
        m.detail = (char *)"why not";
        fake_reply(p, &m.base);
}

static void script_announce(struct fake_peer *p)
{
        for (size_t i = 0; i < ARRAY_SIZE(announcements); i++) {
                const Kvlease__V1__AnnounceRequest *m;

                if (i > 0)
                        fake_accept(p);
                fake_welcome_ns(p);
                m = (const Kvlease__V1__AnnounceRequest *)fake_receive(p, MSG_ANNOUNCE);
                FAKE_CHECK(m->ns_id == FAKE_NS_ID && m->n_pages == 3 && m->keys.len == 3 * 32);
                for (uint32_t k = 0; k < 3; k++)
                        FAKE_CHECK(m->pages[k] == 10 + k && is_key(m->keys.data + k * 32, k));
                reply_announced(p, announcements[i].status, announcements[i].n_announced);
                fake_expect_end(p);
        }
}

CLIENT_SCENE(test_announce, script_announce, LONG_MSEC, SOCKET)
{
        const uint32_t pages[] = {10, 11, 12};
        struct kvl_layout layout = test_layout(1, PAGE_BYTES);

        for (size_t i = 0; i < ARRAY_SIZE(announcements); i++) {
                uint32_t n = 77;

                if (i > 0) {
                        assert_int_equal(test_connect_flags(&c->f, LONG_MSEC, SOCKET, &c->conn), 0);
                        assert_int_equal(kvl_ns_open(c->conn, "chat", &layout, NULL, 0, &c->ns), 0);
                }
                assert_int_equal(
                        kvl_announce(c->ns, pages, c->keys[0], 3, &n), announcements[i].code);
                assert_int_equal(n, announcements[i].n);
                if (announcements[i].code != 0 && announcements[i].code != -EPROTO)
                        assert_string_equal(kvl_last_error(), "why not");
                if (i + 1 < ARRAY_SIZE(announcements))
                        kvl_disconnect(c->conn);
        }
}

static void script_nothing(struct fake_peer *p)
{
        fake_welcome_ns(p);
        fake_expect_end(p);
}

CLIENT_SCENE(test_announce_arguments, script_nothing, LONG_MSEC, SOCKET)
{
        static uint32_t pages[KVL_MAX_PUBLISH_PAGES + 1];
        const uint32_t beyond = UINT32_MAX;
        uint32_t n = 77;

        assert_int_equal(kvl_announce(NULL, pages, c->keys[0], 1, &n), -EINVAL);
        assert_int_equal(n, 0);
        n = 77;
        assert_int_equal(kvl_announce(c->ns, NULL, c->keys[0], 1, &n), -EINVAL);
        assert_int_equal(kvl_announce(c->ns, pages, NULL, 1, &n), -EINVAL);
        assert_int_equal(kvl_announce(c->ns, pages, c->keys[0], 0, &n), -EINVAL);
        assert_int_equal(kvl_announce(c->ns, pages, c->keys[0], ARRAY_SIZE(pages), &n), -EINVAL);
        assert_int_equal(kvl_announce(c->ns, &beyond, c->keys[0], 1, &n), -EINVAL);
        assert_int_equal(kvl_announce(c->ns, pages, c->keys[0], 1, NULL), -EINVAL);
        assert_int_equal(n, 0);
}

/* ---- wait ----------------------------------------------------------------------------------- */

static void receive_wait(struct fake_peer *p, uint32_t key, uint32_t timeout_msec)
{
        const Kvlease__V1__WaitRequest *m =
                (const Kvlease__V1__WaitRequest *)fake_receive(p, MSG_WAIT);

        FAKE_CHECK(m->ns_id == FAKE_NS_ID && m->key.len == 32 && is_key(m->key.data, key));
        FAKE_CHECK(m->timeout_msec >= 1 && m->timeout_msec <= timeout_msec);
        FAKE_CHECK(m->timeout_msec + LATE_MSEC >= timeout_msec);
}

static void script_deaf(struct fake_peer *p)
{
        fake_welcome_ns(p);
        receive_wait(p, 5, 300);
        /* A reply after its caller gave up is no violation. */
        fake_receive(p, MSG_REQUEST_END);
        fake_reply_simple(p, WIRE_OK, "");
        fake_expect_end(p);
}

/* The connection's time begins once the wait's is over. */
CLIENT_SCENE(test_deaf, script_deaf, LONG_MSEC, SOCKET)
{
        uint64_t begin;

        test_limit(c->conn, 200);
        begin = clock_now_nsec();
        assert_int_equal(kvl_wait(c->ns, c->keys[5], 300), -ETIMEDOUT);
        test_limit(c->conn, LONG_MSEC);
        assert_in_range(clock_now_nsec() - begin, 500 * NSEC_PER_MSEC, LATE_MSEC * NSEC_PER_MSEC);
        assert_int_equal(kvl_request_end(c->ns, 1), 0);
}

/* ---- lookups -------------------------------------------------------------------------------- */

static void script_set_unmapped(struct fake_peer *p)
{
        uint8_t key[KVL_KEY_BYTES];

        fake_welcome(p);
        fake_share(p);
        fake_serve_one(p, fake_receive(p, MSG_NS_OPEN));
        fake_share_ns(p);
        test_key(key, 4);
        fake_index_add(&p->index, 7, key, 16, 1);
        fake_receive(p, MSG_NS_OPEN);
        fake_reply_simple(p, WIRE_BUSY, "");
        fake_receive(p, MSG_MAP);
        fake_reply_simple(p, WIRE_IO, "");
        fake_expect_end(p);
}

/* Found in all, and in one it can't be mapped: none is held. */
CLIENT_SCENE(test_set_unmapped, script_set_unmapped, LONG_MSEC, 0)
{
        struct kvl_layout layout = test_layout(1, PAGE_BYTES);
        uint32_t pages[3], n = 77, page = 7;
        struct kvl_ns *nss[3], *other;
        uint64_t n_tokens = 77;

        assert_int_equal(kvl_ns_open(c->conn, "other", &layout, NULL, 0, &other), -EBUSY);
        nss[0] = nss[1] = nss[2] = c->ns;
        assert_int_equal(kvl_lookup_set(nss, 3, 0, c->keys[4], 1, pages, &n, &n_tokens), -EIO);
        assert_true(n == 77 && n_tokens == 77);
        assert_int_equal(kvl_release(c->ns, &page, 1), -EINVAL);
}
