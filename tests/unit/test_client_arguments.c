/*
 * Arguments that make no sense: NULL for each thing in turn, numbers that no call takes. Functions
 * say so, where they can say anything, and the process goes on. Without a namespace, and in one, in
 * shared memory and over the socket.
 */
#include "tests/unit/client-support.h"

static void serve(struct fake_peer *p)
{
        p->shares = true;
        fake_welcome(p);
        fake_serve(p);
}

struct world {
        struct fake f;
        struct kvl_conn *conn;
        struct kvl_ns *ns;
};

/* *state: NULL over the socket. */
static void open_world(void **state, struct world *w)
{
        struct kvl_layout layout = test_layout(1, PAGE_BYTES);

        fake_start(&w->f, serve);
        assert_int_equal(
                test_connect_flags(&w->f, 0, *state ? 0 : KVL_CONNECT_NO_SHM, &w->conn), 0);
        assert_int_equal(kvl_ns_open(w->conn, "chat", &layout, NULL, 0, &w->ns), 0);
}

static void close_world(struct world *w)
{
        kvl_disconnect(w->conn);
        fake_stop(&w->f);
}

/* A sentence comes with it. */
#define REFUSED(call)                                     \
        do {                                              \
                assert_true((call) < 0);                  \
                assert_true(kvl_last_error()[0] != '\0'); \
        } while (0)

TEST(test_nothing_to_ask)
{
        struct kvl_ns_info info = {.size = sizeof(info)};
        uint8_t key[KVL_KEY_BYTES] = {0};
        uint32_t page = 0, n = 1;
        const uint32_t *pages;
        struct kvl_page_table *table;
        struct kvl_ns *ns = NULL;
        uint64_t tokens;

        kvl_disconnect(NULL);
        kvl_ns_close(NULL);
        kvl_set_event_handler(NULL, NULL, NULL);
        kvl_group_token(NULL, key);
        kvl_group_token(NULL, NULL);
        kvl_ns_info(NULL, &info);
        kvl_ns_info(NULL, NULL);
        kvl_page_table_free(NULL);
        assert_string_equal(kvl_tenant(NULL), "");
        assert_string_equal(kvl_ns_name(NULL), "");
        assert_int_equal(kvl_client_id(NULL), 0);
        assert_int_equal(kvl_uses_shm(NULL), 0);
        assert_int_equal(kvl_page_tier(NULL, 0), -EINVAL);
        assert_null(kvl_page_ptr(NULL, 0, 0));
        assert_null(kvl_plane_base(NULL, 0));
        assert_non_null(kvl_strerror(-99999));
        assert_non_null(kvl_strerror(INT32_MAX));
        REFUSED(kvl_connect(NULL, NULL));
        REFUSED(kvl_ns_open(NULL, NULL, NULL, NULL, 0, &ns));
        REFUSED(kvl_dispatch(NULL));
        REFUSED(kvl_safepoint(NULL, NULL));
        REFUSED(kvl_key_root(NULL, key));
        REFUSED(kvl_layout_name(NULL, NULL));
        REFUSED(kvl_keys(NULL, NULL, 5, 16, key));
        REFUSED(kvl_key_chain(key, NULL, 5, key));
        REFUSED(kvl_map_pages(NULL, &page, 1));
        REFUSED(kvl_page_read(NULL, 0, 0, 0, key, 1));
        REFUSED(kvl_pages_write(NULL, NULL));
        REFUSED(kvl_request_end(NULL, 1));
        REFUSED(kvl_lookup(NULL, 0, key, 1, &page, &n, &tokens));
        REFUSED(kvl_lookup_set(NULL, 2, 0, key, 1, &page, &n, &tokens));
        REFUSED(kvl_lookup_start(NULL, 0, key, 1, NULL, NULL));
        REFUSED(kvl_find(NULL, 0, key, 1, &page, &n, &tokens));
        REFUSED(kvl_expect(NULL, key, 1, 1));
        REFUSED(kvl_fetch(NULL, &page, 1, &page));
        REFUSED(kvl_lease(NULL, 0, 1, &page));
        REFUSED(kvl_leasable_pages(NULL));
        REFUSED(kvl_publish(NULL, NULL, NULL, NULL));
        REFUSED(kvl_publish_on_stream(NULL, NULL, NULL, NULL, NULL));
        REFUSED(kvl_release(NULL, &page, 1));
        REFUSED(kvl_pin(NULL, &page, 1));
        REFUSED(kvl_free(NULL, &page, 1));
        REFUSED(kvl_invalidate(NULL, NULL, NULL));
        REFUSED(kvl_page_copy(NULL, 0, 1));
        REFUSED(kvl_report(NULL, &page, 1, NULL));
        REFUSED(kvl_announce(NULL, &page, key, 1, &n));
        REFUSED(kvl_wait(NULL, key, 1));
        REFUSED(kvl_import_start(NULL, key, key, 1, 1, NULL, NULL));
        REFUSED(kvl_session_open(NULL, "a", 1, NULL, NULL, NULL));
        REFUSED(kvl_session_pages(NULL, 0, 1, NULL, &n));
        REFUSED(kvl_session_keep(NULL, NULL, 1, NULL));
        assert_int_equal(kvl_session_close(NULL, 0), 0);
        REFUSED(kvl_explain(NULL, key, 1, NULL));
        REFUSED(kvl_window_open(NULL, NULL, NULL));
        REFUSED(kvl_window_append(NULL, &page, 1, NULL));
        REFUSED(kvl_window_take(NULL, 0, 1, NULL, &pages, &n));
        REFUSED(kvl_page_table_new(0, 0, &table));
        REFUSED(kvl_page_table_append(NULL, &page, 1));
        assert_null(ns);
}

