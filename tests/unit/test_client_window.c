/*
 * Windows over texts larger than the device: what is sent below it and copied back, in which order;
 * through the rings, and over the socket. The bytes: tests/integration/test_windows.c.
 */
#include <poll.h>
#include <string.h>

#include "base/macros.h"
#include "client/lib/objects/ns.h"
#include "tests/unit/alloc-fail.h"
#include "tests/unit/client-support.h"

/* Of connections that see no timeout here; valgrind on a loaded machine. */
#define LONG_MSEC 60000

#define SET_PAGES (FAKE_EXTENT_BYTES / PAGE_BYTES)
#define N_DEVICE  (2 * SET_PAGES)

/* A text of 12 pages, of which the first 2 and the last 3 are to stay on the device. */
#define N_TEXT  12
#define N_FIRST 2
#define N_LAST  3
#define CHUNK   2
#define FIRST   40 /* its pages, on the device; below it from N_DEVICE + FIRST on */

struct client {
        struct fake f;
        struct kvl_conn *conn;
        struct kvl_ns *ns;
        struct kvl_window *window;
        uint8_t keys[N_TEXT][KVL_KEY_BYTES];
        uint32_t pages[N_TEXT];
};

static void put_text(struct fake_peer *p, bool middle_is_below)
{
        for (uint32_t i = 0; i < N_TEXT; i++) {
                bool is_middle = i >= N_FIRST && i < N_TEXT - N_LAST;
                uint8_t key[KVL_KEY_BYTES];

                test_key(key, i);
                fake_put(p, (middle_is_below && is_middle ? N_DEVICE : 0) + FIRST + i, key, 16);
        }
}

static void put_on_device(struct fake_peer *p)
{
        put_text(p, false);
}

static void put_middle_below(struct fake_peer *p)
{
        put_text(p, true);
}

static void serve_to_ns(struct fake_peer *p)
{
        p->shares = true;
        p->n_device_sets = 2;
        do
                FAKE_CHECK(fake_serve_one(p, fake_receive_any(p)));
        while (p->type != (p->has_rings ? MSG_NS_SHARE : MSG_NS_OPEN));
        if (!p->has_index)
                p->fill(p);
}

/* Of the layout that clients open. */
static uint32_t n_planes = 1;

static void connect_client(struct client *c, fake_script script, int timeout_msec, unsigned flags)
{
        struct kvl_layout layout = test_layout(n_planes, PAGE_BYTES);

        memset(c, 0, sizeof(*c));
        fake_start(&c->f, script);
        assert_int_equal(test_connect_flags(&c->f, timeout_msec, flags, &c->conn), 0);
        assert_int_equal(kvl_ns_open(c->conn, "chat", &layout, NULL, 0, &c->ns), 0);
        for (uint32_t i = 0; i < N_TEXT; i++)
                test_key(c->keys[i], i);
}

static void open_window(struct client *c)
{
        struct kvl_ns_info info = {.size = sizeof(info)};
        struct kvl_window_options o = {.size = sizeof(o), .chunk_pages = CHUNK};

        kvl_ns_info(c->ns, &info);
        o.first_tokens = (uint64_t)N_FIRST * info.page_tokens;
        o.last_tokens = (uint64_t)N_LAST * info.page_tokens - 3; /* whole pages */
        assert_int_equal(kvl_window_open(c->ns, &o, &c->window), 0);
}

static void find(struct client *c)
{
        uint64_t n_tokens;
        uint32_t n;

        assert_int_equal(kvl_find(c->ns, 0, c->keys[0], N_TEXT, c->pages, &n, &n_tokens), 0);
        assert_int_equal(n, N_TEXT);
}

/* With the whole text in the window. */
static void open_client(struct client *c, fake_script script, int timeout_msec, unsigned flags)
{
        connect_client(c, script, timeout_msec, flags);
        open_window(c);
        find(c);
        assert_int_equal(kvl_window_append(c->window, c->pages, N_TEXT, NULL), 0);
}

static void close_client(struct client *c)
{
        assert_int_equal(kvl_window_close(c->window, NULL), 0);
        kvl_disconnect(c->conn);
        fake_stop(&c->f);
}

static bool is_below(const struct client *c, uint32_t i)
{
        uint32_t n;

        return kvl_page_tier(c->ns, kvl_window_pages(c->window, &n)[i]) != KVL_TIER_DEVICE;
}

