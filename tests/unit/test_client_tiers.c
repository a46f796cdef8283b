/*
 * Pages below the device, as the library sees them: found and brought up, or read where they lie;
 * through the rings and over the socket.
 */
#include <poll.h>

#include "base/clock.h"
#include "base/macros.h"
#include "client/lib/client.h"
#include "tests/unit/child.h"
#include "tests/unit/client-support.h"

/* Of connections that see no timeout here; valgrind on a loaded machine. */
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

static void connect_client(struct client *c, int timeout_msec, unsigned flags)
{
        struct kvl_layout layout = test_layout(1, PAGE_BYTES);

        assert_int_equal(test_connect_flags(&c->f, timeout_msec, flags, &c->conn), 0);
        assert_int_equal(kvl_ns_open(c->conn, "chat", &layout, NULL, 0, &c->ns), 0);
        assert_int_equal(kvl_uses_shm(c->ns), !(flags & KVL_CONNECT_NO_SHM));
}

static void open_client(struct client *c, fake_script script, int timeout_msec, unsigned flags)
{
        fake_start(&c->f, script);
        connect_client(c, timeout_msec, flags);
        for (uint32_t i = 0; i < N_KEYS; i++)
                test_key(c->keys[i], i);
}

static void close_client(struct client *c)
{
        kvl_disconnect(c->conn);
        fake_stop(&c->f);
}

static int look_up(struct client *c, uint32_t n_keys)
{
        return kvl_lookup(c->ns, 0, c->keys[0], n_keys, c->pages, &c->n_pages, &c->n_tokens);
}

static int find(struct client *c, uint32_t n_keys)
{
        return kvl_find(c->ns, 0, c->keys[0], n_keys, c->pages, &c->n_pages, &c->n_tokens);
}

static void assert_on_device(const struct client *c, uint32_t n_pages, uint64_t n_tokens)
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
static void put_text(struct fake_peer *p)
{
        for (uint32_t i = 0; i < N_KEYS - 1; i++) {
                bool is_up = i < 2 || i == 4;
                uint8_t key[KVL_KEY_BYTES];

                test_key(key, i);
                fake_put(p, (is_up ? 10 : N_DEVICE + 20) + i, key, (uint16_t)(i + 1));
        }
}

/* Serves until the namespace is there: requests after it are the caller's. */
static void serve_to_ns(struct fake_peer *p)
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

static void serve_and_check(struct fake_peer *p)
{
        fake_serve(p);
        fake_check_nothing_held(p);
}

/* ---- what there is -----------------------------------------------------------------------------
 */

static void script_text(struct fake_peer *p)
{
        serve_to_ns(p);
        serve_and_check(p);
}

static void test_info(void **state)
{
        struct kvl_ns_info info = {.size = sizeof(info)};
        struct client c;

        open_client(&c, script_text, LONG_MSEC, KVL_CONNECT_METADATA_ONLY);
        kvl_ns_info(c.ns, &info);
        assert_int_equal(info.capacity_pages, 2 * N_DEVICE);
        assert_int_equal(info.n_tiers, 2);
        assert_int_equal(info.tiers[0].tier, KVL_TIER_DEVICE);
        assert_int_equal(info.tiers[0].n_pages, N_DEVICE);
        assert_int_equal(info.tiers[0].page_bytes, PAGE_BYTES);
        assert_int_equal(info.tiers[0].is_readable, 0);
        assert_int_equal(info.tiers[1].tier, KVL_TIER_HOST);
        assert_int_equal(info.tiers[1].first_page, N_DEVICE);
        assert_int_equal(info.tiers[1].is_readable, 1);
        assert_int_equal(kvl_page_tier(c.ns, 0), KVL_TIER_DEVICE);
        assert_int_equal(kvl_page_tier(c.ns, N_DEVICE - 1), KVL_TIER_DEVICE);
        assert_int_equal(kvl_page_tier(c.ns, N_DEVICE), KVL_TIER_HOST);
        assert_int_equal(kvl_page_tier(c.ns, 2 * N_DEVICE), -EINVAL);
        close_client(&c);
}

