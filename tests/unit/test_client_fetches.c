/* Pages that come up in any order, again, late, many at once; from a daemon that is restarted,
 * breaks the rules, or goes. */
#include "tests/unit/client-tiers.h"

/* ---- in any order, again, late -------------------------------------------------------------- */

static struct shm_submission held[16];
static uint32_t n_held;

static void hold(struct fake_peer *p, const struct shm_submission *s)
{
        FAKE_CHECK(n_held < ARRAY_SIZE(held));
        held[n_held++] = *s;
}

static void complete_one(struct fake_peer *p, const struct shm_submission *s)
{
        uint32_t page = s->page, status = fake_bring_up(p, s->page, &page);

        fake_complete(p, s->user_data, status, page);
}

/* Until n are there. */
static void hold_until(struct fake_peer *p, uint32_t n)
{
        while (n_held < n)
                FAKE_CHECK(fake_serve_one(p, fake_receive_any(p)));
}

/* Says that the page is where nothing is: so often until it is so. */
static unsigned n_lies;

static void lie(struct fake_peer *p, const struct shm_submission *s)
{
        if (n_lies-- == 0) {
                n_lies = 0;
                complete_one(p, s);
                return;
        }
        fake_complete(p, s->user_data, WIRE_OK, 5);
}

#define MAX_REPEATS 8 /* of the library */

static void script_lies(struct fake_peer *p)
{
        p->on_fetch = lie;
        n_lies = MAX_REPEATS;
        serve_to_ns(p);
        serve_and_check(p);
        FAKE_CHECK(p->n_fetches == MAX_REPEATS + 1);
}

static void script_lies_always(struct fake_peer *p)
{
        p->on_fetch = lie;
        n_lies = MAX_REPEATS + 1;
        serve_to_ns(p);
        serve_and_check(p);
        FAKE_CHECK(p->n_fetches == MAX_REPEATS + 1);
}

CLIENT_TIERS_SCENE(test_lost_race, script_lies, LONG_MSEC, 0)
{
        assert_int_equal(look_up(c, 3), 0);
        assert_on_device(c, 3, 6);
        assert_int_equal(kvl_release(c->ns, c->pages, c->n_pages), 0);
}

CLIENT_TIERS_SCENE(test_lost_always, script_lies_always, LONG_MSEC, 0)
{
        assert_int_equal(look_up(c, 3), 0);
        assert_on_device(c, 2, 3);
        assert_int_equal(kvl_release(c->ns, c->pages, c->n_pages), 0);
}

/* Nothing is brought up before the client says INVALIDATE. */
static void script_late(struct fake_peer *p)
{
        p->on_fetch = hold;
        serve_to_ns(p);
        hold_until(p, 6);
        do
                FAKE_CHECK(fake_serve_one(p, fake_receive_any(p)));
        while (p->type != MSG_INVALIDATE);
        for (uint32_t i = 0; i < n_held; i++)
                complete_one(p, &held[i]);
        p->on_fetch = NULL;
        serve_and_check(p);
}

CLIENT_TIERS_SCENE(test_timeout, script_late, LONG_MSEC, 0)
{
        uint64_t n;

        /* The time is over: what is on the device. */
        test_limit(c->conn, 300);
        assert_int_equal(look_up(c, N_KEYS), 0);
        test_limit(c->conn, LONG_MSEC);
        assert_int_equal(c->n_pages, 2);
        assert_int_equal(c->n_tokens, 3);
        assert_int_equal(kvl_release(c->ns, c->pages, c->n_pages), 0);
        assert_int_equal(kvl_invalidate(c->ns, NULL, &n), 0);
        wait_for_begun(c, 0);
}

/* Closed while they are under way. */
static void script_closed(struct fake_peer *p)
{
        p->on_fetch = hold;
        serve_to_ns(p);
        hold_until(p, 3);
        do
                FAKE_CHECK(fake_serve_one(p, fake_receive_any(p)));
        while (p->type != MSG_NS_CLOSE);
        for (uint32_t i = 0; i < n_held; i++)
                fake_complete(p, held[i].user_data, WIRE_CANCELED, held[i].page);
        fake_serve(p);
}

CLIENT_TIERS_SCENE(test_closed, script_closed, LONG_MSEC, 0)
{
        struct result r = {0};

        assert_int_equal(kvl_lookup_start(c->ns, 0, c->keys[0], 6, on_done, &r), 0);
        wait_for_begun(c, 3);
        kvl_ns_close(c->ns);
        assert_true(r.is_done);
        assert_int_equal(r.code, -ECANCELED);
        wait_for_begun(c, 0);
        assert_true(kvl_is_connected(c->conn));
}

/* ---- a daemon that is restarted
 * ------------------------------------------------------------------
 */

/* Three fetches: one was answered, two were begun and forgotten. */
static void script_restarted(struct fake_peer *p)
{
        p->resumes = true;
        p->on_fetch = hold;
        serve_to_ns(p);
        hold_until(p, 3);
        complete_one(p, &held[1]);
        fake_accept(p);
        fake_take_up(p);
        p->on_fetch = NULL;
        serve_and_check(p);
        FAKE_CHECK(p->n_fetches == 5);
}