/* Takes from page `first` on: n pages, which are those of the text or copies. */
static void take(struct client *c, uint32_t first, uint32_t max, uint32_t n, const uint32_t **ret)
{
        uint32_t n_text, got;

        assert_int_equal(kvl_window_take(c->window, first, max, NULL, ret, &got), 0);
        assert_int_equal(got, n);
        for (uint32_t i = 0; i < n; i++) {
                uint32_t page = (*ret)[i];
                bool is_own = page == kvl_window_pages(c->window, &n_text)[first + i];

                assert_int_equal(kvl_page_tier(c->ns, page), KVL_TIER_DEVICE);
                assert_non_null(kvl_page_ptr(c->ns, page, 0));
                assert_int_equal(is_own, !is_below(c, first + i));
        }
}

/* ---- down --------------------------------------------------------------------------------------
 */

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
                /* Of what was there before this one: that is settled. */
                for (uint32_t j = 0; j < i; j++)
                        assert_int_equal(is_below(&c, j), j >= N_FIRST && j + N_LAST < i);
        }
        close_client(&c);
}

static void test_down(void **state)
{
        goes_down(0);
}

static void test_down_socket(void **state)
{
        goes_down(KVL_CONNECT_NO_SHM);
}

static void script_full(struct fake_peer *p)
{
        p->fill = put_on_device;
        p->fetch_room = 3;
        serve_to_ns(p);
        fake_serve(p);
        fake_check_nothing_held(p);
}

/* What doesn't fit below stays, and is read where it is. */
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

static void test_full(void **state)
{
        stays_where_full(0);
}

static void test_full_socket(void **state)
{
        stays_where_full(KVL_CONNECT_NO_SHM);
}

/* ---- copies ------------------------------------------------------------------------------------
 */

/* Which page of the text each copy was of, and into what. */
static struct {
        uint32_t at, to;
} copied[64];
static uint32_t n_copied;

static void note_copy(struct fake_peer *p, const struct shm_submission *s)
{
        FAKE_CHECK(s->flags == SHM_FETCH_COPY && n_copied < ARRAY_SIZE(copied));
        copied[n_copied].at = s->page - N_DEVICE - FIRST;
        copied[n_copied++].to = s->copy.to;
        fake_complete(p, s->user_data, WIRE_OK, s->copy.to);
}

/* Two passes and a bit, in order: each page once a pass, into one half and then the other. */
static void script_passes(struct fake_peer *p)
{
        static const uint32_t expected[] = {2, 3, 4, 5, 6, 7, 8, 2, 3, 4, 5, 6, 7, 8, 2, 3};

        p->fill = put_middle_below;
        p->on_fetch = note_copy;
        serve_to_ns(p);
        fake_serve(p);
        FAKE_CHECK(n_copied == ARRAY_SIZE(expected));
        for (uint32_t i = 0; i < n_copied; i++)
                FAKE_CHECK(copied[i].at == expected[i]);
        /* 2 and 3 to one half, 4 and 5 to the other, 6 and 7 to the first again. */
        for (uint32_t i = 0; i < CHUNK; i++) {
                FAKE_CHECK(copied[i].to != copied[CHUNK + i].to);
                FAKE_CHECK(copied[i].to == copied[2 * CHUNK + i].to);
        }
        fake_check_nothing_held(p);
}

static void test_passes(void **state)
{
        const uint32_t *pages, *before;
        struct client c;

        open_client(&c, script_passes, LONG_MSEC, 0);
        for (unsigned pass = 0; pass < 2; pass++) {
                take(&c, 0, N_TEXT, N_FIRST, &pages);
                take(&c, 2, N_TEXT - 2, 2, &before);
                take(&c, 4, N_TEXT - 4, 2, &pages);
                assert_ptr_not_equal(pages, before);
                take(&c, 6, N_TEXT - 6, 2, &before);
                assert_ptr_not_equal(pages, before);
                take(&c, 8, N_TEXT - 8, 1, &pages);
                take(&c, 9, N_TEXT - 9, 3, &pages);
        }
        close_client(&c);
}

static void script_copies(struct fake_peer *p)
{
        p->fill = put_middle_below;
        serve_to_ns(p);
        fake_serve(p);
        fake_check_nothing_held(p);
}

/* Any order is right, and parts of chunks. */
static void any_order(unsigned flags)
{
        const uint32_t *pages, *part;
        struct client c;

        open_client(&c, script_copies, LONG_MSEC, flags);
        take(&c, 7, N_TEXT, 2, &pages);
        take(&c, 2, 1, 1, &part);
        take(&c, 3, 8, 1, &pages);
        assert_ptr_equal(pages, part + 1); /* of the same chunk */
        take(&c, 8, 8, 1, &pages);
        take(&c, 2, 8, 2, &pages);
        take(&c, 11, 8, 1, &pages);
        take(&c, 1, 1, 1, &pages);
        for (uint32_t i = 0; i < 200; i++) {
                uint32_t at = (i * 7) % N_TEXT;

                take(&c, at, 1, 1, &pages);
        }
        close_client(&c);
}

