/*
 * Windows over texts larger than the device: what is sent below it and copied back, in which order;
 * through the rings, and over the socket. The bytes: tests/integration/test_windows.c.
 */
#include <poll.h>
#include <string.h>

#include "base/macros.h"
#include "tests/unit/alloc-fail.h"
#include "tests/unit/client-window.h"

/* ---- down ----------------------------------------------------------------------------------- */

static void script_down(struct fake_peer *p)
{
        p->fill = put_on_device;
        serve_to_ns(p);
        fake_serve(p);
        FAKE_CHECK(p->n_fetches == N_TEXT - N_FIRST - N_LAST);
        fake_check_nothing_held(p);
}

/* Page by page, as it is computed: what isn't among the first and last goes. */
static void goes_down(unsigned flags)
{
        struct client c;
        uint32_t n;

        connect_client(&c, script_down, LONG_MSEC, flags);
        open_window(&c);
        assert_null(kvl_window_pages(c.window, &n));
        assert_int_equal(n, 0);
        find(&c);
        for (uint32_t i = 0; i < N_TEXT; i++) {
                assert_int_equal(kvl_window_append(c.window, &c.pages[i], 1, NULL), 0);
                assert_non_null(kvl_window_pages(c.window, &n));
                assert_int_equal(n, i + 1);
                /* Earlier pages have settled. */
                for (uint32_t j = 0; j < i; j++)
                        assert_int_equal(is_below(&c, j), j >= N_FIRST && j + N_LAST < i);
        }
        close_client(&c);
}

TEST_BOTH_WAYS(test_down, goes_down)

static void script_full(struct fake_peer *p)
{
        p->fill = put_on_device;
        p->fetch_room = 3;
        serve_to_ns(p);
        fake_serve(p);
        fake_check_nothing_held(p);
}

/* A page without room below stays, and is read there. */
static void stays_where_full(unsigned flags)
{
        const uint32_t *pages;
        struct client c;

        open_client(&c, script_full, LONG_MSEC, flags);
        take(&c, 0, N_TEXT, N_TEXT, &pages); /* nothing has settled */
        find(&c);
        assert_int_equal(kvl_window_append(c.window, c.pages, 1, NULL), KVL_FULL);
        assert_non_null(strstr(kvl_last_error(), "host_memory"));
        take(&c, 2, N_TEXT, CHUNK, &pages);
        take(&c, 5, N_TEXT, N_TEXT + 1 - 5, &pages);
        assert_int_equal(kvl_release(c.ns, c.pages + 1, N_TEXT - 1), 0);
        close_client(&c);
}

TEST_BOTH_WAYS(test_full, stays_where_full)

/* ---- copies --------------------------------------------------------------------------------- */

/* No copy ends before the chunk after it is asked for. */
static void end_two_chunks(struct fake_peer *p, const struct shm_submission *s)
{
        static struct shm_submission waiting[2 * CHUNK];
        static uint32_t n_waiting;

        waiting[n_waiting++] = *s;
        if (n_waiting < ARRAY_SIZE(waiting))
                return;
        for (n_waiting = 0; n_waiting < ARRAY_SIZE(waiting); n_waiting++)
                fake_complete(p, waiting[n_waiting].user_data, WIRE_OK, waiting[n_waiting].copy.to);
        p->on_fetch = NULL;
}

static void script_ahead(struct fake_peer *p)
{
        p->fill = put_middle_below;
        p->on_fetch = end_two_chunks;
        serve_to_ns(p);
        fake_serve(p);
        fake_check_nothing_held(p);
}

/* While a chunk is waited for the next one is on its way already. */
CLIENT_WINDOW_SCENE(test_two_are_on_their_way, script_ahead, LONG_MSEC, 0)
{
        const uint32_t *pages;

        take(c, 2, N_TEXT - 2, CHUNK, &pages);
        take(c, 4, N_TEXT - 4, CHUNK, &pages);
}

/* ---- what goes wrong ------------------------------------------------------------------------ */

/* The page can't be had the first time. */
static void lose_page_5(struct fake_peer *p, const struct shm_submission *s)
{
        static bool was_lost;

        if (s->page == N_DEVICE + FIRST + 5 && !was_lost) {
                was_lost = true;
                fake_complete(p, s->user_data, WIRE_NOT_FOUND, s->page);
                return;
        }
        fake_complete(p, s->user_data, WIRE_OK, s->copy.to);
}

static void script_miss(struct fake_peer *p)
{
        p->fill = put_middle_below;
        p->on_fetch = lose_page_5;
        serve_to_ns(p);
        fake_serve(p);
        fake_check_nothing_held(p);
}

CLIENT_WINDOW_SCENE(test_miss, script_miss, LONG_MSEC, 0)
{
        const uint32_t *pages = NULL;
        uint32_t n = 77;

        take(c, 2, N_TEXT, 2, &pages);
        pages = NULL;
        assert_int_equal(kvl_window_take(c->window, 4, 8, NULL, &pages, &n), KVL_MISS);
        assert_non_null(strstr(kvl_last_error(), "page 5 of the text"));
        assert_null(pages);
        assert_int_equal(n, 77);
        take(c, 6, N_TEXT, 2, &pages);
        take(c, 4, N_TEXT, 2, &pages);
}

static struct shm_submission held[16];
static uint32_t n_held;

static void hold(struct fake_peer *p, const struct shm_submission *s)
{
        FAKE_CHECK(n_held < ARRAY_SIZE(held));
        held[n_held++] = *s;
}

/* Serves the ring, then a frame. */
static void serve_next(struct fake_peer *p)
{
        while (p->has_rings && !fake_rings_sleep(&p->rings))
                (void)fake_serve_one(p, NULL);
        if (p->n_fetches == 0 || p->on_fetch == hold)
                FAKE_CHECK(fake_serve_one(p, fake_receive_any(p)));
}