/* Each way to describe tiers wrongly ends the connection. */
static unsigned how;

static void spoil(Kvlease__V1__NsOpenReply *m)
{
        switch (how) {
        case 0:
                m->tiers[1]->first_page++;
                break;
        case 1:
                m->tiers[1]->n_pages--;
                break;
        case 2:
                m->tiers[1]->n_pages -= SET_PAGES;
                break;
        case 3:
                m->tiers[1]->n_pages += SET_PAGES;
                break;
        case 4:
                m->tiers[1]->kind = 0;
                break;
        case 5:
                m->tiers[0]->kind = 1;
                break;
        case 6:
                m->tiers[1]->page_bytes /= 2;
                break;
        case 7:
                m->tiers[1]->extent_bytes /= 2;
                break;
        case 8:
                m->tiers[1]->extent_bytes = UINT64_MAX;
                break;
        case 9:
                m->tiers[0]->n_pages = 0;
                m->tiers[1]->first_page = 0;
                m->tiers[1]->n_pages = m->capacity_pages;
                break;
        default:
                m->n_tiers = 1;
        }
}

#define N_SPOILED 11

static void script_spoiled(struct fake_peer *p)
{
        for (how = 0; how < N_SPOILED; how++) {
                if (how > 0)
                        fake_accept(p);
                p->n_device_sets = 2;
                p->spoil = spoil;
                fake_welcome_ns(p);
                fake_expect_end(p);
        }
}

static void test_spoiled(void **state)
{
        struct kvl_layout layout = test_layout(1, PAGE_BYTES);
        struct client c;

        fake_start(&c.f, script_spoiled);
        for (unsigned i = 0; i < N_SPOILED; i++) {
                assert_int_equal(test_connect(&c.f, LONG_MSEC, &c.conn), 0);
                assert_int_equal(kvl_ns_open(c.conn, "chat", &layout, NULL, 0, &c.ns), -EPROTO);
                kvl_disconnect(c.conn);
        }
        fake_stop(&c.f);
}

/* ---- lookups -----------------------------------------------------------------------------------
 */

static void script_lookup(struct fake_peer *p)
{
        script_text(p);
        FAKE_CHECK(p->n_fetches == 6);
}

static void assert_looks_up(unsigned flags)
{
        struct client c;

        open_client(&c, script_lookup, LONG_MSEC, flags);
        assert_int_equal(look_up(&c, N_KEYS), 0);
        assert_on_device(&c, 9, 45);
        assert_int_equal(c.pages[0], 10);
        assert_int_equal(c.pages[4], 14);
        assert_int_equal(kvl_release(c.ns, c.pages, c.n_pages), 0);
        /* There it is. */
        assert_int_equal(look_up(&c, N_KEYS), 0);
        assert_on_device(&c, 9, 45);
        assert_int_equal(kvl_release(c.ns, c.pages, c.n_pages), 0);
        close_client(&c);
}

static void test_lookup(void **state)
{
        assert_looks_up(0);
}

static void test_lookup_socket(void **state)
{
        assert_looks_up(KVL_CONNECT_NO_SHM);
}

static void script_full(struct fake_peer *p)
{
        p->fetch_room = 3;
        serve_to_ns(p);
        serve_and_check(p);
}

/* Pages 2, 3 and 5 fit: the run ends before 6. */
static void assert_ends_where_full(unsigned flags)
{
        struct client c;

        open_client(&c, script_full, LONG_MSEC, flags);
        assert_int_equal(look_up(&c, N_KEYS), 0);
        assert_on_device(&c, 6, 21);
        assert_int_equal(kvl_release(c.ns, c.pages, c.n_pages), 0);
        assert_int_equal(
                kvl_lookup(c.ns, 0, c.keys[6], 2, c.pages, &c.n_pages, &c.n_tokens), KVL_MISS);
        close_client(&c);
}

static void test_full(void **state)
{
        assert_ends_where_full(0);
}

static void test_full_socket(void **state)
{
        assert_ends_where_full(KVL_CONNECT_NO_SHM);
}

/* ---- in any order, again, late ------------------------------------------------------------------
 */

static struct shm_submission held[16];
static uint32_t n_held;

