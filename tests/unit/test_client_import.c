/*
 * Pages of other hosts, over the socket: what the library asks the daemon for, and what it makes of
 * the answers, for a lookup that waits and for what is started.
 */
#include "base/macros.h"
#include "tests/unit/client-scene.h"

#define FLAGS (KVL_CONNECT_METADATA_ONLY | KVL_CONNECT_NO_SHM)

#define FIRST 5 /* of those that aren't cached */

#define SCENE(fn, script) CLIENT_SCENE(fn, script, LONG_MSEC, FLAGS)

/* ---- the daemon ------------------------------------------------------------------------------ */

static void take_part(Kvlease__V1__NsOpenReply *m)
{
        m->imports = true;
}

/* The namespace takes part. */
static void welcome(struct fake_peer *p)
{
        p->spoil = take_part;
        fake_welcome_ns(p);
}

static bool is_key(ProtobufCBinaryData found, uint32_t i)
{
        uint8_t wanted[KVL_KEY_BYTES];

        test_key(wanted, i);
        return found.len >= KVL_KEY_BYTES && memcmp(found.data, wanted, KVL_KEY_BYTES) == 0;
}

/* For n_keys from `first` on, which the one before them leads to. */
static void receive_import(struct fake_peer *p, uint32_t first, uint32_t n_keys)
{
        const Kvlease__V1__ImportRequest *m =
                (const Kvlease__V1__ImportRequest *)fake_receive(p, MSG_IMPORT);

        FAKE_CHECK(m->ns_id == FAKE_NS_ID);
        FAKE_CHECK(m->keys.len == (size_t)n_keys * KVL_KEY_BYTES && is_key(m->keys, first));
        FAKE_CHECK(first > 0 ? is_key(m->parent_key, first - 1) : m->parent_key.len == 0);
        FAKE_CHECK(m->timeout_msec >= 1 && m->timeout_msec <= LONG_MSEC);
}

static void receive_wait(struct fake_peer *p, uint32_t key)
{
        const Kvlease__V1__WaitRequest *m =
                (const Kvlease__V1__WaitRequest *)fake_receive(p, MSG_WAIT);

        FAKE_CHECK(is_key(m->key, key));
        FAKE_CHECK(m->timeout_msec >= 1 && m->timeout_msec <= LONG_MSEC);
}

/* ---- started --------------------------------------------------------------------------------- */

static void assert_import(struct client *c, uint32_t first, uint32_t n_keys, int code)
{
        struct test_done done = {0};

        assert_int_equal(kvl_import_start(c->ns, first > 0 ? c->keys[first - 1] : NULL,
                                 c->keys[first], n_keys, LONG_MSEC, test_on_done, &done),
                0);
        assert_int_equal(done.n, 0);
        test_dispatch(c->conn, &done);
        assert_int_equal(done.n, 1);
        assert_int_equal(done.code, code);
}

static const struct {
        uint32_t status;
        int code;
} answers[] = {
        {WIRE_OK, 0},
        {WIRE_DUPLICATE, 0},
        {WIRE_MISS, KVL_MISS},
        {WIRE_NO_PARENT, KVL_MISS},
        {WIRE_STALE, KVL_STALE},
        {WIRE_BUSY, -EBUSY},
        {WIRE_DENIED, -EACCES},
        {WIRE_UNSUPPORTED, -EOPNOTSUPP},
};

static void script_answers(struct fake_peer *p)
{
        welcome(p);
        for (size_t i = 0; i < ARRAY_SIZE(answers); i++) {
                receive_import(p, FIRST, 7);
                fake_reply_simple(p, answers[i].status, "");
        }
        fake_expect_end(p);
}

SCENE(test_answers, script_answers)
{
        for (size_t i = 0; i < ARRAY_SIZE(answers); i++)
                assert_import(c, FIRST, 7, answers[i].code);
}

