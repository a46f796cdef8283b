/* Publishing on a stream, copies of pages, explanations, options of namespaces: what
 * the library asks a daemon for, and what it makes of the answers. */
#include "base/macros.h"
#include "tests/unit/client-session.h"
#include "tests/unit/fake-gpu.h"

/* ---- on a GPU ------------------------------------------------------------------------------- */

static void count_done(struct kvl_ns *ns, int code, const uint32_t *pages, uint32_t n_pages,
        uint64_t n_tokens, void *data)
{
        assert_int_equal(code, 0);
        (*(uint32_t *)data)++;
}

static void script_gpu(struct fake_peer *p)
{
        p->device = FAKE_GPU_NAME;
        p->transport = TRANSPORT_VMM;
        p->shares = true;
        fake_welcome(p);
        fake_serve(p);
        for (uint32_t i = 0; i < p->capacity; i++)
                FAKE_CHECK(!p->has_key[i] ||
                           (p->published[i].session == 1 && p->published[i].tag == 7));
        FAKE_CHECK(p->n_sessions == 1);
}

/* The session may be closed by the time the stream gets there. */
static void publish_on_stream(unsigned flags)
{
        uint8_t keys[2 * KVL_KEY_BYTES];
        uint32_t pages[2], n_done = 0;
        struct kvl_publish p = {.size = sizeof(p),
                .pages = pages,
                .keys = keys,
                .n_pages = 2,
                .last_tokens = 16,
                .tag = 7};
        struct kvl_session *s;
        struct client c;

        fake_gpu_reset(TRANSPORT_VMM);
        open_client(&c, script_gpu, LONG_MSEC, flags);
        test_key(keys, 0);
        test_key(keys + KVL_KEY_BYTES, 1);
        assert_int_equal(kvl_lease(c.ns, 0, 2, pages), 0);
        p.session = s = open_session(&c);
        assert_int_equal(kvl_publish_on_stream(c.ns, &p, (void *)1, count_done, &n_done), 0);
        assert_int_equal(kvl_session_close(s, 0), 0);
        fake_gpu_run(1);
        while (n_done == 0)
                assert_true(kvl_dispatch(c.conn) >= 0);
        assert_int_equal(kvl_release(c.ns, pages, 2), 0);
        close_client(&c);
}

TEST(test_publish_on_stream)
{
        publish_on_stream(0);
        publish_on_stream(KVL_CONNECT_NO_SHM);
}

static bool holds(struct kvl_ns *ns, uint32_t page, uint32_t plane, uint8_t byte)
{
        static uint8_t got[PAGE_BYTES];

        assert_int_equal(kvl_page_read(ns, page, plane, 0, got, PAGE_BYTES), 0);
        return got[0] == byte && memcmp(got, got + 1, PAGE_BYTES - 1) == 0;
}

/* From one set to another, in both planes, and no other page. */
static void copy_page(struct kvl_ns *ns)
{
        static const uint32_t from = 2, to = 40, next = 41;
        uint32_t pages[64];
        uint8_t bytes[PAGE_BYTES];

        assert_int_equal(kvl_lease(ns, 0, 64, pages), 0);
        for (uint8_t plane = 0; plane < 2; plane++) {
                memset(bytes, 11 + plane, sizeof(bytes));
                assert_int_equal(kvl_page_write(ns, from, plane, 0, bytes, PAGE_BYTES), 0);
                memset(bytes, 99, sizeof(bytes));
                assert_int_equal(kvl_page_write(ns, next, plane, 0, bytes, PAGE_BYTES), 0);
        }
        assert_int_equal(kvl_page_copy(ns, from, to), 0);
        for (uint8_t plane = 0; plane < 2; plane++)
                assert_true(holds(ns, to, plane, 11 + plane) &&
                            holds(ns, from, plane, 11 + plane) && holds(ns, next, plane, 99));
        assert_int_equal(kvl_page_copy(ns, from, from), -EINVAL);
        assert_int_equal(kvl_page_copy(ns, from, 1 << 20), -EINVAL);
        assert_int_equal(kvl_page_copy(ns, 1 << 20, to), -EINVAL);
        assert_int_equal(kvl_page_copy(ns, from, 100), -ENOENT);
        assert_int_equal(kvl_page_copy(ns, 100, to), -ENOENT);
        assert_non_null(strstr(kvl_last_error(), "page 100 isn't mapped"));
}