static void hold(struct fake_peer *p, const struct shm_submission *s)
{
        FAKE_CHECK(n_held < ARRAY_SIZE(held));
        held[n_held++] = *s;
}

static void complete_one(struct fake_peer *p, const struct shm_submission *s)
{
        uint32_t page = s->page, status = fake_bring_up(p, s->page, &page);

        fake_complete(p, s->user_data, status, page);
}

/* Until n are there. */
static void hold_until(struct fake_peer *p, uint32_t n)
{
        while (n_held < n)
                FAKE_CHECK(fake_serve_one(p, fake_receive_any(p)));
}

static void script_reverse(struct fake_peer *p)
{
        p->on_fetch = hold;
        serve_to_ns(p);
        hold_until(p, 6);
        while (n_held > 0)
                complete_one(p, &held[--n_held]);
        p->on_fetch = NULL;
        serve_and_check(p);
}

static void test_reverse(void **state)
{
        struct client c;

        open_client(&c, script_reverse, LONG_MSEC, 0);
        assert_int_equal(look_up(&c, N_KEYS), 0);
        assert_on_device(&c, 9, 45);
        assert_int_equal(kvl_release(c.ns, c.pages, c.n_pages), 0);
        close_client(&c);
}

/* Says that the page is where nothing is: so often until it is so. */
static unsigned n_lies;

static void lie(struct fake_peer *p, const struct shm_submission *s)
{
        if (n_lies-- == 0) {
                n_lies = 0;
                complete_one(p, s);
                return;
        }
        fake_complete(p, s->user_data, WIRE_OK, 5);
}

static void script_lies(struct fake_peer *p)
{
        p->on_fetch = lie;
        n_lies = 1;
        serve_to_ns(p);
        serve_and_check(p);
        FAKE_CHECK(p->n_fetches == 2);
}

static void script_lies_twice(struct fake_peer *p)
{
        p->on_fetch = lie;
        n_lies = 2;
        serve_to_ns(p);
        serve_and_check(p);
        FAKE_CHECK(p->n_fetches == 2);
}

static void test_lost_race(void **state)
{
        struct client c;

        open_client(&c, script_lies, LONG_MSEC, 0);
        assert_int_equal(look_up(&c, 3), 0);
        assert_on_device(&c, 3, 6);
        assert_int_equal(kvl_release(c.ns, c.pages, c.n_pages), 0);
        close_client(&c);
}

static void test_lost_twice(void **state)
{
        struct client c;

        open_client(&c, script_lies_twice, LONG_MSEC, 0);
        assert_int_equal(look_up(&c, 3), 0);
        assert_on_device(&c, 2, 3);
        assert_int_equal(kvl_release(c.ns, c.pages, c.n_pages), 0);
        close_client(&c);
}

/* Until so many are under way. */
static void wait_for_begun(struct client *c, uint32_t n)
{
        while (c->conn->fetches.n_begun != n) {
                struct pollfd p = {.fd = kvl_fd(c->conn), .events = POLLIN};

                assert_true(kvl_dispatch(c->conn) >= 0);
                if (c->conn->fetches.n_begun != n)
                        assert_int_equal(poll(&p, 1, LONG_MSEC), 1);
        }
}

/* Nothing is brought up before the client says INVALIDATE. */
static void script_late(struct fake_peer *p)
{
        p->on_fetch = hold;
        serve_to_ns(p);
        hold_until(p, 6);
        do
                FAKE_CHECK(fake_serve_one(p, fake_receive_any(p)));
        while (p->type != MSG_INVALIDATE);
        for (uint32_t i = 0; i < n_held; i++)
                complete_one(p, &held[i]);
        p->on_fetch = NULL;
        serve_and_check(p);
}

static void test_timeout(void **state)
{
        struct client c;
        uint64_t n;

        open_client(&c, script_late, 300, 0);
        /* The time is over: what is on the device. */
        assert_int_equal(look_up(&c, N_KEYS), 0);
        assert_int_equal(c.n_pages, 2);
        assert_int_equal(c.n_tokens, 3);
        assert_int_equal(kvl_release(c.ns, c.pages, c.n_pages), 0);
        assert_int_equal(kvl_invalidate(c.ns, NULL, &n), 0);
        wait_for_begun(&c, 0);
        close_client(&c);
}

