/* Pages below the device in the other calls that find some: kvl_lookup_set(), kvl_lookup_wait(),
 * kvl_session_pages(). */
#include "tests/unit/client-tiers.h"

/* ---- kvl_lookup_set() -------------------------------------------------------------------------
 */

/* Pages for which the other namespace has no room aren't brought up here. */
static void script_cut(struct fake_peer *p)
{
        script_text(p);
        FAKE_CHECK(p->n_fetches == 3);
}

/* Two namespaces, each of a connection and a daemon of its own; `full` has room for pages 2, 3 and
 * 5. */
static void assert_set(unsigned flags, bool full_is_first)
{
        uint32_t pages[2 * N_KEYS], n_pages;
        char dir[128]; /* of the first; test_dir_make() names one at a time */
        struct client full, other;
        uint64_t n_tokens;
        struct kvl_ns *both[2];

        open_client(&full, script_full, LONG_MSEC, flags);
        assert_true(snprintf(dir, sizeof(dir), "%s", full.f.dir) < (int)sizeof(dir));
        full.f.dir = dir;
        open_client(
                &other, full_is_first && flags == 0 ? script_cut : script_text, LONG_MSEC, flags);
        both[!full_is_first] = full.ns;
        both[full_is_first] = other.ns;
        assert_int_equal(
                kvl_lookup_set(both, 2, 0, full.keys[0], N_KEYS, pages, &n_pages, &n_tokens), 0);
        assert_int_equal(n_pages, 6);
        assert_int_equal(n_tokens, 21);
        for (uint32_t i = 0; i < 2; i++) {
                for (uint32_t k = 0; k < n_pages; k++)
                        assert_int_equal(
                                kvl_page_tier(both[i], pages[i * N_KEYS + k]), KVL_TIER_DEVICE);
                assert_int_equal(kvl_release(both[i], pages + (size_t)i * N_KEYS, n_pages), 0);
        }
        /* From 6 on one of them has nothing on the device, and no room. */
        assert_int_equal(
                kvl_lookup_set(both, 2, 0, full.keys[6], 2, pages, &n_pages, &n_tokens), KVL_MISS);
        close_client(&full);
        close_client(&other);
}

TEST(test_set)
{
        assert_set(0, true);
        assert_set(0, false);
}

TEST(test_set_socket)
{
        assert_set(KVL_CONNECT_NO_SHM, true);
        assert_set(KVL_CONNECT_NO_SHM, false);
}

/* ---- kvl_lookup_wait() ------------------------------------------------------------------------
 */

/* The page after the text is being computed. */
#define PENDING_PAGE 50

static void put_text_and_announce(struct fake_peer *p)
{
        uint8_t key[KVL_KEY_BYTES];

        put_text(p);
        test_key(key, N_KEYS - 1);
        if (p->has_index)
                fake_index_announce(&p->index, PENDING_PAGE, key, 3);
}

/* Serves the ring, and returns the next request; NULL: the stream has ended. */
static const ProtobufCMessage *next_request(struct fake_peer *p)
{
        while (p->has_rings && !fake_rings_sleep(&p->rings))
                (void)fake_serve_one(p, NULL);
        return fake_receive_any(p);
}

static void serve_wait(struct fake_peer *p, const Kvlease__V1__WaitRequest *request)
{
        uint32_t status = WIRE_TIMEOUT;

        for (uint32_t i = 0; i < p->capacity; i++)
                if (p->has_key[i] && memcmp(p->keys[i], request->key.data, KVL_KEY_BYTES) == 0)
                        status = WIRE_OK;
        fake_reply_simple(p, status, "");
}

static void serve_waits(struct fake_peer *p)
{
        const ProtobufCMessage *m;

        p->fill = put_text_and_announce;
        serve_to_ns(p);
        while ((m = next_request(p))) {
                if (p->type == MSG_WAIT)
                        serve_wait(p, (const Kvlease__V1__WaitRequest *)m);
                else if (!fake_serve_one(p, m))
                        break;
        }
        fake_check_nothing_held(p);
}

static void script_wait(struct fake_peer *p)
{
        serve_waits(p);
        FAKE_CHECK(p->n_fetches == 6);
}

static void script_wait_full(struct fake_peer *p)
{
        p->fetch_room = 3;
        serve_waits(p);
}

static int look_up_and_wait(struct client *c, uint32_t first, int *ret_is_pending)
{
        return kvl_lookup_wait(c->ns, 0, c->keys[first], N_KEYS - first, 20, c->pages, &c->n_pages,
                &c->n_tokens, ret_is_pending);
}

static void assert_waits(unsigned flags)
{
        int is_pending = -1;
        struct client c;

        open_client(&c, script_wait, LONG_MSEC, flags);
        assert_int_equal(look_up_and_wait(&c, 0, &is_pending), 0);
        assert_on_device(&c, 9, 45);
        assert_int_equal(is_pending, 1);
        assert_int_equal(kvl_release(c.ns, c.pages, c.n_pages), 0);
        close_client(&c);
}

TEST(test_wait)
{
        assert_waits(0);
}

TEST(test_wait_socket)
{
        assert_waits(KVL_CONNECT_NO_SHM);
}