static void script_copy(struct fake_peer *p)
{
        p->shares = true;
        fake_welcome(p);
        fake_serve(p);
}

static void script_copy_gpu(struct fake_peer *p)
{
        p->device = FAKE_GPU_NAME;
        p->transport = TRANSPORT_VMM;
        script_copy(p);
}

CLIENT_SCENE(test_copy, script_copy, LONG_MSEC, KVL_CONNECT_NO_SHM)
{
        copy_page(c->ns);
        close_client(c);
        fake_gpu_reset(TRANSPORT_VMM);
        open_client(c, script_copy_gpu, LONG_MSEC, KVL_CONNECT_NO_SHM);
        copy_page(c->ns);
        fake_gpu_break();
        assert_int_equal(kvl_page_copy(c->ns, 2, 40), -EIO);
        close_client(c);
        open_client(c, script_copy, LONG_MSEC, KVL_CONNECT_METADATA_ONLY);
        assert_int_equal(kvl_page_copy(c->ns, 2, 40), -EACCES);
}

/* ---- tags, explanations, namespaces --------------------------------------------------------- */

static void script_explain(struct fake_peer *p)
{
        Kvlease__V1__Explanation e[3] = {KVLEASE__V1__EXPLANATION__INIT,
                KVLEASE__V1__EXPLANATION__INIT, KVLEASE__V1__EXPLANATION__INIT};
        Kvlease__V1__Explanation *all[] = {&e[0], &e[1], &e[2]};
        Kvlease__V1__ExplainReply reply = KVLEASE__V1__EXPLAIN_REPLY__INIT;
        const Kvlease__V1__InvalidateRequest *invalidate;
        const Kvlease__V1__ExplainRequest *m;
        char by[101];

        fake_welcome_ns(p);
        invalidate = (const Kvlease__V1__InvalidateRequest *)receive(p, MSG_INVALIDATE);
        FAKE_CHECK(invalidate->key.len == 0 && invalidate->tag == UINT64_C(1) << 50);
        answer_count(p, 3);
        m = (const Kvlease__V1__ExplainRequest *)receive(p, MSG_EXPLAIN);
        FAKE_CHECK(m->ns_id == FAKE_NS_ID && m->keys.len == 96 && m->keys.data[64] == 3);
        memset(by, 'x', 100);
        by[100] = '\0';
        e[0].state = KVL_EXPLAIN_CACHED;
        e[0].page = 6;
        e[0].age_sec = 10;
        e[0].unused_sec = 4;
        e[0].client_id = 99;
        e[1].state = KVL_EXPLAIN_EVICTED;
        e[1].by = by;
        e[1].age_sec = UINT64_C(1) << 40;
        e[2].state = 77; /* of a newer daemon */
        reply.explanations = all;
        reply.n_explanations = 3;
        fake_reply(p, &reply.base);
        receive(p, MSG_EXPLAIN);
        fake_reply_simple(p, WIRE_STALE, "");
        receive(p, MSG_EXPLAIN);
        reply.n_explanations = 2;
        fake_reply(p, &reply.base);
        fake_expect_end(p);
}