static void test_any_order(void **state)
{
        any_order(0);
}

static void test_any_order_socket(void **state)
{
        any_order(KVL_CONNECT_NO_SHM);
}

/* ---- copies of some planes ---------------------------------------------------------------------
 */

#define N_PLANES 4

/* Which of them each copy was of. */
static struct {
        uint32_t at, first_plane, n_planes;
} planes_copied[64];
static uint32_t n_planes_copied;

static void note_planes(struct fake_peer *p, const struct shm_submission *s)
{
        FAKE_CHECK(n_planes_copied < ARRAY_SIZE(planes_copied));
        planes_copied[n_planes_copied].at = s->page - N_DEVICE - FIRST;
        if (s->op == SHM_OP_FETCH_PLANES) {
                planes_copied[n_planes_copied].first_plane = s->copy.first_plane;
                planes_copied[n_planes_copied].n_planes = s->copy.n_planes;
        }
        n_planes_copied++;
        fake_complete(p, s->user_data, WIRE_OK, s->copy.to);
}

static void take_planes(struct client *c, uint32_t at, uint32_t first_plane, uint32_t n_taken,
        uint32_t n, const uint32_t **ret)
{
        uint32_t got;

        assert_int_equal(kvl_window_take_planes(
                                 c->window, at, N_TEXT - at, first_plane, n_taken, NULL, ret, &got),
                0);
        assert_int_equal(got, n);
}

/* A pass over each three of the planes: the last one alone, then from the beginning. */
static void pass_by_planes(struct client *c)
{
        const uint32_t *pages;

        for (uint32_t plane = 0; plane < N_PLANES; plane += 3) {
                uint32_t n = MIN(3u, N_PLANES - plane);

                take_planes(c, 0, plane, n, N_FIRST, &pages);
                take_planes(c, 2, plane, n, 2, &pages);
                take_planes(c, 4, plane, n, 2, &pages);
                take_planes(c, 6, plane, n, 2, &pages);
                take_planes(c, 8, plane, n, 1, &pages);
                take_planes(c, 9, plane, n, 3, &pages);
        }
}

static void script_planes(struct fake_peer *p)
{
        p->fill = put_middle_below;
        p->on_fetch = note_planes;
        serve_to_ns(p);
        fake_serve(p);
        /* Each page of the middle once for each pass, and what comes after the last one. */
        FAKE_CHECK(n_planes_copied == 2 * 7 + 2);
        for (uint32_t i = 0; i < n_planes_copied; i++) {
                FAKE_CHECK(planes_copied[i].at == 2 + i % 7);
                FAKE_CHECK(planes_copied[i].first_plane == (i / 7 == 1 ? 3 : 0));
                FAKE_CHECK(planes_copied[i].n_planes == (i / 7 == 1 || i >= 14 ? 1 : 3));
        }
        fake_check_nothing_held(p);
}

static void test_planes(void **state)
{
        struct client c;

        n_planes = N_PLANES;
        open_client(&c, script_planes, LONG_MSEC, 0);
        pass_by_planes(&c);
        close_client(&c);
        n_planes = 1;
}

static void script_planes_socket(struct fake_peer *p)
{
        p->fill = put_middle_below;
        serve_to_ns(p);
        fake_serve(p);
        FAKE_CHECK(p->n_plane_fetches == 2 * 4 + 1);
        fake_check_nothing_held(p);
}

static void test_planes_socket(void **state)
{
        struct client c;

        n_planes = N_PLANES;
        open_client(&c, script_planes_socket, LONG_MSEC, KVL_CONNECT_NO_SHM);
        pass_by_planes(&c);
        close_client(&c);
        n_planes = 1;
}

/* One that doesn't know of planes copies whole pages. */
static void script_old(struct fake_peer *p)
{
        p->fill = put_middle_below;
        p->on_fetch = note_copy;
        n_copied = 0;
        serve_to_ns(p);
        atomic_store(&p->rings.header->last_op, SHM_OP_EXPECT);
        fake_serve(p);
        FAKE_CHECK(n_copied == 2 * 7 + 2); /* each of them a FETCH with COPY */
        fake_check_nothing_held(p);
}

static void test_planes_old(void **state)
{
        struct client c;

        n_planes = N_PLANES;
        open_client(&c, script_old, LONG_MSEC, 0);
        pass_by_planes(&c);
        close_client(&c);
        n_planes = 1;
}

