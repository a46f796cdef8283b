/* A client of a fake daemon, and its window over a text of which the middle lies below the device.
 */
#ifndef KVL_TESTS_CLIENT_WINDOW_H
#define KVL_TESTS_CLIENT_WINDOW_H

#include <string.h>

#include "base/macros.h"
#include "client/lib/objects/ns.h"
#include "tests/unit/client-support.h"

/* For connections that must not time out, even with valgrind on a loaded machine. */
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

static inline void put_text(struct fake_peer *p, bool middle_is_below)
{
        for (uint32_t i = 0; i < N_TEXT; i++) {
                bool is_middle = i >= N_FIRST && i < N_TEXT - N_LAST;
                uint8_t key[KVL_KEY_BYTES];

                test_key(key, i);
                fake_put(p, (middle_is_below && is_middle ? N_DEVICE : 0) + FIRST + i, key, 16);
        }
}

static inline void put_on_device(struct fake_peer *p)
{
        put_text(p, false);
}

static inline void put_middle_below(struct fake_peer *p)
{
        put_text(p, true);
}

static inline void serve_to_ns(struct fake_peer *p)
{
        p->shares = true;
        p->n_device_sets = 2;
        do
                FAKE_CHECK(fake_serve_one(p, fake_receive_any(p)));
        while (p->type != (p->has_rings ? MSG_NS_SHARE : MSG_NS_OPEN));
        if (!p->has_index)
                p->fill(p);
}

/* Planes of the layout that clients open. */
static uint32_t n_planes = 1;

static inline void connect_client(
        struct client *c, fake_script script, int timeout_msec, unsigned flags)
{
        struct kvl_layout layout = test_layout(n_planes, PAGE_BYTES);

        memset(c, 0, sizeof(*c));
        fake_start(&c->f, script);
        assert_int_equal(test_connect_flags(&c->f, timeout_msec, flags, &c->conn), 0);
        assert_int_equal(kvl_ns_open(c->conn, "chat", &layout, NULL, 0, &c->ns), 0);
        for (uint32_t i = 0; i < N_TEXT; i++)
                test_key(c->keys[i], i);
}

static inline void open_window(struct client *c)
{
        struct kvl_ns_info info = {.size = sizeof(info)};
        struct kvl_window_options o = {.size = sizeof(o), .chunk_pages = CHUNK};

        kvl_ns_info(c->ns, &info);
        o.first_tokens = (uint64_t)N_FIRST * info.page_tokens;
        o.last_tokens = (uint64_t)N_LAST * info.page_tokens - 3; /* whole pages */
        assert_int_equal(kvl_window_open(c->ns, &o, &c->window), 0);
}

static inline void find(struct client *c)
{
        uint64_t n_tokens;
        uint32_t n;

        assert_int_equal(kvl_find(c->ns, 0, c->keys[0], N_TEXT, c->pages, &n, &n_tokens), 0);
        assert_int_equal(n, N_TEXT);
}

/* With the whole text in the window. */
static inline void open_client(
        struct client *c, fake_script script, int timeout_msec, unsigned flags)
{
        connect_client(c, script, timeout_msec, flags);
        open_window(c);
        find(c);
        assert_int_equal(kvl_window_append(c->window, c->pages, N_TEXT, NULL), 0);
}

static inline void close_client(struct client *c)
{
        assert_int_equal(kvl_window_close(c->window, NULL), 0);
        kvl_disconnect(c->conn);
        fake_stop(&c->f);
}

static inline bool is_below(const struct client *c, uint32_t i)
{
        uint32_t n;

        return kvl_page_tier(c->ns, kvl_window_pages(c->window, &n)[i]) != KVL_TIER_DEVICE;
}

/* Takes from page `first` on: n pages, which are those of the text or copies. */
static inline void take(
        struct client *c, uint32_t first, uint32_t max, uint32_t n, const uint32_t **ret)
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

/* Which page of the text each copy was of, and into what. */
static struct {
        uint32_t at, to;
} copied[64];
static uint32_t n_copied;

static inline void note_copy(struct fake_peer *p, const struct shm_submission *s)
{
        FAKE_CHECK(s->flags == SHM_FETCH_COPY && n_copied < ARRAY_SIZE(copied));
        copied[n_copied].at = s->page - N_DEVICE - FIRST;
        copied[n_copied++].to = s->copy.to;
        fake_complete(p, s->user_data, WIRE_OK, s->copy.to);
}

static inline void script_copies(struct fake_peer *p)
{
        p->fill = put_middle_below;
        serve_to_ns(p);
        fake_serve(p);
        fake_check_nothing_held(p);
}

#define CLIENT_WINDOW_SCENE(fn, ...) \
        TEST_ON(fn, struct client, c, open_client, close_client, ##__VA_ARGS__)

#endif
