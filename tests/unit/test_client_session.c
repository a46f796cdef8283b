/*
 * Sessions: what the library asks a daemon for, and what it makes of the answers. Publishing to
 * them: test_client_publish.c. What a daemon does: tests/integration/test_session.c.
 */
#include <poll.h>

#include "tests/unit/client-session.h"

#define SHORT_MSEC 100 /* that a client waits in vain */

/* ---- opening and closing -------------------------------------------------------------------- */

static void script_nothing(struct fake_peer *p)
{
        fake_welcome_ns(p);
        serve_session_open(p);
        fake_expect_end(p);
}

/* None of it reaches the daemon. */
TEST(test_arguments)
{
        struct kvl_session_info info = {0};
        struct kvl_session_page page;
        struct kvl_explanation why;
        uint8_t keys[257 * KVL_KEY_BYTES];
        struct kvl_session *s, *none;
        uint32_t n;
        struct client c;

        open_client(&c, script_nothing, LONG_MSEC, KVL_CONNECT_NO_SHM);
        s = open_session(&c);
        assert_int_equal(kvl_session_open(NULL, "a", 1, NULL, NULL, &none), -EINVAL);
        assert_int_equal(kvl_session_open(c.ns, NULL, 1, NULL, NULL, &none), -EINVAL);
        assert_int_equal(kvl_session_open(c.ns, "", 0, NULL, NULL, &none), -EINVAL);
        assert_int_equal(kvl_session_open(c.ns, keys, 65, NULL, NULL, &none), -EINVAL);
        assert_int_equal(kvl_session_open(c.ns, "a", 1, NULL, NULL, NULL), -EINVAL);
        assert_int_equal(kvl_session_open(c.ns, "a", 1, NULL, &info, &none), -EINVAL);
        assert_int_equal(kvl_session_pages(NULL, 0, 1, &page, &n), -EINVAL);
        assert_int_equal(kvl_session_pages(s, 0, 0, &page, &n), -EINVAL);
        assert_int_equal(kvl_session_pages(s, 0, 1, NULL, &n), -EINVAL);
        assert_int_equal(kvl_session_pages(s, 0, 1, &page, NULL), -EINVAL);
        assert_int_equal(kvl_session_truncate(NULL, 0, 0, NULL), -EINVAL);
        assert_int_equal(kvl_session_keep(NULL, &(struct kvl_token_range){0, 1}, 1, NULL), -EINVAL);
        assert_int_equal(kvl_session_hint(NULL, KVL_HINT_DONE, 0), -EINVAL);
        assert_int_equal(kvl_session_hint(s, (enum kvl_hint)4, 0), -EINVAL);
        assert_int_equal(kvl_session_close(NULL, 0), 0);
        assert_int_equal(kvl_invalidate_tag(c.ns, 0, NULL), -EINVAL);
        assert_int_equal(kvl_explain(c.ns, keys, 257, &why), -EINVAL);
        assert_int_equal(kvl_explain(c.ns, keys, 0, &why), -EINVAL);
        assert_int_equal(kvl_explain(c.ns, keys, 1, NULL), -EINVAL);
        assert_string_equal(kvl_strerror(KVL_PENDING), "another client is computing it");
        close_client(&c); /* closes the session, too */
}

static void script_hints(struct fake_peer *p)
{
        const Kvlease__V1__SessionTruncateRequest *t;
        const Kvlease__V1__SessionHintRequest *h;

        fake_welcome_ns(p);
        serve_session_open(p);
        h = (const Kvlease__V1__SessionHintRequest *)receive(p, MSG_SESSION_HINT);
        FAKE_CHECK(p->flags & FRAME_NO_REPLY);
        FAKE_CHECK(h->ns_id == FAKE_NS_ID && h->session == SESSION);
        FAKE_CHECK(h->hint == KVL_HINT_RETURNS && h->after_msec == 1500);
        t = (const Kvlease__V1__SessionTruncateRequest *)receive(p, MSG_SESSION_TRUNCATE);
        FAKE_CHECK(t->ns_id == FAKE_NS_ID && t->session == SESSION);
        FAKE_CHECK(t->first_tokens == 32 && t->last_tokens == UINT64_C(1) << 40);
        answer_count(p, 9);
        receive(p, MSG_SESSION_TRUNCATE);
        fake_reply_simple(p, WIRE_NO_MEMORY, "");
        fake_expect_end(p);
}

