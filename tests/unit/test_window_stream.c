/* Windows on a GPU whose streams run when the test says so: nothing is overwritten or let go that
 * work on the engine's stream may still read. Each test runs in shared memory and over the socket.
 */
#include "client/lib/calls/op.h"
#include "client/lib/pages/window.h"
#include "tests/unit/client-support.h"
#include "tests/unit/fake-gpu.h"

static void *const STREAM = (void *)0x1000;

#define SET_PAGES (FAKE_EXTENT_BYTES / PAGE_BYTES)
#define N_DEVICE  (2 * SET_PAGES)

/* Page 0 is on the device, 1 to 4 lie below it. */
#define N_TEXT 5
#define FIRST  40

struct world {
        struct fake f;
        struct kvl_conn *conn;
        struct kvl_ns *ns;
        struct kvl_window *window;
        uint32_t pages[N_TEXT];
};

static void put_text(struct fake_peer *p)
{
        for (uint32_t i = 0; i < N_TEXT; i++) {
                uint8_t key[KVL_KEY_BYTES];

                test_key(key, i);
                fake_put(p, (i == 0 ? 0 : N_DEVICE) + FIRST + i, key, 16);
        }
}

/* And one page more. */
static void put_on_device(struct fake_peer *p)
{
        for (uint32_t i = 0; i <= N_TEXT; i++) {
                uint8_t key[KVL_KEY_BYTES];

                test_key(key, i);
                fake_put(p, FIRST + i, key, 16);
        }
}

static void script_gpu(struct fake_peer *p)
{
        p->shares = true;
        p->device = FAKE_GPU_NAME;
        p->transport = TRANSPORT_VMM;
        p->n_device_sets = 2;
        do
                FAKE_CHECK(fake_serve_one(p, fake_receive_any(p)));
        while (p->type != (p->has_rings ? MSG_NS_SHARE : MSG_NS_OPEN));
        if (!p->has_index)
                p->fill(p);
        fake_serve(p);
}

static void script_text(struct fake_peer *p)
{
        p->fill = put_text;
        script_gpu(p);
        fake_check_nothing_held(p);
}

static void script_on_device(struct fake_peer *p)
{
        p->fill = put_on_device;
        script_gpu(p);
        fake_check_nothing_held(p);
}

/* state: not NULL for shared memory. */
static void open_world(void **state, struct world *w, fake_script script)
{
        struct kvl_window_options o = {.size = sizeof(o), .chunk_pages = 1};
        struct kvl_layout layout = test_layout(1, PAGE_BYTES);
        uint8_t keys[N_TEXT][KVL_KEY_BYTES];
        uint64_t n_tokens;
        uint32_t n;

        o.first_tokens = script == script_on_device ? 0 : 16;
        fake_gpu_reset(TRANSPORT_VMM);
        fake_start(&w->f, script);
        assert_int_equal(
                *state ? test_connect_shared(&w->f, 0, &w->conn) : test_connect(&w->f, 0, &w->conn),
                0);
        assert_int_equal(kvl_ns_open(w->conn, "chat", &layout, NULL, 0, &w->ns), 0);
        assert_int_equal(kvl_uses_shm(w->ns), *state != NULL);
        assert_int_equal(kvl_window_open(w->ns, &o, &w->window), 0);
        for (uint32_t i = 0; i < N_TEXT; i++)
                test_key(keys[i], i);
        assert_int_equal(kvl_find(w->ns, 0, keys[0], N_TEXT, w->pages, &n, &n_tokens), 0);
        assert_int_equal(n, N_TEXT);
        assert_int_equal(kvl_window_append(w->window, w->pages, N_TEXT, STREAM), 0);
}

static void close_world(struct world *w)
{
        kvl_disconnect(w->conn);
        fake_stop(&w->f);
        assert_int_equal(fake_gpu.n_open, 0);
}

static uint32_t take(struct world *w, uint32_t first)
{
        const uint32_t *pages;
        uint32_t n;

        assert_int_equal(kvl_window_take(w->window, first, 1, STREAM, &pages, &n), 0);
        assert_int_equal(n, 1);
        return pages[0];
}

/* A copy is asked for when what was on the stream before is done, and not sooner. */
TEST_BOTH(test_copies_wait)
{
        uint32_t at[N_TEXT];
        struct world w;

        open_world(state, &w, script_text);
        at[0] = take(&w, 0);
        assert_int_equal(at[0], w.pages[0]);
        for (uint32_t i = 1; i < N_TEXT; i++) {
                /* The one for page i waits, on the engine's stream. */
                assert_int_equal(fake_gpu.n_calls, i);
                assert_ptr_equal(fake_gpu.calls[i - 1].stream, STREAM);
                kvl_dispatch(w.conn);
                assert_int_equal(w.conn->fetches.n_begun, 0);
                assert_false(list_is_empty(&w.ns->streams.waiting));
                fake_gpu_run(1);
                assert_true(list_is_empty(&w.ns->streams.waiting));
                at[i] = take(&w, i);
                assert_int_equal(kvl_page_tier(w.ns, at[i]), KVL_TIER_DEVICE);
                assert_int_not_equal(at[i], at[i - 1]);
        }
        assert_int_equal(at[1], at[3]);
        /* One is still waiting for the stream, and is called off. */
        assert_int_equal(fake_gpu.n_calls, N_TEXT);
        assert_int_equal(kvl_window_close(w.window, STREAM), 0);
        fake_gpu_run(FAKE_GPU_MAX_CALLS);
        close_world(&w);
}

/* A copy that is cancelled between its place on the stream and the lock isn't begun. */
TEST_BOTH(test_fires_and_is_cancelled)
{
        struct world w;

        open_world(state, &w, script_text);
        take(&w, 0);
        assert_int_equal(fake_gpu.n_calls, 1);
        conn_lock(w.conn->conn);
        fake_gpu_run_start(1);
        fake_gpu_run_join();
        windows_cancel(w.ns);
        conn_unlock(w.conn->conn);
        assert_int_equal(w.conn->fetches.n_begun, 0);
        assert_true(list_is_empty(&w.ns->streams.waiting));
        assert_int_equal(kvl_window_close(w.window, STREAM), 0);
        fake_gpu_run(FAKE_GPU_MAX_CALLS);
        close_world(&w);
}