/* Only the first keys of a longer list fit a request. A text's first key has no parent. */
static void script_from_the_beginning(struct fake_peer *p)
{
        welcome(p);
        receive_import(p, 0, KVL_MAX_IMPORT_KEYS);
        fake_reply_simple(p, WIRE_OK, "");
        fake_expect_end(p);
}

SCENE(test_from_the_beginning, script_from_the_beginning)
{
        assert_import(c, 0, CLIENT_KEYS, 0);
}

static const struct {
        uint32_t status;
        int code;
} waits[] = {
        {WIRE_OK, 0},
        {WIRE_MISS, KVL_MISS},
        {WIRE_TIMEOUT, KVL_TIMEOUT},
        {WIRE_STALE, KVL_STALE},
};

static void script_somebody_computes_it(struct fake_peer *p)
{
        welcome(p);
        for (size_t i = 0; i < ARRAY_SIZE(waits); i++) {
                receive_import(p, FIRST, 7);
                fake_reply_simple(p, WIRE_PENDING, "");
                receive_wait(p, FIRST);
                fake_reply_simple(p, waits[i].status, "");
        }
        fake_expect_end(p);
}

/* The client waits for the computing client, and gets the result of that. */
SCENE(test_somebody_computes_it, script_somebody_computes_it)
{
        for (size_t i = 0; i < ARRAY_SIZE(waits); i++)
                assert_import(c, FIRST, 7, waits[i].code);
}

static void script_nothing(struct fake_peer *p)
{
        fake_welcome_ns(p);
        fake_expect_end(p);
}

/* The client sends no request. */
SCENE(test_takes_no_part, script_nothing)
{
        struct test_done done = {0};

        assert_int_equal(
                kvl_import_start(c->ns, NULL, c->keys[0], 1, LONG_MSEC, test_on_done, &done),
                KVL_MISS);
        assert_int_equal(kvl_note_prefill(c->ns, 1234, 1), 0);
        assert_int_equal(kvl_dispatch(c->conn), 0);
        assert_int_equal(done.n, 0);
}

static void script_no_message(struct fake_peer *p)
{
        welcome(p);
        fake_expect_end(p);
}

SCENE(test_arguments, script_no_message)
{
        assert_int_equal(kvl_import_start(NULL, NULL, c->keys[0], 1, 1, NULL, NULL), -EINVAL);
        assert_int_equal(kvl_import_start(c->ns, NULL, NULL, 1, 1, NULL, NULL), -EINVAL);
        assert_int_equal(kvl_import_start(c->ns, NULL, c->keys[0], 0, 1, NULL, NULL), -EINVAL);
        assert_int_equal(kvl_import_start(c->ns, NULL, c->keys[0], 1, 0, NULL, NULL), -EINVAL);
        assert_int_equal(kvl_import_start(c->ns, NULL, c->keys[0], 1, 600001, NULL, NULL), -EINVAL);
        assert_string_equal(kvl_last_error(), "the timeout is 600001 ms, must be 1 to 600000");
}

/* ---- a lookup that waits --------------------------------------------------------------------- */

static const uint32_t some_pages[] = {20, 21, 22, 23};

static void answer_lookup(
        struct fake_peer *p, uint32_t first, uint32_t n_keys, uint32_t at, uint32_t n)
{
        Kvlease__V1__LookupReply reply = KVLEASE__V1__LOOKUP_REPLY__INIT;
        const Kvlease__V1__LookupRequest *m =
                (const Kvlease__V1__LookupRequest *)fake_receive(p, MSG_LOOKUP);

        FAKE_CHECK(m->keys.len == (size_t)n_keys * KVL_KEY_BYTES && is_key(m->keys, first));
        reply.status = n > 0 ? WIRE_OK : WIRE_MISS;
        reply.pages = (uint32_t *)some_pages + at;
        reply.n_pages = n;
        reply.tokens = 16 * n;
        fake_reply(p, &reply.base);
}