CLIENT_SCENE(test_hint_and_truncate, script_hints, LONG_MSEC, KVL_CONNECT_NO_SHM)
{
        struct kvl_session *s;
        uint32_t n = 0;

        s = open_session(c);
        assert_int_equal(kvl_session_hint(s, KVL_HINT_RETURNS, 1500), 0);
        assert_int_equal(kvl_session_truncate(s, 32, UINT64_C(1) << 40, &n), 0);
        assert_int_equal(n, 9);
        assert_int_equal(kvl_session_truncate(s, 1, 1, &n), -ENOMEM);
        assert_int_equal(n, 9);
}

#define N_RANGES KVL_SESSION_RANGES_MAX

static void script_keep(struct fake_peer *p)
{
        const Kvlease__V1__SessionKeepRequest *k;

        fake_welcome_ns(p);
        serve_session_open(p);
        k = (const Kvlease__V1__SessionKeepRequest *)receive(p, MSG_SESSION_KEEP);
        FAKE_CHECK(k->ns_id == FAKE_NS_ID && k->session == SESSION);
        FAKE_CHECK(k->n_first_tokens == N_RANGES && k->n_end_tokens == N_RANGES);
        for (size_t i = 0; i < N_RANGES; i++)
                FAKE_CHECK(k->first_tokens[i] == UINT64_MAX - 2 * (N_RANGES - i) &&
                           k->end_tokens[i] == k->first_tokens[i] + 1);
        answer_count(p, 9);
        receive(p, MSG_SESSION_KEEP);
        fake_reply_simple(p, WIRE_INVALID, "they were given up");
        fake_expect_end(p);
}

/* The most ranges, with the longest numbers, fit one message. */
TEST(test_keep)
{
        struct kvl_token_range ranges[N_RANGES];
        struct kvl_session *s;
        struct client c;
        uint32_t n = 0;

        for (size_t i = 0; i < N_RANGES; i++)
                ranges[i] = (struct kvl_token_range){
                        UINT64_MAX - 2 * (N_RANGES - i), UINT64_MAX - 2 * (N_RANGES - i) + 1};
        open_client(&c, script_keep, LONG_MSEC, KVL_CONNECT_NO_SHM);
        s = open_session(&c);
        assert_int_equal(kvl_session_keep(s, ranges, 0, &n), -EINVAL);
        assert_int_equal(kvl_session_keep(s, ranges, N_RANGES + 1, &n), -EINVAL);
        assert_int_equal(kvl_session_keep(s, NULL, 1, &n), -EINVAL);
        assert_int_equal(kvl_session_keep(s, ranges, N_RANGES, &n), 0);
        assert_int_equal(n, 9);
        assert_int_equal(kvl_session_keep(s, ranges, 1, NULL), -EINVAL);
        assert_non_null(strstr(kvl_last_error(), "given up"));
        close_client(&c);
}

/* ---- pages ---------------------------------------------------------------------------------- */

struct page_run {
        uint32_t first, n, n_tokens; /* tokens of the last */
};

static void answer_pages(struct fake_peer *p, struct page_run run)
{
        static uint32_t pages[1025], tokens[1025];
        static uint64_t first_tokens[1025];
        static uint8_t keys[1025 * 32];
        Kvlease__V1__SessionPagesReply m = KVLEASE__V1__SESSION_PAGES_REPLY__INIT;

        for (uint32_t i = 0; i < run.n; i++) {
                pages[i] = run.first + i;
                tokens[i] = i + 1 == run.n ? run.n_tokens : 16;
                first_tokens[i] = (run.first + i) * UINT64_C(16);
                test_key(keys + i * 32, run.first + i);
        }
        m.status = run.n > 0 ? WIRE_OK : WIRE_MISS;
        m.n_pages = m.n_tokens = m.n_first_tokens = run.n;
        m.pages = pages;
        m.tokens = tokens;
        m.first_tokens = first_tokens;
        m.keys.data = keys;
        m.keys.len = run.n * 32;
        fake_reply(p, &m.base);
}

static void expect_pages(struct fake_peer *p, uint32_t from, uint32_t max)
{
        const Kvlease__V1__SessionPagesRequest *m =
                (const Kvlease__V1__SessionPagesRequest *)receive(p, MSG_SESSION_PAGES);

        FAKE_CHECK(m->ns_id == FAKE_NS_ID && m->session == SESSION);
        FAKE_CHECK(m->from == from && m->max == max);
}

#define LENGTH 2030u /* pages; more than one reply brings */