/* A half that has more planes does for fewer; other planes of its pages are another chunk. */
static void any_planes(unsigned flags)
{
        const uint32_t *pages, *part;
        struct client c;
        uint32_t n;

        n_planes = N_PLANES;
        open_client(&c, script_copies, LONG_MSEC, flags);
        take(&c, 2, N_TEXT, 2, &pages);
        take_planes(&c, 3, 1, 2, 1, &part);
        assert_ptr_equal(part, pages + 1);
        take_planes(&c, 4, 1, 2, 2, &pages); /* begun when all planes were asked for */
        take_planes(&c, 4, 0, 2, 2, &part);
        assert_ptr_equal(part, pages);
        take_planes(&c, 6, 1, 2, 2, &pages);
        take_planes(&c, 6, 2, 1, 2, &part);
        assert_ptr_equal(part, pages);
        take_planes(&c, 6, 3, 1, 2, &part);
        assert_ptr_not_equal(part, pages);
        for (uint32_t i = 0; i < 200; i++)
                assert_int_equal(kvl_window_take_planes(c.window, (i * 7) % N_TEXT, 1, i % N_PLANES,
                                         1, NULL, &pages, &n),
                        0);
        assert_int_equal(kvl_window_take_planes(c.window, 2, 1, 0, 0, NULL, &pages, &n), -EINVAL);
        assert_int_equal(kvl_window_take_planes(c.window, 2, 1, 2, 3, NULL, &pages, &n), -EINVAL);
        assert_int_equal(
                kvl_window_take_planes(c.window, 2, 1, UINT32_MAX, 2, NULL, &pages, &n), -EINVAL);
        assert_int_equal(
                kvl_window_take_planes(c.window, 2, 1, 1, UINT32_MAX, NULL, &pages, &n), -EINVAL);
        assert_non_null(strstr(kvl_last_error(), "planes 0 to 3"));
        close_client(&c);
        n_planes = 1;
}

static void test_any_planes(void **state)
{
        any_planes(0);
}

static void test_any_planes_socket(void **state)
{
        any_planes(KVL_CONNECT_NO_SHM);
}

/* Of a text that is found from its beginning: the ends come up. */
static void put_below(struct fake_peer *p)
{
        for (uint32_t i = 0; i < N_TEXT; i++) {
                uint8_t key[KVL_KEY_BYTES];

                test_key(key, i);
                fake_put(p, N_DEVICE + FIRST + i, key, 16);
        }
}

static void script_ends(struct fake_peer *p)
{
        p->fill = put_below;
        serve_to_ns(p);
        fake_serve(p);
        FAKE_CHECK(p->n_fetches == N_FIRST + N_LAST);
        fake_check_nothing_held(p);
}

static void ends_come_up(unsigned flags)
{
        struct client c;

        open_client(&c, script_ends, LONG_MSEC, flags);
        for (uint32_t i = 0; i < N_TEXT; i++)
                assert_int_equal(is_below(&c, i), i >= N_FIRST && i < N_TEXT - N_LAST);
        close_client(&c);
}

static void test_ends(void **state)
{
        ends_come_up(0);
}

static void test_ends_socket(void **state)
{
        ends_come_up(KVL_CONNECT_NO_SHM);
}

/* ---- what goes wrong ---------------------------------------------------------------------------
 */

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

static void test_miss(void **state)
{
        const uint32_t *pages = NULL;
        struct client c;
        uint32_t n = 77;

        open_client(&c, script_miss, LONG_MSEC, 0);
        take(&c, 2, N_TEXT, 2, &pages);
        pages = NULL;
        assert_int_equal(kvl_window_take(c.window, 4, 8, NULL, &pages, &n), KVL_MISS);
        assert_non_null(strstr(kvl_last_error(), "page 5 of the text"));
        assert_null(pages);
        assert_int_equal(n, 77);
        take(&c, 6, N_TEXT, 2, &pages);
        take(&c, 4, N_TEXT, 2, &pages);
        close_client(&c);
}

static struct shm_submission held[16];
static uint32_t n_held;

static void hold(struct fake_peer *p, const struct shm_submission *s)
{
        FAKE_CHECK(n_held < ARRAY_SIZE(held));
        held[n_held++] = *s;
}

/* What lies in the ring, then a frame. */
static void serve_next(struct fake_peer *p)
{
        while (p->has_rings && !fake_rings_sleep(&p->rings))
                (void)fake_serve_one(p, NULL);
        if (p->n_fetches == 0 || p->on_fetch == hold)
                FAKE_CHECK(fake_serve_one(p, fake_receive_any(p)));
}

