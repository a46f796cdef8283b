/* Fixture of the tests of pages below the device: a client, and a fake daemon with a text that is
 * partly below its device. */
#ifndef KVL_TESTS_CLIENT_TIERS_H
#define KVL_TESTS_CLIENT_TIERS_H

#include <poll.h>

#include "base/clock.h"
#include "base/macros.h"
#include "client/lib/objects/ns.h"
#include "tests/unit/child.h"
#include "tests/unit/client-support.h"

/* For connections that must not time out, even with valgrind on a loaded machine. */
#define LONG_MSEC 60000

/* The fake daemon's: pages 0 to N_DEVICE - 1 are on the device. */
#define SET_PAGES (FAKE_EXTENT_BYTES / PAGE_BYTES)
#define N_DEVICE  (2 * SET_PAGES)

#define N_KEYS 10

struct client {
        struct fake f;
        struct kvl_conn *conn;
        struct kvl_ns *ns;
        uint8_t keys[N_KEYS][KVL_KEY_BYTES];
        uint32_t pages[N_KEYS], n_pages;
        uint64_t n_tokens;
};

static inline void connect_client(struct client *c, int timeout_msec, unsigned flags)
{
        struct kvl_layout layout = test_layout(1, PAGE_BYTES);

        assert_int_equal(test_connect_flags(&c->f, timeout_msec, flags, &c->conn), 0);
        assert_int_equal(kvl_ns_open(c->conn, "chat", &layout, NULL, 0, &c->ns), 0);
        assert_int_equal(kvl_uses_shm(c->ns), !(flags & KVL_CONNECT_NO_SHM));
}

static inline void open_client(
        struct client *c, fake_script script, int timeout_msec, unsigned flags)
{
        fake_start(&c->f, script);
        connect_client(c, timeout_msec, flags);
        for (uint32_t i = 0; i < N_KEYS; i++)
                test_key(c->keys[i], i);
}

static inline void close_client(struct client *c)
{
        kvl_disconnect(c->conn);
        fake_stop(&c->f);
}

static inline int look_up(struct client *c, uint32_t n_keys)
{
        return kvl_lookup(c->ns, 0, c->keys[0], n_keys, c->pages, &c->n_pages, &c->n_tokens);
}

static inline int find(struct client *c, uint32_t n_keys)
{
        return kvl_find(c->ns, 0, c->keys[0], n_keys, c->pages, &c->n_pages, &c->n_tokens);
}

static inline void assert_on_device(const struct client *c, uint32_t n_pages, uint64_t n_tokens)
{
        assert_int_equal(c->n_pages, n_pages);
        assert_int_equal(c->n_tokens, n_tokens);
        for (uint32_t i = 0; i < n_pages; i++) {
                assert_int_equal(kvl_page_tier(c->ns, c->pages[i]), KVL_TIER_DEVICE);
                assert_non_null(kvl_page_ptr(c->ns, c->pages[i], 0));
        }
}

/* A text of N_KEYS - 1 pages: 0, 1 and 4 on the device, the others below it; page i of i + 1
 * tokens. */
static inline void put_text(struct fake_peer *p)
{
        for (uint32_t i = 0; i < N_KEYS - 1; i++) {
                bool is_up = i < 2 || i == 4;
                uint8_t key[KVL_KEY_BYTES];

                test_key(key, i);
                fake_put(p, (is_up ? 10 : N_DEVICE + 20) + i, key, (uint16_t)(i + 1));
        }
}

/* Serves until the namespace is there: requests after it are the caller's. */
static inline void serve_to_ns(struct fake_peer *p)
{
        p->shares = true;
        p->n_device_sets = 2;
        p->fill = p->fill ? p->fill : put_text;
        do
                FAKE_CHECK(fake_serve_one(p, fake_receive_any(p)));
        while (p->type != (p->has_rings ? MSG_NS_SHARE : MSG_NS_OPEN));
        if (!p->has_index)
                p->fill(p);
}

static inline void serve_and_check(struct fake_peer *p)
{
        fake_serve(p);
        fake_check_nothing_held(p);
}

static inline void script_text(struct fake_peer *p)
{
        serve_to_ns(p);
        serve_and_check(p);
}

static inline void script_full(struct fake_peer *p)
{
        p->fetch_room = 3;
        serve_to_ns(p);
        serve_and_check(p);
}

/* Until so many are under way. */
static inline void wait_for_begun(struct client *c, uint32_t n)
{
        while (c->conn->fetches.n_begun != n) {
                struct pollfd p = {.fd = kvl_fd(c->conn), .events = POLLIN};

                assert_true(kvl_dispatch(c->conn) >= 0);
                if (c->conn->fetches.n_begun != n)
                        assert_int_equal(poll(&p, 1, LONG_MSEC), 1);
        }
}

struct result {
        bool is_done;
        int code;
        uint32_t pages[N_KEYS], n_pages;
        uint64_t n_tokens;
};

static inline void on_done(struct kvl_ns *ns, int code, const uint32_t *pages, uint32_t n_pages,
        uint64_t n_tokens, void *data)
{
        struct result *r = data;

        r->is_done = true;
        r->code = code;
        r->n_pages = n_pages;
        r->n_tokens = n_tokens;
        memcpy(r->pages, pages, n_pages * sizeof(*pages));
}

static inline void wait_for(struct client *c, const struct result *r)
{
        while (!r->is_done) {
                short events = POLLIN | (kvl_wants_write(c->conn) ? POLLOUT : 0);
                struct pollfd p = {.fd = kvl_fd(c->conn), .events = events};

                assert_true(kvl_dispatch(c->conn) >= 0);
                if (!r->is_done && !kvl_wants_write(c->conn))
                        assert_int_equal(poll(&p, 1, LONG_MSEC), 1);
        }
}

#define CLIENT_TIERS_SCENE(fn, ...) \
        TEST_ON(fn, struct client, c, open_client, close_client, ##__VA_ARGS__)

#endif