/* ---- where they lie ----------------------------------------------------------------------------
 */

static void script_find(struct fake_peer *p)
{
        script_text(p);
        FAKE_CHECK(p->n_fetches == 0);
}

static void assert_read_only(void *at)
{
        struct test_range {
                unsigned long begin, end;
        } r;
        char line[512], mode[8];
        bool found = false;
        FILE *maps = fopen("/proc/self/maps", "re");

        assert_non_null(maps);
        while (!found && fgets(line, sizeof(line), maps))
                found = sscanf(line, "%lx-%lx %7s", &r.begin, &r.end, mode) == 3 &&
                        (unsigned long)at >= r.begin && (unsigned long)at < r.end;
        fclose(maps);
        assert_true(found);
        assert_string_equal(mode, "r--s");
}

static void assert_finds(unsigned flags)
{
        struct client c;
        uint32_t number;

        open_client(&c, script_find, LONG_MSEC, flags);
        assert_int_equal(find(&c, N_KEYS), 0);
        assert_int_equal(c.n_pages, 9);
        assert_int_equal(c.n_tokens, 45);
        for (uint32_t i = 0; i < c.n_pages; i++) {
                bool is_up = i < 2 || i == 4;
                const uint32_t *at = kvl_page_ptr(c.ns, c.pages[i], 0);

                assert_int_equal(c.pages[i], (is_up ? 10 : N_DEVICE + 20) + i);
                assert_non_null(at);
                if (is_up)
                        continue;
                assert_int_equal(*at, c.pages[i]);
                assert_read_only((void *)at);
                assert_int_equal(kvl_page_read(c.ns, c.pages[i], 0, 0, &number, 4), 0);
                assert_int_equal(number, c.pages[i]);
                assert_int_equal(kvl_page_write(c.ns, c.pages[i], 0, 0, &number, 4), -EINVAL);
                assert_int_equal(kvl_page_copy(c.ns, c.pages[0], c.pages[i]), -EINVAL);
        }
        assert_int_equal(kvl_page_copy(c.ns, c.pages[2], c.pages[0]), 0);
        assert_int_equal(*(uint32_t *)kvl_page_ptr(c.ns, c.pages[0], 0), c.pages[2]);
        assert_null(kvl_page_ptr(c.ns, 2 * N_DEVICE, 0));
        assert_null(kvl_page_ptr(c.ns, c.pages[2], 1));
        assert_int_equal(kvl_release(c.ns, c.pages, c.n_pages), 0);
        close_client(&c);
}

static void test_find(void **state)
{
        assert_finds(0);
}

static void test_find_socket(void **state)
{
        assert_finds(KVL_CONNECT_NO_SHM);
}

static void script_encoded(struct fake_peer *p)
{
        p->is_encoded = true;
        script_find(p);
}

static void test_encoded(void **state)
{
        struct client c;
        uint32_t number;

        open_client(&c, script_encoded, LONG_MSEC, 0);
        assert_int_equal(find(&c, N_KEYS), 0);
        assert_int_equal(c.n_pages, 9);
        assert_null(kvl_page_ptr(c.ns, c.pages[2], 0));
        assert_int_equal(kvl_page_read(c.ns, c.pages[2], 0, 0, &number, 4), -ENOENT);
        assert_int_equal(kvl_release(c.ns, c.pages, c.n_pages), 0);
        close_client(&c);
}

/* Host memory is taken back as the device's is. */
static void script_recall(struct fake_peer *p)
{
        serve_to_ns(p);
        do
                FAKE_CHECK(fake_serve_one(p, fake_receive_any(p)));
        while (p->type != MSG_INVALIDATE);
        fake_recall(p, 2, true, 1000);
        serve_and_check(p);
        FAKE_CHECK(p->n_unmapped[2] == 1);
}