/* The client asks once for pages that no local client computes, and takes those that came. */
static void script_lookup(struct fake_peer *p)
{
        welcome(p);
        answer_lookup(p, 0, 4, 0, 1);
        receive_wait(p, 1);
        fake_reply_simple(p, WIRE_MISS, "");
        receive_import(p, 1, 3);
        fake_reply_simple(p, WIRE_OK, "");
        answer_lookup(p, 1, 3, 1, 2);
        receive_wait(p, 3);
        fake_reply_simple(p, WIRE_MISS, "");
        /* A client that may not import computes. */
        answer_lookup(p, 0, 4, 0, 1);
        receive_wait(p, 1);
        fake_reply_simple(p, WIRE_MISS, "");
        receive_import(p, 1, 3);
        fake_reply_simple(p, WIRE_DENIED, "");
        fake_expect_end(p);
}

SCENE(test_lookup, script_lookup)
{
        uint32_t pages[4], n = 0;
        uint64_t n_tokens = 0;

        assert_int_equal(
                kvl_lookup_wait(c->ns, 0, c->keys[0], 4, LONG_MSEC, pages, &n, &n_tokens, NULL), 0);
        assert_true(n == 3 && n_tokens == 48);
        assert_memory_equal(pages, some_pages, 3 * sizeof(*pages));
        assert_int_equal(
                kvl_lookup_wait(c->ns, 0, c->keys[0], 4, LONG_MSEC, pages, &n, &n_tokens, NULL), 0);
        assert_int_equal(n, 1);
}

/* ---- a session that is opened ---------------------------------------------------------------- */

static const struct {
        uint32_t status;
        int code; /* of opening it */
} loaded[] = {
        {WIRE_OK, 0}, {WIRE_MISS, 0}, {WIRE_DENIED, 0}, {WIRE_BUSY, 0}, {WIRE_STALE, KVL_STALE}};

static void script_session(struct fake_peer *p)
{
        welcome(p);
        for (unsigned i = 0; i < ARRAY_SIZE(loaded); i++) {
                const Kvlease__V1__SessionLoadRequest *m =
                        (const Kvlease__V1__SessionLoadRequest *)fake_receive(p, MSG_SESSION_LOAD);
                Kvlease__V1__SessionOpenReply reply = KVLEASE__V1__SESSION_OPEN_REPLY__INIT;

                FAKE_CHECK(m->ns_id == FAKE_NS_ID && m->timeout_msec == LONG_MSEC);
                FAKE_CHECK(m->id.len == 4 && memcmp(m->id.data, "chat", 4) == 0);
                fake_reply_simple(p, loaded[i].status, "");
                if (loaded[i].code != 0)
                        continue;
                (void)fake_receive(p, MSG_SESSION_OPEN);
                reply.session = 1 + i;
                reply.n_tokens = 160;
                fake_reply(p, &reply.base);
        }
        fake_expect_end(p);
}

/* A session that can't be loaded is opened in its local state. */
SCENE(test_session, script_session)
{
        struct kvl_session_options o = {.size = sizeof(o), .load_msec = LONG_MSEC};
        struct kvl_session_info info = {.size = sizeof(info)};
        struct kvl_session *s;

        for (unsigned i = 0; i < ARRAY_SIZE(loaded); i++) {
                assert_int_equal(kvl_session_open(c->ns, "chat", 4, &o, &info, &s), loaded[i].code);
                assert_int_equal(info.n_tokens, 160);
        }
        o.load_msec = 600001;
        assert_int_equal(kvl_session_open(c->ns, "chat", 4, &o, &info, &s), -EINVAL);
        assert_string_equal(kvl_last_error(), "load_msec is 600001, must be 0 to 600000");
}

/* ---- what is there --------------------------------------------------------------------------- */