static void wrong_target(struct fake_peer *p, const struct shm_submission *s)
{
        fake_complete(p, s->user_data, WIRE_OK, s->copy.to + 1);
}

static void script_wrong(struct fake_peer *p)
{
        p->fill = put_middle_below;
        p->on_fetch = wrong_target;
        serve_to_ns(p);
        while (p->n_fetches == 0)
                serve_next(p);
        fake_expect_end(p);
}

static void test_wrong(void **state)
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
static void test_timeout(void **state)
{
        const uint32_t *pages;
        struct client c;
        uint64_t n_dropped;
        uint32_t n;

        open_client(&c, script_late, 1000, 0);
        assert_int_equal(kvl_window_take(c.window, 2, 8, NULL, &pages, &n), -ETIMEDOUT);
        assert_int_equal(kvl_window_take(c.window, 0, 8, NULL, &pages, &n), -ETIMEDOUT);
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

static void script_open(struct fake_peer *p)
{
        p->fill = put_middle_below;
        p->on_fetch = hold;
        serve_to_ns(p);
        fake_serve(p);
}

/* The namespace is closed, or the connection, with copies under way. */
static void test_left_open(void **state)
{
        for (unsigned by_ns = 0; by_ns < 2; by_ns++) {
                const uint32_t *pages;
                struct client c;

                open_client(&c, script_open, LONG_MSEC, 0);
                take(&c, 0, 8, N_FIRST, &pages);
                if (by_ns)
                        kvl_ns_close(c.ns);
                kvl_disconnect(c.conn);
                fake_stop(&c.f);
        }
}

static void test_arguments(void **state)
{
        struct kvl_window_options o = {.size = sizeof(o), .chunk_pages = KVL_MAX_WINDOW_CHUNK + 1};
        struct kvl_window *none = NULL;
        const uint32_t *pages;
        struct client c;
        uint32_t n, unpinned = FIRST + N_TEXT;

        open_client(&c, script_copies, LONG_MSEC, 0);
        assert_int_equal(kvl_window_open(c.ns, &o, &none), -EINVAL);
        assert_int_equal(kvl_window_open(NULL, NULL, &none), -EINVAL);
        assert_int_equal(kvl_window_append(c.window, &unpinned, 1, NULL), -EINVAL);
        assert_int_equal(kvl_window_append(c.window, c.pages, 0, NULL), -EINVAL);
        assert_int_equal(kvl_window_append(NULL, c.pages, 1, NULL), -EINVAL);
        assert_int_equal(kvl_window_take(c.window, N_TEXT, 1, NULL, &pages, &n), -EINVAL);
        assert_int_equal(kvl_window_take(c.window, 0, 0, NULL, &pages, &n), -EINVAL);
        assert_int_equal(kvl_window_take(c.window, 0, 1, &n, &pages, &n), -EINVAL);
        assert_int_equal(kvl_window_take(c.window, 0, 1, NULL, NULL, &n), -EINVAL);
        assert_int_equal(kvl_window_take(NULL, 0, 1, NULL, &pages, &n), -EINVAL);
        assert_int_equal(kvl_window_close(NULL, NULL), 0);
        close_client(&c);
}

static void test_metadata_only(void **state)
{
        struct kvl_window *none;
        struct client c;

        connect_client(&c, script_copies, LONG_MSEC, KVL_CONNECT_METADATA_ONLY);
        assert_int_equal(kvl_window_open(c.ns, NULL, &none), -EACCES);
        kvl_disconnect(c.conn);
        fake_stop(&c.f);
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

static void test_without_memory(void **state)
{
        without_memory(0);
}

static void test_without_memory_socket(void **state)
{
        without_memory(KVL_CONNECT_NO_SHM);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                TEST(test_down),
                TEST(test_down_socket),
                TEST(test_full),
                TEST(test_full_socket),
                TEST(test_passes),
                TEST(test_any_order),
                TEST(test_any_order_socket),
                TEST(test_planes),
                TEST(test_planes_socket),
                TEST(test_planes_old),
                TEST(test_any_planes),
                TEST(test_any_planes_socket),
                TEST(test_ends),
                TEST(test_ends_socket),
                TEST(test_miss),
                TEST(test_wrong),
                TEST(test_timeout),
                TEST(test_left_open),
                TEST(test_arguments),
                TEST(test_metadata_only),
                TEST(test_without_memory),
                TEST(test_without_memory_socket),
        };

        return RUN_TESTS(tests);
}