/* A page after the last one with room is cached, so the lookup isn't pending. */
static void assert_waits_full(unsigned flags)
{
        int is_pending = -1;
        struct client c;

        open_client(&c, script_wait_full, LONG_MSEC, flags);
        assert_int_equal(look_up_and_wait(&c, 0, &is_pending), 0);
        assert_on_device(&c, 6, 21);
        assert_int_equal(is_pending, 0);
        assert_int_equal(kvl_release(c.ns, c.pages, c.n_pages), 0);
        is_pending = -1;
        assert_int_equal(look_up_and_wait(&c, 6, &is_pending), KVL_MISS);
        assert_int_equal(is_pending, 0);
        close_client(&c);
}

TEST(test_wait_full)
{
        assert_waits_full(0);
}

TEST(test_wait_full_socket)
{
        assert_waits_full(KVL_CONNECT_NO_SHM);
}

/* ---- kvl_session_pages() ----------------------------------------------------------------------
 */

#define HANDLE 1 /* the fake daemon's first */

/* The session is the text. */
static void serve_session_pages(
        struct fake_peer *p, const Kvlease__V1__SessionPagesRequest *request)
{
        Kvlease__V1__SessionPagesReply m = KVLEASE__V1__SESSION_PAGES_REPLY__INIT;
        uint32_t pages[N_KEYS], tokens[N_KEYS];
        uint8_t keys[N_KEYS * KVL_KEY_BYTES];
        uint64_t firsts[N_KEYS];
        size_t n = 0;

        FAKE_CHECK(request->session == HANDLE);
        for (uint32_t i = request->from; i < N_KEYS - 1 && n < request->max; i++, n++) {
                uint8_t *key = keys + n * KVL_KEY_BYTES;

                test_key(key, i);
                for (pages[n] = 0; !p->has_key[pages[n]] ||
                                   memcmp(p->keys[pages[n]], key, KVL_KEY_BYTES) != 0;)
                        pages[n]++;
                tokens[n] = i + 1;
                firsts[n] = i * (i + 1) / 2;
                if (p->has_index)
                        atomic_fetch_add(&p->shared_pins.counters[pages[n]], 1);
                else
                        p->pins[pages[n]]++;
        }
        m.status = n > 0 ? WIRE_OK : WIRE_MISS;
        m.n_pages = m.n_tokens = m.n_first_tokens = n;
        m.pages = pages;
        m.tokens = tokens;
        m.first_tokens = firsts;
        m.keys.data = keys;
        m.keys.len = n * KVL_KEY_BYTES;
        fake_reply(p, &m.base);
}

static void serve_sessions(struct fake_peer *p)
{
        const ProtobufCMessage *m;

        serve_to_ns(p);
        while ((m = next_request(p))) {
                if (p->type == MSG_SESSION_PAGES)
                        serve_session_pages(p, (const Kvlease__V1__SessionPagesRequest *)m);
                else if (!fake_serve_one(p, m))
                        break;
        }
        fake_check_nothing_held(p);
}

static void script_session(struct fake_peer *p)
{
        serve_sessions(p);
        FAKE_CHECK(p->n_fetches == 6);
}

static void script_session_full(struct fake_peer *p)
{
        p->fetch_room = 3;
        serve_sessions(p);
}

/* From index `first` on it has n pages; they are released. */
static void assert_session(struct client *c, struct kvl_session *s, uint32_t first, uint32_t n)
{
        struct kvl_session_page pages[N_KEYS];
        uint32_t indices[N_KEYS], n_pages = 0;

        assert_int_equal(kvl_session_pages(s, first, N_KEYS, pages, &n_pages), 0);
        assert_int_equal(n_pages, n);
        for (uint32_t i = 0; i < n; i++) {
                indices[i] = pages[i].page;
                assert_int_equal(kvl_page_tier(c->ns, indices[i]), KVL_TIER_DEVICE);
                assert_non_null(kvl_page_ptr(c->ns, indices[i], 0));
                assert_int_equal(pages[i].n_tokens, first + i + 1);
                assert_memory_equal(pages[i].key, c->keys[first + i], KVL_KEY_BYTES);
        }
        assert_int_equal(kvl_release(c->ns, indices, n), 0);
}

static struct kvl_session *open_session(struct client *c, fake_script script, unsigned flags)
{
        struct kvl_session *s = NULL;

        open_client(c, script, LONG_MSEC, flags);
        assert_int_equal(kvl_session_open(c->ns, "s", 1, NULL, NULL, &s), 0);
        return s;
}

static void assert_sessions(unsigned flags)
{
        struct client c;
        struct kvl_session *s = open_session(&c, script_session, flags);

        assert_session(&c, s, 0, 9);
        assert_session(&c, s, 5, 4);
        assert_int_equal(kvl_session_close(s, 0), 0);
        close_client(&c);
}

TEST(test_session)
{
        assert_sessions(0);
}

TEST(test_session_socket)
{
        assert_sessions(KVL_CONNECT_NO_SHM);
}

static void assert_sessions_full(unsigned flags)
{
        struct kvl_session_page pages[N_KEYS];
        struct client c;
        struct kvl_session *s = open_session(&c, script_session_full, flags);
        uint32_t n;

        assert_session(&c, s, 0, 6);
        assert_int_equal(kvl_session_pages(s, 6, N_KEYS, pages, &n), KVL_MISS);
        assert_int_equal(kvl_session_close(s, 0), 0);
        close_client(&c);
}

TEST(test_session_full)
{
        assert_sessions_full(0);
}

TEST(test_session_full_socket)
{
        assert_sessions_full(KVL_CONNECT_NO_SHM);
}