/* n_cached of so many keys are, and the one behind them isn't. */
static void answer_explain(struct fake_peer *p, uint32_t first, uint32_t n_keys, uint32_t n_cached)
{
        Kvlease__V1__Explanation cached = KVLEASE__V1__EXPLANATION__INIT,
                                 other = KVLEASE__V1__EXPLANATION__INIT, *rows[256];
        Kvlease__V1__ExplainReply reply = KVLEASE__V1__EXPLAIN_REPLY__INIT;
        const Kvlease__V1__ExplainRequest *m =
                (const Kvlease__V1__ExplainRequest *)fake_receive(p, MSG_EXPLAIN);

        FAKE_CHECK(m->keys.len == (size_t)n_keys * KVL_KEY_BYTES && is_key(m->keys, first));
        cached.state = KVL_EXPLAIN_CACHED;
        other.state = KVL_EXPLAIN_PENDING;
        for (uint32_t i = 0; i < n_keys; i++)
                rows[i] = i < n_cached ? &cached : &other;
        reply.explanations = rows;
        reply.n_explanations = n_keys;
        fake_reply(p, &reply.base);
}

static void receive_probe(struct fake_peer *p, uint32_t first, uint32_t n_keys)
{
        const Kvlease__V1__ProbeHostsRequest *m =
                (const Kvlease__V1__ProbeHostsRequest *)fake_receive(p, MSG_PROBE_HOSTS);

        FAKE_CHECK(m->ns_id == FAKE_NS_ID);
        FAKE_CHECK(m->keys.len == (size_t)n_keys * KVL_KEY_BYTES && is_key(m->keys, first));
        FAKE_CHECK(m->timeout_msec >= 1 && m->timeout_msec <= LONG_MSEC);
}

/* Other hosts have n_found of so many keys. */
static void answer_probe(
        struct fake_peer *p, uint32_t first, uint32_t n_keys, uint32_t n_found, bool would_load)
{
        Kvlease__V1__ProbeHostsReply reply = KVLEASE__V1__PROBE_HOSTS_REPLY__INIT;

        receive_probe(p, first, n_keys);
        reply.status = n_found > 0 ? WIRE_OK : WIRE_MISS;
        reply.n_pages = n_found;
        reply.would_load = would_load;
        fake_reply(p, &reply.base);
}

static void assert_probe(
        struct client *c, uint32_t n_asked, uint32_t n_here, uint32_t n_keys, int would_load)
{
        uint32_t here = UINT32_MAX, all = UINT32_MAX;
        int would = -1;

        assert_int_equal(
                kvl_probe_hosts(c->ns, c->keys[0], n_asked, LONG_MSEC, &here, &all, NULL), 0);
        assert_true(here == n_here && all == n_keys);
        assert_int_equal(
                kvl_probe_hosts(c->ns, c->keys[0], n_asked, LONG_MSEC, &here, &all, &would), 0);
        assert_true(here == n_here && all == n_keys);
        assert_int_equal(would, would_load);
}

/* In pieces; and what goes on there may go on here again. Whether it would be loaded is asked of
 * what lacks first. */
static void script_probe(struct fake_peer *p)
{
        welcome(p);
        for (unsigned i = 0; i < 2; i++) {
                answer_explain(p, 0, 256, FIRST);
                answer_probe(p, FIRST, 256, 256, true);
                answer_probe(p, 261, 39, 10, false);
                answer_explain(p, 271, 29, 2);
                answer_probe(p, 273, 27, 1, false);
                answer_explain(p, 274, 26, 0);
        }
        for (unsigned i = 0; i < 2; i++) { /* all of it is there */
                answer_explain(p, 0, 7, 0);
                answer_probe(p, 0, 7, 7, false);
        }
        for (unsigned i = 0; i < 2; i++) /* or here */
                answer_explain(p, 0, 7, 7);
        for (unsigned i = 0; i < 2; i++) { /* or nowhere */
                answer_explain(p, 0, 7, 0);
                answer_probe(p, 0, 7, 0, false);
                answer_explain(p, 0, 7, 0);
        }
        fake_expect_end(p);
}