TEST(test_tags_and_explanations)
{
        uint8_t keys[3 * KVL_KEY_BYTES] = {[0] = 1, [32] = 2, [64] = 3};
        struct kvl_explanation why[3];
        uint64_t n_pages = 0;
        struct client c;

        open_client(&c, script_explain, LONG_MSEC, KVL_CONNECT_NO_SHM);
        assert_int_equal(kvl_invalidate_tag(c.ns, UINT64_C(1) << 50, &n_pages), 0);
        assert_int_equal(n_pages, 3);
        assert_int_equal(kvl_explain(c.ns, keys, 3, why), 0);
        assert_int_equal(why[0].state, KVL_EXPLAIN_CACHED);
        assert_true(why[0].page == 6 && why[0].age_sec == 10 && why[0].unused_sec == 4);
        assert_true(why[0].client_id == 99 && why[0].by[0] == '\0');
        assert_int_equal(why[1].state, KVL_EXPLAIN_EVICTED);
        assert_true(why[1].page == KVL_PAGE_NONE && why[1].age_sec == UINT64_C(1) << 40);
        assert_int_equal(strlen(why[1].by), 64);
        assert_int_equal(why[2].state, 77);
        assert_int_equal(kvl_explain(c.ns, keys, 3, why), KVL_STALE);
        assert_int_equal(kvl_explain(c.ns, keys, 3, why), -EPROTO);
        close_client(&c);
}

static void script_ns_options(struct fake_peer *p)
{
        const Kvlease__V1__NsOpenRequest *m;

        fake_welcome(p);
        m = (const Kvlease__V1__NsOpenRequest *)receive(p, MSG_NS_OPEN);
        FAKE_CHECK(strcmp(m->set, "tp") == 0 && m->set_size == 64 && m->expire_sec == 99);
        FAKE_CHECK(m->keep_page_zero && strcmp(m->device, "host") == 0);
        fake_reply_simple(p, WIRE_INVALID, "the set tp has 2 namespaces");
        m = (const Kvlease__V1__NsOpenRequest *)receive(p, MSG_NS_OPEN);
        FAKE_CHECK(m->set[0] == '\0' && m->set_size == 0 && m->expire_sec == 0);
        FAKE_CHECK(!m->keep_page_zero && m->device[0] == '\0');
        fake_serve_one(p, &m->base);
        fake_expect_end(p);
}

FAKE_DAEMON_SCENE(test_namespace_options, script_ns_options)
{
        static char long_name[130];
        struct kvl_ns_options options = {.size = sizeof(options),
                .device = "host",
                .flags = KVL_NS_KEEP_PAGE_ZERO,
                .set = "tp",
                .set_size = 64,
                .expire_sec = 99};
        struct kvl_layout layout = test_layout(1, PAGE_BYTES);
        struct kvl_conn *conn;
        struct kvl_ns *ns;

        assert_int_equal(test_connect(f, LONG_MSEC, &conn), 0);
        assert_int_equal(kvl_ns_open_with(conn, "chat", &layout, &options, &ns), -EINVAL);
        assert_string_equal(kvl_last_error(), "the set tp has 2 namespaces");
        for (options.set_size = 0; options.set_size < 2; options.set_size++)
                assert_int_equal(kvl_ns_open_with(conn, "chat", &layout, &options, &ns), -EINVAL);
        options.set_size = 65;
        assert_int_equal(kvl_ns_open_with(conn, "chat", &layout, &options, &ns), -EINVAL);
        options.set_size = 2;
        memset(long_name, 'n', 129);
        options.set = long_name;
        assert_int_equal(kvl_ns_open_with(conn, "chat", &layout, &options, &ns), -EINVAL);
        options.set = "";
        assert_int_equal(kvl_ns_open_with(conn, "chat", &layout, &options, &ns), -EINVAL);
        options.set = NULL;
        assert_int_equal(kvl_ns_open_with(conn, "chat", &layout, &options, &ns), -EINVAL);
        assert_non_null(strstr(kvl_last_error(), "without a set"));
        options.size = 4;
        assert_int_equal(kvl_ns_open_with(conn, "chat", &layout, &options, &ns), -EINVAL);
        assert_int_equal(kvl_ns_open_with(conn, "chat", &layout, NULL, &ns), 0);
        kvl_disconnect(conn);
}
