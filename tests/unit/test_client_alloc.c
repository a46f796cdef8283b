/* Every allocation of the library fails once: -ENOMEM, nothing leaks, the next try works. */

#include "tests/unit/alloc-fail.h"
#include "tests/unit/client-support.h"

/* Serves connection after connection, until one says goodbye. */
static void script_serve(struct fake_peer *p)
{
        fake_serve(p);
        while (p->type != MSG_BYE) {
                fake_accept(p);
                fake_serve(p);
        }
        if (p->capacity > 0)
                fake_check_nothing_held(p);
}

/*
 * Runs `statement`, which sets r, with its first allocation failing, its second, and so on, until
 * none does; fails the test unless every failure gave -ENOMEM and there was one at all.
 */
#define EACH_FAILURE(statement, after_success)                       \
        do {                                                         \
                bool happened = true;                                \
                for (unsigned n = 1; happened; n++) {                \
                        alloc_fail_at(n);                            \
                        statement;                                   \
                        happened = alloc_fail_end();                 \
                        assert_true(happened || n > 1);              \
                        assert_int_equal(r, happened ? -ENOMEM : 0); \
                        if (r == 0)                                  \
                                after_success;                       \
                }                                                    \
        } while (0)

FAKE_DAEMON_SCENE(test_connect_fails, script_serve)
{
        struct kvl_conn *conn;
        int r;

        EACH_FAILURE(r = test_connect(f, 0, &conn), kvl_disconnect(conn));
}

TEST(test_mapping_fails)
{
        struct kvl_layout layout = test_layout(3, PAGE_BYTES);
        uint8_t key[KVL_KEY_BYTES];
        struct kvl_conn *conn;
        struct kvl_ns *ns;
        uint32_t page, found, n_found;
        uint64_t n_tokens;
        struct fake f;
        int r;
        struct kvl_publish publish = {.size = sizeof(publish),
                .pages = &page,
                .keys = key,
                .n_pages = 1,
                .last_tokens = 16};

        test_key(key, 1);
        fake_start(&f, script_serve);
        assert_int_equal(test_connect(&f, 0, &conn), 0);
        assert_int_equal(kvl_ns_open(conn, "chat", &layout, NULL, 0, &ns), 0);
        EACH_FAILURE(r = kvl_lease(ns, 0, 1, &page), (void)0);
        assert_non_null(kvl_page_ptr(ns, page, 2));
        assert_int_equal(kvl_publish(ns, &publish, NULL, NULL), 0);
        assert_int_equal(kvl_release(ns, &page, 1), 0);
        kvl_ns_close(ns);

        assert_int_equal(kvl_ns_open(conn, "chat", &layout, NULL, 0, &ns), 0);
        EACH_FAILURE(r = kvl_lookup(ns, 0, key, 1, &found, &n_found, &n_tokens), (void)0);
        assert_int_equal(found, page);
        assert_int_equal(kvl_release(ns, &page, 1), 0);
        kvl_ns_close(ns);

        assert_int_equal(kvl_ns_open(conn, "chat", &layout, NULL, 0, &ns), 0);
        EACH_FAILURE(r = kvl_map_pages(ns, &page, 1), (void)0);
        kvl_disconnect(conn);
        fake_stop(&f);
}

static void script_silent(struct fake_peer *p)
{
        fake_welcome_ns(p);
        fake_expect_end(p);
}

/* A late request that can't be noted ends the connection: its reply would look like a violation. */
FAKE_DAEMON_SCENE(test_timeout_without_memory, script_silent)
{
        struct kvl_layout layout = test_layout(1, PAGE_BYTES);
        struct kvl_conn *conn;
        struct kvl_ns *ns;
        uint32_t page;

        assert_int_equal(test_connect(f, 0, &conn), 0);
        assert_int_equal(kvl_ns_open(conn, "chat", &layout, NULL, 0, &ns), 0);
        test_limit(conn, 100);
        alloc_fail_at(1);
        assert_int_equal(kvl_lease(ns, 0, 1, &page), -ENOMEM);
        assert_true(alloc_fail_end());
        assert_int_equal(kvl_lease(ns, 0, 1, &page), -ENOTCONN);
        kvl_disconnect(conn);
}