static void script_long(struct fake_peer *p)
{
        fake_welcome_ns(p);
        serve_session_open(p);
        for (int i = 0; i < 2; i++) {
                expect_pages(p, 0, 1024);
                answer_pages(p, (struct page_run){0, 1024, 16});
                expect_pages(p, 1024, LENGTH + 10 - 1024);
                answer_pages(p, (struct page_run){1024, LENGTH - 1024, 16});
        }
        /* Just what one reply brings: there is no telling that it is all. */
        expect_pages(p, 0, 1024);
        answer_pages(p, (struct page_run){0, 1024, 16});
        expect_pages(p, 1024, 1024);
        answer_pages(p, (struct page_run){0});
        /* Pages from earlier replies are given back. */
        expect_pages(p, 0, 1024);
        answer_pages(p, (struct page_run){0, 1024, 16});
        expect_pages(p, 1024, 1024);
        fake_reply_simple(p, WIRE_STALE, "");
        FAKE_CHECK(((const Kvlease__V1__ReleaseRequest *)receive(p, MSG_RELEASE))->n_pages == 1024);
        fake_expect_end(p);
}

TEST(test_many_pages)
{
        static struct kvl_session_page pages[LENGTH + 10];
        struct kvl_layout layout = test_layout(2, 4096);
        struct kvl_session *s;
        struct client c;
        uint32_t n;

        fake_start(&c.f, script_long);
        assert_int_equal(test_connect_flags(&c.f, LONG_MSEC,
                                 KVL_CONNECT_NO_SHM | KVL_CONNECT_METADATA_ONLY, &c.conn),
                0);
        assert_int_equal(kvl_ns_open(c.conn, "chat", &layout, NULL, 0, &c.ns), 0);
        s = open_session(&c);
        for (int i = 0; i < 2; i++) {
                n = 0;
                assert_int_equal(kvl_session_pages(s, 0, LENGTH + 10, pages, &n), 0);
                assert_int_equal(n, LENGTH);
                for (uint32_t j = 0; j < n; j++)
                        assert_int_equal(pages[j].page, j);
        }
        assert_int_equal(kvl_session_pages(s, 0, 2048, pages, &n), 0);
        assert_int_equal(n, 1024);
        assert_int_equal(kvl_session_pages(s, 0, 2048, pages, &n), KVL_STALE);
        close_client(&c);
}

enum lie { NO_TOKENS, NO_PLACES, SHORT_KEYS, ZERO_TOKENS, MANY_TOKENS, MANY_PAGES, BEYOND };

static enum lie lie;

static void script_lies(struct fake_peer *p)
{
        uint32_t pages[] = {0, lie == BEYOND ? p->capacity + 4096 : 1, 2}, tokens[] = {16, 16, 16};
        Kvlease__V1__SessionPagesReply m = KVLEASE__V1__SESSION_PAGES_REPLY__INIT;
        uint64_t first_tokens[] = {0, 16, 32};
        uint8_t keys[96] = {0};

        fake_welcome_ns(p);
        serve_session_open(p);
        receive(p, MSG_SESSION_PAGES);
        m.n_pages = lie == MANY_PAGES ? 3 : 2;
        m.n_first_tokens = lie == NO_PLACES ? 1 : m.n_pages;
        m.n_tokens = lie == NO_TOKENS ? 1 : m.n_pages;
        m.keys.len = lie == SHORT_KEYS ? 33 : m.n_pages * 32;
        tokens[1] = lie == ZERO_TOKENS ? 0 : lie == MANY_TOKENS ? 17 : 16;
        m.pages = pages;
        m.tokens = tokens;
        m.first_tokens = first_tokens;
        m.keys.data = keys;
        fake_reply(p, &m.base);
        fake_expect_end(p);
}

TEST(test_pages_that_lie)
{
        struct kvl_session_page pages[2];
        struct kvl_session *s;
        struct client c;
        uint32_t n;

        for (lie = NO_TOKENS; lie <= BEYOND; lie++) {
                open_client(&c, script_lies, LONG_MSEC, KVL_CONNECT_NO_SHM);
                s = open_session(&c);
                assert_int_equal(kvl_session_pages(s, 0, 2, pages, &n), -EPROTO);
                assert_int_equal(kvl_session_pages(s, 0, 2, pages, &n), -ENOTCONN);
                assert_int_equal(kvl_session_close(s, 0), -ENOTCONN);
                close_client(&c);
        }
}