SCENE(test_probe, script_probe)
{
        assert_probe(c, CLIENT_KEYS, FIRST, 274, 1);
        assert_probe(c, 7, 0, 7, 0);
        assert_probe(c, 7, 7, 7, 0);
        assert_probe(c, 7, 0, 0, 0);
}

static void script_probe_without_part(struct fake_peer *p)
{
        fake_welcome_ns(p);
        for (unsigned i = 0; i < 2; i++)
                answer_explain(p, 0, 256, FIRST);
        fake_expect_end(p);
}

SCENE(test_probe_without_part, script_probe_without_part)
{
        assert_probe(c, CLIENT_KEYS, FIRST, FIRST, 0);
}

static uint32_t wrong_number;

static void script_probe_is_wrong(struct fake_peer *p)
{
        Kvlease__V1__ProbeHostsReply reply = KVLEASE__V1__PROBE_HOSTS_REPLY__INIT;

        welcome(p);
        answer_explain(p, 0, 7, FIRST);
        receive_probe(p, FIRST, 2);
        reply.n_pages = wrong_number;
        fake_reply(p, &reply.base);
        fake_expect_end(p);
}

TEST_BARE(test_probe_is_wrong)
{
        uint32_t here, all;
        struct client c;

        for (wrong_number = 0; wrong_number <= 3; wrong_number += 3) {
                open_client(&c, script_probe_is_wrong, LONG_MSEC, FLAGS);
                assert_int_equal(
                        kvl_probe_hosts(c.ns, c.keys[0], 7, LONG_MSEC, &here, &all, NULL), -EPROTO);
                close_client(&c);
        }
}

SCENE(test_probe_arguments, script_no_message)
{
        uint32_t n;

        assert_int_equal(kvl_probe_hosts(NULL, c->keys[0], 1, 1, &n, &n, NULL), -EINVAL);
        assert_int_equal(kvl_probe_hosts(c->ns, NULL, 1, 1, &n, &n, NULL), -EINVAL);
        assert_int_equal(kvl_probe_hosts(c->ns, c->keys[0], 0, 1, &n, &n, NULL), -EINVAL);
        assert_int_equal(kvl_probe_hosts(c->ns, c->keys[0], 1, 1, NULL, &n, NULL), -EINVAL);
        assert_int_equal(kvl_probe_hosts(c->ns, c->keys[0], 1, 1, &n, NULL, NULL), -EINVAL);
        assert_string_equal(kvl_last_error(), "there is no room for the numbers of keys");
        assert_int_equal(kvl_probe_hosts(c->ns, c->keys[0], 1, 0, &n, &n, NULL), -EINVAL);
        assert_int_equal(kvl_probe_hosts(c->ns, c->keys[0], 1, 600001, &n, &n, NULL), -EINVAL);
}

/* ---- what computing takes -------------------------------------------------------------------- */

static void script_prefill(struct fake_peer *p)
{
        const Kvlease__V1__NotePrefillRequest *m;

        welcome(p);
        m = (const Kvlease__V1__NotePrefillRequest *)fake_receive(p, MSG_NOTE_PREFILL);
        FAKE_CHECK(p->flags & FRAME_NO_REPLY && m->ns_id == FAKE_NS_ID);
        FAKE_CHECK(m->n_tokens == 1234 && m->nsec == UINT64_C(3600) * 1000000000);
        fake_expect_end(p);
}

SCENE(test_prefill, script_prefill)
{
        assert_int_equal(kvl_note_prefill(c->ns, 1234, UINT64_C(3600) * 1000000000), 0);
        assert_int_equal(kvl_note_prefill(c->ns, 0, 1), -EINVAL);
        assert_int_equal(kvl_note_prefill(c->ns, 1, 0), -EINVAL);
        assert_int_equal(kvl_note_prefill(c->ns, 1, UINT64_C(3600) * 1000000000 + 1), -EINVAL);
        assert_string_equal(kvl_last_error(),
                "1 tokens in 3600000000001 ns: at least 1 token in 1 ns to an hour are allowed");
}