static void wait_for_recall(struct client *c)
{
        struct pollfd p = {.fd = kvl_fd(c->conn), .events = POLLIN};

        while (atomic_load(&c->conn->n_recalled) == 0) {
                assert_int_equal(poll(&p, 1, LONG_MSEC), 1);
                assert_true(kvl_dispatch(c->conn) >= 0);
        }
}

static void test_recall(void **state)
{
        struct client c;
        uint64_t n;

        open_client(&c, script_recall, LONG_MSEC, KVL_CONNECT_SAFEPOINTS);
        assert_int_equal(find(&c, N_KEYS), 0);
        assert_int_equal(kvl_release(c.ns, c.pages, c.n_pages), 0);
        assert_int_equal(kvl_invalidate(c.ns, c.keys[0], &n), 0);
        wait_for_recall(&c);
        assert_non_null(kvl_page_ptr(c.ns, c.pages[2], 0));
        assert_int_equal(kvl_safepoint(c.conn, NULL), 1);
        assert_null(kvl_page_ptr(c.ns, c.pages[2], 0));
        close_client(&c);
}

/* ---- kvl_fetch() -------------------------------------------------------------------------------
 */

static void assert_fetches(unsigned flags)
{
        uint32_t up[N_KEYS];
        struct client c;

        open_client(&c, script_full, LONG_MSEC, flags);
        assert_int_equal(find(&c, N_KEYS), 0);
        /* Room for 2, 3 and 5. */
        assert_int_equal(kvl_fetch(c.ns, c.pages, c.n_pages, up), KVL_FULL);
        for (uint32_t i = 0; i < c.n_pages; i++) {
                bool is_up = i < 6;

                assert_int_equal(
                        kvl_page_tier(c.ns, up[i]), is_up ? KVL_TIER_DEVICE : KVL_TIER_HOST);
                if (!is_up || i < 2 || i == 4)
                        assert_int_equal(up[i], c.pages[i]);
        }
        assert_int_equal(kvl_fetch(c.ns, up, 6, up), 0);
        assert_int_equal(kvl_release(c.ns, up, c.n_pages), 0);
        /* Nothing of it is pinned any more. */
        if (!(flags & KVL_CONNECT_NO_SHM))
                assert_int_equal(kvl_fetch(c.ns, &up[6], 1, up), -EINVAL);
        assert_int_equal(kvl_release(c.ns, c.pages, 1), -EINVAL);
        close_client(&c);
}

static void test_fetch(void **state)
{
        assert_fetches(0);
}

static void test_fetch_socket(void **state)
{
        assert_fetches(KVL_CONNECT_NO_SHM);
}

struct result {
        bool is_done;
        int code;
        uint32_t pages[N_KEYS], n_pages;
        uint64_t n_tokens;
};

static void on_done(struct kvl_ns *ns, int code, const uint32_t *pages, uint32_t n_pages,
        uint64_t n_tokens, void *data)
{
        struct result *r = data;

        r->is_done = true;
        r->code = code;
        r->n_pages = n_pages;
        r->n_tokens = n_tokens;
        memcpy(r->pages, pages, n_pages * sizeof(*pages));
}

static void wait_for(struct client *c, const struct result *r)
{
        while (!r->is_done) {
                short events = POLLIN | (kvl_wants_write(c->conn) ? POLLOUT : 0);
                struct pollfd p = {.fd = kvl_fd(c->conn), .events = events};

                assert_true(kvl_dispatch(c->conn) >= 0);
                if (!r->is_done && !kvl_wants_write(c->conn))
                        assert_int_equal(poll(&p, 1, LONG_MSEC), 1);
        }
}

static void assert_starts(unsigned flags)
{
        struct result fetched = {0}, looked_up = {0};
        struct client c;

        open_client(&c, script_text, LONG_MSEC, flags);
        assert_int_equal(find(&c, 4), 0);
        assert_int_equal(kvl_fetch_start(c.ns, c.pages, 4, on_done, &fetched), 0);
        assert_int_equal(kvl_lookup_start(c.ns, 0, c.keys[0], N_KEYS, on_done, &looked_up), 0);
        wait_for(&c, &fetched);
        wait_for(&c, &looked_up);
        assert_int_equal(fetched.code, 0);
        assert_int_equal(fetched.n_pages, 4);
        assert_int_equal(looked_up.code, 0);
        assert_int_equal(looked_up.n_pages, 9);
        assert_int_equal(looked_up.n_tokens, 45);
        assert_memory_equal(fetched.pages, looked_up.pages, 4 * sizeof(uint32_t));
        assert_true(kvl_page_tier(c.ns, looked_up.pages[8]) == KVL_TIER_DEVICE);
        assert_int_equal(kvl_release(c.ns, fetched.pages, 4), 0);
        assert_int_equal(kvl_release(c.ns, looked_up.pages, 9), 0);
        close_client(&c);
}