static void script_open_lies(struct fake_peer *p)
{
        Kvlease__V1__SessionOpenReply m = KVLEASE__V1__SESSION_OPEN_REPLY__INIT;

        fake_welcome_ns(p);
        receive(p, MSG_SESSION_OPEN);
        m.session = lie == NO_TOKENS ? 0 : SESSION;
        m.n_pages = 3; /* without a key */
        fake_reply(p, &m.base);
        fake_expect_end(p);
}

TEST(test_open_that_lies)
{
        struct kvl_session *none = NULL;
        struct client c;

        for (lie = NO_TOKENS; lie <= NO_PLACES; lie++) {
                open_client(&c, script_open_lies, LONG_MSEC, KVL_CONNECT_NO_SHM);
                assert_int_equal(kvl_session_open(c.ns, "a", 1, NULL, NULL, &none), -EPROTO);
                assert_null(none);
                close_client(&c);
        }
}

/* Waits for a message, and handles it as kvl_dispatch(). */
static int dispatch_next(struct client *c)
{
        struct pollfd p = {.fd = kvl_fd(c->conn), .events = POLLIN};

        assert_int_equal(poll(&p, 1, LONG_MSEC), 1);
        return kvl_dispatch(c->conn);
}

/* Answers come after the callers gave up: their pages are given back. */
static void script_late(struct fake_peer *p)
{
        const Kvlease__V1__ReleaseRequest *m;

        fake_welcome_ns(p);
        serve_session_open(p);
        receive(p, MSG_SESSION_OPEN);
        fake_await_call();
        answer_open(p, SESSION + 1);
        expect_close(p, SESSION + 1, false);
        fake_reply_simple(p, WIRE_OK, "");
        receive(p, MSG_SESSION_PAGES);
        fake_await_call();
        answer_pages(p, (struct page_run){1, 2, 16});
        m = (const Kvlease__V1__ReleaseRequest *)receive(p, MSG_RELEASE);
        FAKE_CHECK(m->n_pages == 2 && m->pages[0] == 1 && m->pages[1] == 2);
        fake_expect_end(p);
}

CLIENT_SCENE(test_late, script_late, LONG_MSEC, KVL_CONNECT_NO_SHM)
{
        struct kvl_session_page pages[2];
        struct kvl_session *s, *none;
        uint32_t n;

        s = open_session(c);
        test_limit(c->conn, SHORT_MSEC);
        assert_int_equal(kvl_session_open(c->ns, "t", 1, NULL, NULL, &none), -ETIMEDOUT);
        fake_call();
        assert_int_equal(dispatch_next(c), 0); /* it is open: closed */
        assert_int_equal(kvl_session_pages(s, 0, 2, pages, &n), -ETIMEDOUT);
        fake_call();
        assert_int_equal(dispatch_next(c), 0);
        test_limit(c->conn, LONG_MSEC);
}

/* They would be let go of in shared memory. */
static void script_late_lie(struct fake_peer *p)
{
        welcome_shared(p);
        serve_session_open(p);
        receive(p, MSG_SESSION_PAGES);
        fake_await_call();
        answer_pages(p, (struct page_run){1 << 28, 2, 16});
        fake_expect_end(p);
}

CLIENT_SCENE(test_late_lie, script_late_lie, LONG_MSEC, 0)
{
        struct kvl_session_page pages[2];
        struct kvl_session *s;
        uint32_t n;

        s = open_session(c);
        test_limit(c->conn, SHORT_MSEC);
        assert_int_equal(kvl_session_pages(s, 0, 2, pages, &n), -ETIMEDOUT);
        fake_call();
        assert_int_equal(dispatch_next(c), -EPROTO);
}

/* "Not cached" is no answer to that: it would be taken for the session's. */
static void script_map_lies(struct fake_peer *p)
{
        fake_welcome_ns(p);
        serve_session_open(p);
        receive(p, MSG_SESSION_PAGES);
        answer_pages(p, (struct page_run){1, 2, 16});
        receive(p, MSG_MAP);
        fake_reply_simple(p, WIRE_MISS, "");
        fake_expect_end(p);
}

CLIENT_SCENE(test_map_that_lies, script_map_lies, LONG_MSEC, KVL_CONNECT_NO_SHM)
{
        struct kvl_session_page pages[2];
        struct kvl_session *s;
        uint32_t n = 77;

        s = open_session(c);
        assert_int_equal(kvl_session_pages(s, 0, 2, pages, &n), -EPROTO);
        assert_int_equal(n, 77);
}
