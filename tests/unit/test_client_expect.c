/* kvl_expect(): over the socket, by the ring, and with a daemon that knows no such submission;
 * kvl_check_room(). */
#include <unistd.h>

#include "tests/unit/client-session.h"

#define MANY (3 * KVL_MAX_LOOKUP_KEYS + 1)

static const Kvlease__V1__ExpectRequest *receive_expect(struct fake_peer *p)
{
        const Kvlease__V1__ExpectRequest *m =
                (const Kvlease__V1__ExpectRequest *)receive(p, MSG_EXPECT);

        FAKE_CHECK(p->flags & FRAME_NO_REPLY && m->ns_id == FAKE_NS_ID);
        return m;
}

static bool is_key(const Kvlease__V1__ExpectRequest *m, uint32_t at, uint32_t number)
{
        uint8_t key[KVL_KEY_BYTES];

        test_key(key, number);
        return memcmp(m->keys.data + (size_t)at * KVL_KEY_BYTES, key, KVL_KEY_BYTES) == 0;
}

/* If a text's keys don't fit a message, every fourth is sent, including the last one. */
static void script_socket(struct fake_peer *p)
{
        const Kvlease__V1__ExpectRequest *m;
        uint32_t n;

        fake_welcome_ns(p);
        m = receive_expect(p);
        FAKE_CHECK(m->keys.len == 3 * (size_t)KVL_KEY_BYTES && m->ttl_msec == 1500);
        for (uint32_t i = 0; i < 3; i++)
                FAKE_CHECK(is_key(m, i, i));
        m = receive_expect(p);
        n = (uint32_t)(m->keys.len / KVL_KEY_BYTES);
        FAKE_CHECK(n == MANY / 4 && m->ttl_msec == 0);
        for (uint32_t i = 0; i < n; i++)
                FAKE_CHECK(is_key(m, i, MANY - 1 - (n - 1 - i) * 4));
        fake_expect_end(p);
}

TEST(test_over_the_socket)
{
        static uint8_t keys[MANY * KVL_KEY_BYTES];
        struct client c;

        for (uint32_t i = 0; i < MANY; i++)
                test_key(keys + (size_t)i * KVL_KEY_BYTES, i);
        open_client(&c, script_socket, LONG_MSEC, KVL_CONNECT_NO_SHM);
        assert_int_equal(kvl_expect(c.ns, keys, 3, 1500), 0);
        assert_int_equal(kvl_expect(c.ns, keys, MANY, 0), 0);
        close_client(&c);
}

/* One that knows no LEASABLE of pages together counts, and one that knows it refuses. */
static void script_room(struct fake_peer *p)
{
        Kvlease__V1__CountReply m = KVLEASE__V1__COUNT_REPLY__INIT;
        const Kvlease__V1__LeasableRequest *asked;

        fake_welcome_ns(p);
        asked = (const Kvlease__V1__LeasableRequest *)receive(p, MSG_LEASABLE);
        FAKE_CHECK(asked->ns_id == FAKE_NS_ID && asked->together == 7);
        m.status = WIRE_OK;
        m.count = KVL_QUOTA;
        fake_reply(p, &m.base);
        (void)receive(p, MSG_LEASABLE);
        m.status = WIRE_QUOTA;
        m.detail = (char *)"seven are too many";
        fake_reply(p, &m.base);
        fake_expect_end(p);
}

CLIENT_SCENE(test_room, script_room, LONG_MSEC, KVL_CONNECT_NO_SHM)
{
        assert_int_equal(kvl_check_room(NULL, 7), -EINVAL);
        assert_int_equal(kvl_check_room(c->ns, 0), -EINVAL);
        assert_int_equal(kvl_check_room(c->ns, 7), 0);
        assert_int_equal(kvl_check_room(c->ns, 7), KVL_QUOTA);
        assert_string_equal(kvl_last_error(), "seven are too many");
}

#define N_CACHED 5

static void put_text(struct fake_peer *p)
{
        uint8_t key[KVL_KEY_BYTES];

        for (uint32_t i = 0; i < N_CACHED; i++) {
                test_key(key, i);
                fake_put(p, 10 + i, key, 16);
        }
}

static struct shm_submission take_entry(struct fake_peer *p)
{
        struct shm_submission s;

        while (!fake_rings_take(&p->rings, &s))
                usleep(100);
        return s;
}

/* The deepest page that is cached, once for each call that finds one. */
static void script_shared(struct fake_peer *p)
{
        p->fill = put_text;
        welcome_shared(p);
        for (uint32_t n = 1; n <= N_CACHED + 2; n++) {
                struct shm_submission s = take_entry(p);

                FAKE_CHECK(s.op == SHM_OP_EXPECT && s.flags == 0 && s.ns_id == FAKE_NS_ID);
                FAKE_CHECK(s.page == 10 + (n < N_CACHED ? n : N_CACHED) - 1);
                FAKE_CHECK(s.aux == (uint32_t)(p->index.lines[s.page].state >> 8));
                FAKE_CHECK(s.expect.ttl_msec == n);
        }
        fake_expect_end(p);
}

/* The expected text ends before, at and after the last cached page. */
TEST(test_by_the_ring)
{
        uint8_t keys[(N_CACHED + 2) * KVL_KEY_BYTES];
        struct client c;

        for (uint32_t i = 0; i < N_CACHED + 2; i++)
                test_key(keys + (size_t)i * KVL_KEY_BYTES, i);
        open_client(&c, script_shared, LONG_MSEC, 0);
        assert_true(kvl_uses_shm(c.ns));
        for (uint32_t n = 1; n <= N_CACHED + 2; n++)
                assert_int_equal(kvl_expect(c.ns, keys, n, n), 0);
        /* Nothing of it is cached: there is nothing to be told. */
        assert_int_equal(kvl_expect(c.ns, keys + (size_t)N_CACHED * KVL_KEY_BYTES, 2, 0), 0);
        close_client(&c);
}