static void wrong_target(struct fake_peer *p, const struct shm_submission *s)
{
        p->has_broken = true;
        fake_complete(p, s->user_data, WIRE_OK, s->copy.to + 1);
}

static void script_wrong(struct fake_peer *p)
{
        p->fill = put_middle_below;
        p->on_fetch = wrong_target;
        serve_to_ns(p);
        fake_serve(p);
}

TEST(test_wrong)
{
        const uint32_t *pages;
        struct client c;
        uint32_t n;

        open_client(&c, script_wrong, LONG_MSEC, 0);
        assert_int_equal(kvl_window_take(c.window, 8, 8, NULL, &pages, &n), -EPROTO);
        assert_true(kvl_window_take(c.window, 8, 8, NULL, &pages, &n) < 0);
        assert_true(kvl_window_close(c.window, NULL) <= 0);
        kvl_disconnect(c.conn);
        fake_stop(&c.f);
}

/* No copy is made before the client has given up. */
static void script_late(struct fake_peer *p)
{
        p->fill = put_middle_below;
        p->on_fetch = hold;
        serve_to_ns(p);
        while (p->type != MSG_INVALIDATE)
                serve_next(p);
        FAKE_CHECK(n_held > 0);
        for (uint32_t i = 0; i < n_held; i++)
                fake_complete(p, held[i].user_data, WIRE_OK, held[i].copy.to);
        fake_serve(p);
        fake_check_nothing_held(p);
}

/* A copy that is late may come at any time: nothing is read in the buffer any more. */
TEST(test_timeout)
{
        const uint32_t *pages;
        struct client c;
        uint64_t n_dropped;
        uint32_t n;

        open_client(&c, script_late, LONG_MSEC, 0);
        test_limit(c.conn, 100);
        assert_int_equal(kvl_window_take(c.window, 2, 8, NULL, &pages, &n), -ETIMEDOUT);
        assert_int_equal(kvl_window_take(c.window, 0, 8, NULL, &pages, &n), -ETIMEDOUT);
        test_limit(c.conn, LONG_MSEC);
        assert_int_equal(kvl_window_close(c.window, NULL), 0);
        assert_int_equal(kvl_invalidate(c.ns, NULL, &n_dropped), 0);
        while (c.conn->fetches.n_begun > 0) {
                struct pollfd p = {.fd = kvl_fd(c.conn), .events = POLLIN};

                assert_true(kvl_dispatch(c.conn) >= 0);
                if (c.conn->fetches.n_begun > 0)
                        assert_int_equal(poll(&p, 1, LONG_MSEC), 1);
        }
        kvl_disconnect(c.conn);
        fake_stop(&c.f);
}

CLIENT_WINDOW_SCENE(test_arguments, script_copies, LONG_MSEC, 0)
{
        struct kvl_window_options o = {.size = sizeof(o), .chunk_pages = KVL_MAX_WINDOW_CHUNK + 1};
        struct kvl_window *none = NULL;
        const uint32_t *pages;
        uint32_t n, unpinned = FIRST + N_TEXT;

        assert_int_equal(kvl_window_open(c->ns, &o, &none), -EINVAL);
        assert_int_equal(kvl_window_open(NULL, NULL, &none), -EINVAL);
        assert_int_equal(kvl_window_append(c->window, &unpinned, 1, NULL), -EINVAL);
        assert_int_equal(kvl_window_append(c->window, c->pages, 0, NULL), -EINVAL);
        assert_int_equal(kvl_window_append(NULL, c->pages, 1, NULL), -EINVAL);
        assert_int_equal(kvl_window_take(c->window, N_TEXT, 1, NULL, &pages, &n), -EINVAL);
        assert_int_equal(kvl_window_take(c->window, 0, 0, NULL, &pages, &n), -EINVAL);
        assert_int_equal(kvl_window_take(c->window, 0, 1, &n, &pages, &n), -EINVAL);
        assert_int_equal(kvl_window_take(c->window, 0, 1, NULL, NULL, &n), -EINVAL);
        assert_int_equal(kvl_window_take(NULL, 0, 1, NULL, &pages, &n), -EINVAL);
        assert_int_equal(kvl_window_close(NULL, NULL), 0);
}

/* Each allocation fails once: nothing leaks, nothing wrong is handed out, the next try works. */
static void without_memory(unsigned flags)
{
        const uint32_t *pages;
        struct client c;
        uint32_t n;
        int r;

        connect_client(&c, script_copies, LONG_MSEC, flags);
        r = -ENOMEM;
        for (unsigned i = 1; r != 0; i++) {
                alloc_fail_at(i);
                r = kvl_window_open(c.ns, NULL, &c.window);
                assert_int_equal(r, alloc_fail_end() ? -ENOMEM : 0);
        }
        assert_int_equal(kvl_window_close(c.window, NULL), 0);
        open_window(&c);
        find(&c);
        r = -ENOMEM;
        for (unsigned i = 1; r != 0; i++) {
                alloc_fail_at(i);
                r = kvl_window_append(c.window, c.pages, N_TEXT, NULL);
                assert_int_equal(r, alloc_fail_end() ? -ENOMEM : 0);
        }
        for (unsigned i = 1, failed = 1; failed; i++) {
                alloc_fail_at(i);
                r = kvl_window_take(c.window, 2 + 2 * (i % 3), 8, NULL, &pages, &n);
                failed = alloc_fail_end();
                assert_true(r == 0 || (failed && r == -ENOMEM));
        }
        close_client(&c);
}

TEST_BOTH_WAYS(test_without_memory, without_memory)