TEST_BOTH(test_no_room)
{
        const struct kvl_publish empty = {.size = sizeof(empty), .n_pages = 1};
        struct kvl_layout layout = test_layout(1, PAGE_BYTES);
        uint8_t key[KVL_KEY_BYTES] = {0};
        uint32_t page = 0, n = 1;
        struct world w;
        uint64_t tokens;

        open_world(state, &w);
        kvl_group_token(w.conn, NULL);
        kvl_ns_info(w.ns, NULL);
        REFUSED(kvl_ns_open(w.conn, "other", &layout, NULL, 0, NULL));
        REFUSED(kvl_map_pages(w.ns, NULL, 1));
        REFUSED(kvl_map_pages(w.ns, &page, 0));
        REFUSED(kvl_page_read(w.ns, 0, 0, 0, NULL, 1));
        REFUSED(kvl_page_read(w.ns, UINT32_MAX, 0, 0, key, 1));
        REFUSED(kvl_page_read(w.ns, 0, UINT32_MAX, UINT64_MAX, key, 1));
        REFUSED(kvl_page_write(w.ns, 0, 0, PAGE_BYTES, key, 1));
        REFUSED(kvl_page_write(w.ns, 0, 0, 1, key, UINT64_MAX));
        REFUSED(kvl_pages_read(w.ns, NULL));
        REFUSED(kvl_lookup(w.ns, 0, NULL, 1, &page, &n, &tokens));
        REFUSED(kvl_lookup(w.ns, 0, key, 0, &page, &n, &tokens));
        REFUSED(kvl_lookup(w.ns, 0, key, 1, NULL, &n, &tokens));
        REFUSED(kvl_lookup(w.ns, 0, key, 1, &page, NULL, &tokens));
        REFUSED(kvl_find(w.ns, 0, key, 1, NULL, NULL, NULL));
        REFUSED(kvl_probe(w.ns, key, 1, NULL, NULL));
        REFUSED(kvl_expect(w.ns, NULL, 1, 1));
        REFUSED(kvl_fetch(w.ns, NULL, 1, &page));
        REFUSED(kvl_fetch(w.ns, &page, 1, NULL));
        REFUSED(kvl_lease(w.ns, 0, 1, NULL));
        REFUSED(kvl_lease(w.ns, 0, UINT32_MAX, &page));
        REFUSED(kvl_publish(w.ns, NULL, NULL, NULL));
        REFUSED(kvl_publish(w.ns, &empty, NULL, NULL));
        REFUSED(kvl_release(w.ns, NULL, 1));
        REFUSED(kvl_release(w.ns, &(uint32_t){UINT32_MAX}, 1));
        REFUSED(kvl_free(w.ns, NULL, UINT32_MAX));
        REFUSED(kvl_pin(w.ns, NULL, 1));
        REFUSED(kvl_page_copy(w.ns, UINT32_MAX, 0));
        REFUSED(kvl_report(w.ns, NULL, 1, NULL));
        REFUSED(kvl_announce(w.ns, NULL, key, 1, &n));
        REFUSED(kvl_announce(w.ns, &page, NULL, 1, &n));
        REFUSED(kvl_wait(w.ns, NULL, 1));
        REFUSED(kvl_lookup_set(&w.ns, 0, 0, key, 1, &page, &n, &tokens));
        REFUSED(kvl_session_open(w.ns, NULL, 1, NULL, NULL, NULL));
        REFUSED(kvl_session_open(w.ns, "a", 1, NULL, NULL, NULL));
        REFUSED(kvl_explain(w.ns, key, 1, NULL));
        REFUSED(kvl_window_open(w.ns, NULL, NULL));
        assert_null(kvl_page_ptr(w.ns, UINT32_MAX, UINT32_MAX));
        assert_null(kvl_plane_base(w.ns, UINT32_MAX));
        assert_int_equal(kvl_page_tier(w.ns, UINT32_MAX), -EINVAL);
        close_world(&w);
}