static void test_start(void **state)
{
        assert_starts(0);
}

static void test_start_socket(void **state)
{
        assert_starts(KVL_CONNECT_NO_SHM);
}

/* Closed while they are under way. */
static void script_closed(struct fake_peer *p)
{
        p->on_fetch = hold;
        serve_to_ns(p);
        hold_until(p, 3);
        do
                FAKE_CHECK(fake_serve_one(p, fake_receive_any(p)));
        while (p->type != MSG_NS_CLOSE);
        for (uint32_t i = 0; i < n_held; i++)
                fake_complete(p, held[i].user_data, WIRE_CANCELED, held[i].page);
        fake_serve(p);
}

static void test_closed(void **state)
{
        struct result r = {0};
        struct client c;

        open_client(&c, script_closed, LONG_MSEC, 0);
        assert_int_equal(kvl_lookup_start(c.ns, 0, c.keys[0], 6, on_done, &r), 0);
        wait_for_begun(&c, 3);
        kvl_ns_close(c.ns);
        assert_true(r.is_done);
        assert_int_equal(r.code, -ECANCELED);
        wait_for_begun(&c, 0);
        assert_true(kvl_is_connected(c.conn));
        close_client(&c);
}

/* ---- a daemon that is restarted
 * ------------------------------------------------------------------
 */

/* Of three, one was answered, two were begun and forgotten. */
static void script_restarted(struct fake_peer *p)
{
        p->resumes = true;
        p->on_fetch = hold;
        serve_to_ns(p);
        hold_until(p, 3);
        complete_one(p, &held[1]);
        fake_accept(p);
        fake_take_up(p);
        p->on_fetch = NULL;
        serve_and_check(p);
        FAKE_CHECK(p->n_fetches == 5);
}

static void test_restarted(void **state)
{
        struct client c;

        open_client(&c, script_restarted, LONG_MSEC, 0);
        assert_int_equal(look_up(&c, 6), 0);
        assert_on_device(&c, 6, 21);
        assert_int_equal(kvl_release(c.ns, c.pages, c.n_pages), 0);
        close_client(&c);
}

static void script_restarted_socket(struct fake_peer *p)
{
        p->resumes = true;
        serve_to_ns(p);
        do {
                const ProtobufCMessage *m = fake_receive_any(p);

                if (p->type == MSG_FETCH)
                        break;
                FAKE_CHECK(fake_serve_one(p, m));
        } while (true);
        fake_accept(p);
        fake_take_up(p);
        serve_and_check(p);
}

static void test_restarted_socket(void **state)
{
        struct client c;

        open_client(&c, script_restarted_socket, LONG_MSEC, KVL_CONNECT_NO_SHM);
        assert_int_equal(look_up(&c, 6), 0);
        assert_on_device(&c, 6, 21);
        assert_int_equal(kvl_release(c.ns, c.pages, c.n_pages), 0);
        close_client(&c);
}

/* ---- a daemon that breaks the rules, or goes
 * -----------------------------------------------------
 */

static void say_lower(struct fake_peer *p, const struct shm_submission *s)
{
        fake_complete(p, s->user_data, WIRE_OK, s->page);
}

static void say_twice(struct fake_peer *p, const struct shm_submission *s)
{
        fake_complete(p, s->user_data ^ 0x100, WIRE_OK, 5);
}

static void say_unknown(struct fake_peer *p, const struct shm_submission *s)
{
        fake_complete(p, s->user_data, 9999, s->page);
}

static void hang_up(struct fake_peer *p, const struct shm_submission *s)
{
        _exit(0);
}