CLIENT_TIERS_SCENE(test_restarted, script_restarted, LONG_MSEC, 0)
{
        assert_int_equal(look_up(c, 6), 0);
        assert_on_device(c, 6, 21);
        assert_int_equal(kvl_release(c->ns, c->pages, c->n_pages), 0);
}

static void script_restarted_socket(struct fake_peer *p)
{
        p->resumes = true;
        serve_to_ns(p);
        do {
                const ProtobufCMessage *m = fake_receive_any(p);

                if (p->type == MSG_FETCH)
                        break;
                FAKE_CHECK(fake_serve_one(p, m));
        } while (true);
        fake_accept(p);
        fake_take_up(p);
        serve_and_check(p);
}

CLIENT_TIERS_SCENE(test_restarted_socket, script_restarted_socket, LONG_MSEC, KVL_CONNECT_NO_SHM)
{
        assert_int_equal(look_up(c, 6), 0);
        assert_on_device(c, 6, 21);
        assert_int_equal(kvl_release(c->ns, c->pages, c->n_pages), 0);
}

/* ---- a daemon that breaks the rules, or goes
 * -----------------------------------------------------
 */

static void say_lower(struct fake_peer *p, const struct shm_submission *s)
{
        p->has_broken = true;
        fake_complete(p, s->user_data, WIRE_OK, s->page);
}

static void say_twice(struct fake_peer *p, const struct shm_submission *s)
{
        p->has_broken = true;
        fake_complete(p, s->user_data ^ 0x100, WIRE_OK, 5);
}

static void say_unknown(struct fake_peer *p, const struct shm_submission *s)
{
        p->has_broken = true;
        fake_complete(p, s->user_data, 9999, s->page);
}

static void hang_up(struct fake_peer *p, const struct shm_submission *s)
{
        _exit(0);
}

static void (*const breaks[])(struct fake_peer *p, const struct shm_submission *s) = {
        say_lower, say_twice, say_unknown, hang_up};

static unsigned which;

static void script_breaks(struct fake_peer *p)
{
        p->on_fetch = breaks[which];
        serve_to_ns(p);
        fake_serve(p);
}

/* A lookup in shared memory has what it has, all the same. */
TEST(test_breaks)
{
        uint32_t up[N_KEYS];
        struct client c;

        for (which = 0; which < ARRAY_SIZE(breaks); which++) {
                open_client(&c, script_breaks, LONG_MSEC, KVL_CONNECT_METADATA_ONLY);
                assert_int_equal(look_up(&c, N_KEYS), 0);
                assert_int_equal(c.n_pages, 2);
                assert_int_equal(c.n_tokens, 3);
                assert_false(kvl_is_connected(c.conn));
                assert_int_equal(look_up(&c, N_KEYS), 0);
                assert_int_equal(c.n_pages, 2);
                assert_int_equal(find(&c, N_KEYS), 0);
                assert_int_equal(c.n_pages, 9);
                assert_int_equal(kvl_fetch(c.ns, c.pages, 9, up), -ENOTCONN);
                assert_memory_equal(up, c.pages, 9 * sizeof(uint32_t));
                close_client(&c);
        }
}

/* ---- many ----------------------------------------------------------------------------------- */

#define MANY 600

static void put_many(struct fake_peer *p)
{
        for (uint32_t i = 0; i < MANY; i++) {
                uint8_t key[KVL_KEY_BYTES];

                test_key(key, i);
                fake_put(p, p->n_device_sets * p->set_pages + i, key, 16);
        }
}

static void script_many(struct fake_peer *p)
{
        p->fill = put_many;
        serve_to_ns(p);
        serve_and_check(p);
        FAKE_CHECK(p->n_fetches == MANY);
}

/* More than may be under way, or fit a message. */
static void assert_brings_many(unsigned flags)
{
        static uint8_t keys[MANY][KVL_KEY_BYTES];
        struct kvl_layout layout = test_layout(1, 4096);
        uint32_t pages[MANY], n_pages;
        uint64_t n_tokens;
        struct client c;

        fake_start(&c.f, script_many);
        assert_int_equal(test_connect_flags(&c.f, LONG_MSEC, flags, &c.conn), 0);
        assert_int_equal(kvl_ns_open(c.conn, "chat", &layout, NULL, 0, &c.ns), 0);
        for (uint32_t i = 0; i < MANY; i++)
                test_key(keys[i], i);
        assert_int_equal(kvl_lookup(c.ns, 0, keys[0], MANY, pages, &n_pages, &n_tokens), 0);
        assert_int_equal(n_pages, MANY);
        assert_int_equal(n_tokens, MANY * 16);
        for (uint32_t i = 0; i < MANY; i++)
                assert_int_equal(kvl_page_tier(c.ns, pages[i]), KVL_TIER_DEVICE);
        assert_int_equal(kvl_release(c.ns, pages, n_pages), 0);
        close_client(&c);
}

TEST_BOTH_WAYS(test_many, assert_brings_many)