static void (*const breaks[])(struct fake_peer *p, const struct shm_submission *s) = {
        say_lower, say_twice, say_unknown, hang_up};

static unsigned which;

static void script_breaks(struct fake_peer *p)
{
        p->on_fetch = breaks[which];
        serve_to_ns(p);
        fake_serve(p);
}

/* A lookup in shared memory has what it has, all the same. */
static void test_breaks(void **state)
{
        uint32_t up[N_KEYS];
        struct client c;

        for (which = 0; which < ARRAY_SIZE(breaks); which++) {
                open_client(&c, script_breaks, LONG_MSEC, KVL_CONNECT_METADATA_ONLY);
                assert_int_equal(look_up(&c, N_KEYS), 0);
                assert_int_equal(c.n_pages, 2);
                assert_int_equal(c.n_tokens, 3);
                assert_false(kvl_is_connected(c.conn));
                assert_int_equal(look_up(&c, N_KEYS), 0);
                assert_int_equal(c.n_pages, 2);
                assert_int_equal(find(&c, N_KEYS), 0);
                assert_int_equal(c.n_pages, 9);
                assert_int_equal(kvl_fetch(c.ns, c.pages, 9, up), -ENOTCONN);
                assert_memory_equal(up, c.pages, 9 * sizeof(uint32_t));
                close_client(&c);
        }
}

/* ---- many --------------------------------------------------------------------------------------
 */

#define MANY 600

static void put_many(struct fake_peer *p)
{
        for (uint32_t i = 0; i < MANY; i++) {
                uint8_t key[KVL_KEY_BYTES];

                test_key(key, i);
                fake_put(p, p->n_device_sets * p->set_pages + i, key, 16);
        }
}

static void script_many(struct fake_peer *p)
{
        p->fill = put_many;
        serve_to_ns(p);
        serve_and_check(p);
        FAKE_CHECK(p->n_fetches == MANY);
}

/* More than may be under way, or fit a message. */
static void assert_brings_many(unsigned flags)
{
        static uint8_t keys[MANY][KVL_KEY_BYTES];
        struct kvl_layout layout = test_layout(1, 4096);
        uint32_t pages[MANY], n_pages;
        uint64_t n_tokens;
        struct client c;

        fake_start(&c.f, script_many);
        assert_int_equal(test_connect_flags(&c.f, LONG_MSEC, flags, &c.conn), 0);
        assert_int_equal(kvl_ns_open(c.conn, "chat", &layout, NULL, 0, &c.ns), 0);
        for (uint32_t i = 0; i < MANY; i++)
                test_key(keys[i], i);
        assert_int_equal(kvl_lookup(c.ns, 0, keys[0], MANY, pages, &n_pages, &n_tokens), 0);
        assert_int_equal(n_pages, MANY);
        assert_int_equal(n_tokens, MANY * 16);
        for (uint32_t i = 0; i < MANY; i++)
                assert_int_equal(kvl_page_tier(c.ns, pages[i]), KVL_TIER_DEVICE);
        assert_int_equal(kvl_release(c.ns, pages, n_pages), 0);
        close_client(&c);
}

static void test_many(void **state)
{
        assert_brings_many(0);
}

static void test_many_socket(void **state)
{
        assert_brings_many(KVL_CONNECT_NO_SHM);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                TEST(test_info),
                TEST(test_spoiled),
                TEST(test_lookup),
                TEST(test_lookup_socket),
                TEST(test_full),
                TEST(test_full_socket),
                TEST(test_reverse),
                TEST(test_lost_race),
                TEST(test_lost_twice),
                TEST(test_timeout),
                TEST(test_find),
                TEST(test_find_socket),
                TEST(test_encoded),
                TEST(test_recall),
                TEST(test_fetch),
                TEST(test_fetch_socket),
                TEST(test_start),
                TEST(test_start_socket),
                TEST(test_closed),
                TEST(test_restarted),
                TEST(test_restarted_socket),
                TEST(test_breaks),
                TEST(test_many),
                TEST(test_many_socket),
        };

        return RUN_TESTS(tests);
}
