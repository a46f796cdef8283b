/* One of several hosts: a store of daemon/core, with its own client of one real redis-server. Test
 * code: failures assert. */
#ifndef KVL_TESTS_EXCHANGE_HOST_H
#define KVL_TESTS_EXCHANGE_HOST_H

/* Before cmocka, whose fail() is a macro. */
#include "tests/unit/remote-fixture.h"

#include "daemon/exchange/exchange.h"
#include "daemon/exchange/import.h"
#include "daemon/core/memory/tasks.h"
#include "tests/integration/redis-needed.h"
#include "tests/unit/relay-server.h"
#include "tests/unit/tier-fixture.h"

/* A text must have 256 tokens, or 16 pages, to be loaded. */
#define N_PAGES 20

/* Time limits of an import: with nothing in its way, and with something. */
#define LONG_MSEC  20000
#define SHORT_MSEC 400

struct host {
        struct tiers w;
        unsigned rank;        /* of a set: that w's attachment is of; 0: the first, or none */
        unsigned last_tokens; /* of the last page of a text; 0: it is full */
        struct remote_store *remote;
        bool is_over;
        uint32_t n_imported;
        uint32_t n_texts; /* that waited to be exported when it was over */
        int code;
        bool would_load;
};

static struct redis_cluster server;
static struct relay_server relay;

static inline void __attribute__((destructor)) stop_relay(void)
{
        if (relay.pid > 0)
                relay_server_stop(&relay);
}

/* Bytes a second that hosts started from now on export. */
static uint64_t host_write_rate = UINT64_C(1) << 30;

/* Codec of these hosts' lower tiers, if they have any. */
static enum codec host_codec = CODEC_NONE;

/* Planes of these hosts' pages. */
static unsigned host_planes = 2;

static inline void server_start(void)
{
        static const char *const words[] = {NULL};

        redis_needed(&server);
        assert_int_equal(redis_cluster_add(&server, words, false), 0);
}

/* ---- hosts ----------------------------------------------------------------------------------- */

/* One iteration at a time that is later by `nsec`. */
static inline void host_turn_later(struct host *h, uint64_t nsec)
{
        (void)remote_reap(h->remote);
        (void)mover_reap(h->w.store.moving.mover);
        (void)transfer_work(&h->w.store);
        (void)exchange_work(&h->w.store, clock_now_nsec() + nsec);
        (void)transfer_start(&h->w.store);
}

static inline void host_turn(struct host *h)
{
        host_turn_later(h, 0);
}

/* Runs n iterations, a millisecond apart. */
static inline void host_turn_often(struct host *h, unsigned n)
{
        for (unsigned i = 0; i < n; i++) {
                host_turn(h);
                poll(NULL, 0, 1);
        }
}

static inline bool servers_have_epoch(void)
{
        bool found = false;

        for (unsigned i = 0; i < server.n && !found; i++) {
                char *names = redis_cluster_call(&server, i, "--raw keys kvl:1:a:*:epoch");

                found = names && strstr(names, "epoch");
                free(names);
        }
        return found;
}

/* Waits for the epoch, so that pages published from now on belong to it. */
static inline void host_await_epoch(struct host *h)
{
        uint64_t until = clock_now_nsec() + PATIENCE_NSEC;

        do {
                host_turn(h);
                assert_true(clock_now_nsec() < until);
        } while (!servers_have_epoch());
        host_turn_often(h, 50);
}

/* Opens the host's exchange; `secret` may be NULL. */
static inline void host_open_exchange(struct host *h, bool may_write, const char *secret)
{
        struct exchange_options o = {
                .remote = h->remote,
                .may_write = may_write,
                .secret = (const uint8_t *)secret,
                .secret_len = secret ? strlen(secret) : 0,
                .expiry_msec = 600000,
                .write_bytes_per_sec = host_write_rate,
                .probe_nsec = PATIENCE_NSEC,
                .bytes_per_sec = UINT64_C(1) << 30,
                .token_nsec = NSEC_PER_SEC, /* so slow that loading always pays */
        };

        assert_int_equal(exchange_open(h->w.a, &o, &h->w.d), 0);
}

/* The store is reached through kvlease-exchange, which runs as long as the test. */
static inline struct remote_store *host_open_store(void)
{
        const char *const address = server.servers[0].address;
        const struct remote_options o = {.addresses = &address,
                .n_addresses = 1,
                .silence_msec = PATIENCE_NSEC / NSEC_PER_MSEC};
        struct remote_store *s;

        if (relay.pid == 0)
                relay_server_start(&relay);
        assert_int_equal(relay_server_open(&relay, &o, &s), 0);
        store_await_known(s);
        relay_await_lanes(s);
        return s;
}

/* n_below: sets of memory in a lower tier. */
static inline void host_start_on(
        struct host *h, bool may_write, const char *secret, unsigned n_below)
{
        *h = (struct host){.is_over = false};
        tiers_start(&h->w, &evict_lru, 4, n_below, host_planes, host_codec);
        h->remote = host_open_store();
        host_open_exchange(h, may_write, secret);
        if (may_write)
                host_await_epoch(h);
}

static inline void host_start_with(struct host *h, bool may_write, const char *secret)
{
        host_start_on(h, may_write, secret, 0);
}

static inline void host_start(struct host *h, bool may_write)
{
        host_start_with(h, may_write, NULL);
}

/* Replaces the client's namespace by one with pages of so many tokens, and bytes in each plane. */
static inline void host_use_pages(struct host *h, uint32_t page_tokens, uint64_t plane_bytes)
{
        struct ns_layout l = h->w.ns->layout;

        l.page_tokens = page_tokens;
        l.plane_page_bytes = plane_bytes;
        if (attach_open(h->w.m, "long", &l, "", false, &h->w.attach, &h->w.d) != 0)
                fail_msg("%s", h->w.d.text);
        h->w.ns = h->w.attach->ns;
}

static inline void host_end(struct host *h)
{
        tiers_check(&h->w);
        tenant_tell(h->w.a, tenant_ends, h->w.a);
        tiers_check(&h->w);
        remote_close(h->remote);
        tiers_end(&h->w);
}

/* All of the host's namespace counts as invalidated, and stays cached. */
static inline void host_invalidate_all(struct host *h)
{
        tenant_tell(h->w.a, invalidated, h->w.ns, NULL, 0);
}

static inline struct exchange_counters counters_of(const struct host *h)
{
        struct exchange_figures f;

        assert_true(exchange_figures(h->w.a, &f));
        return f.counters;
}

/* Publishes and releases pages first.. of a text with bytes of its own, behind this key or NULL. */
static inline void host_compute_behind(
        struct host *h, const uint8_t *parent_key, unsigned first, unsigned n)
{
        uint8_t keys[N_PAGES * KEY_BYTES];
        uint32_t pages[N_PAGES], got[N_PAGES], n_got;
        struct publish p = {.pages = pages,
                .keys = keys,
                .n = n,
                .parent_key = parent_key,
                .last_tokens = h->last_tokens > 0 ? h->last_tokens : PAGE_TOKENS};

        make_keys(keys, first, n);
        assert_int_equal(lease_pages(h->w.attach, n, 1, pages, NULL), 0);
        for (unsigned i = 0; i < n; i++)
                tier_fill(&h->w, pages[i], h->rank * N_PAGES + first + i);
        assert_int_equal(publish_pages(h->w.attach, &p, 1, got, &n_got, NULL), 0);
        assert_int_equal(release_pages(h->w.attach, pages, n, 1, NULL), 0);
}

static inline void host_compute(struct host *h, unsigned n)
{
        host_compute_behind(h, NULL, 0, n);
}

static inline void host_await_exported(struct host *h, uint64_t n)
{
        uint64_t until = clock_now_nsec() + PATIENCE_NSEC;

        while (counters_of(h).exported_pages < n) {
                assert_true(clock_now_nsec() < until);
                host_turn(h);
                poll(NULL, 0, 1);
        }
}

/* Waits until no text is queued and no page is being written. */
static inline void host_await_exports(struct host *h)
{
        uint64_t until = clock_now_nsec() + PATIENCE_NSEC;

        while (exchange_of(h->w.a)->n_texts > 0 || exchange_of(h->w.a)->batch) {
                assert_true(clock_now_nsec() < until);
                host_turn(h);
                poll(NULL, 0, 1);
        }
}

/* Computes a text, looks it up once, and waits until the server has it. */
static inline void host_share_text(struct host *h)
{
        host_compute(h, N_PAGES);
        assert_int_equal(count_hits(h->w.attach, 0, N_PAGES), N_PAGES);
        host_await_exported(h, N_PAGES);
}

/* ---- imports --------------------------------------------------------------------------------- */

static inline void on_over(const struct import_outcome *outcome, void *data)
{
        struct host *h = data;
        struct exchange_figures f;

        assert_false(h->is_over);
        h->n_texts = exchange_figures(h->w.a, &f) ? f.n_texts : 0;
        h->is_over = true;
        h->n_imported = outcome->n_pages;
        h->would_load = outcome->would_load;
        h->code = outcome->code;
}

/* Begins a probe: how many of n keys of a text the server has. */
static inline int probe_ask(
        struct host *h, struct attach *a, unsigned n, unsigned msec, struct import **ret)
{
        uint8_t keys[N_PAGES * KEY_BYTES];
        const struct import_request rq = {
                .keys = keys, .n_keys = n, .deadline_nsec = in_msec(msec), .only_probes = true};

        make_keys(keys, 0, n);
        h->is_over = false;
        return import_begin(a, &rq, clock_now_nsec(), on_over, h, ret, &h->w.d);
}

/* Begins an import of keys first.., n of them, behind `first` cached ones. */
static inline int import_ask(struct host *h, struct attach *a, unsigned first, unsigned n,
        unsigned msec, struct import **ret)
{
        uint8_t keys[(N_PAGES + 1) * KEY_BYTES];
        struct import_request rq = {
                .keys = keys + KEY_BYTES, .n_keys = n, .deadline_nsec = in_msec(msec)};

        if (first > 0) {
                make_keys(keys, first - 1, n + 1);
                rq.parent_key = keys;
        } else {
                make_keys(keys + KEY_BYTES, 0, n);
        }
        h->is_over = false;
        return import_begin(a, &rq, clock_now_nsec(), on_over, h, ret, &h->w.d);
}

static inline void import_await(struct host *h)
{
        uint64_t until = clock_now_nsec() + PATIENCE_NSEC;

        while (!h->is_over) {
                assert_true(clock_now_nsec() < until);
                host_turn(h);
                tiers_check(&h->w);
                poll(NULL, 0, 1);
        }
}

static inline uint32_t import(struct host *h, unsigned first, unsigned n, unsigned msec)
{
        struct import *i;

        assert_int_equal(import_ask(h, h->w.attach, first, n, msec, &i), 0);
        import_await(h);
        assert_int_equal(h->code, h->n_imported > 0 ? 0 : KVL_STATUS_MISS);
        return h->n_imported;
}

/* Exactly n pages are cached, with the right bytes. No other page is granted or announced. */
static inline void assert_cached(struct host *h, unsigned n)
{
        assert_int_equal(count_hits(h->w.attach, 0, N_PAGES), n);
        for (unsigned i = 0; i < n; i++)
                assert_true(tier_is_filled(&h->w, tier_find(&h->w, i), h->rank * N_PAGES + i));
        assert_int_equal(h->w.ns->device.n_pages[PAGE_GRANTED], 0);
        assert_int_equal(h->w.ns->device.n_pages[PAGE_SEALED], n);
        assert_int_equal(h->w.ns->catalog.announced.n, 0);
}

/* Waits until pages are granted and values are being read. */
static inline void turn_until_loading(struct host *h)
{
        uint64_t until = clock_now_nsec() + PATIENCE_NSEC;

        while (h->w.ns->device.n_pages[PAGE_GRANTED] == 0) {
                assert_true(clock_now_nsec() < until);
                assert_false(h->is_over);
                host_turn(h);
        }
}

/* Begins a test between the start and the end of a server. */
#define SERVER_TEST(fn)                        \
        static void fn##_on(void);             \
        TEST(fn)                               \
        {                                      \
                server_start();                \
                fn##_on();                     \
                redis_cluster_deinit(&server); \
        }                                      \
        static void fn##_on(void)

/* Begins a test of two hosts and their server: a exports texts, b does if b_writes. */
#define EXCHANGE_SCENE(fn, b_writes)                         \
        static void fn##_on(struct host *a, struct host *b); \
        TEST(fn)                                             \
        {                                                    \
                struct host a, b;                            \
                                                             \
                server_start();                              \
                host_start(&a, true);                        \
                host_start(&b, b_writes);                    \
                fn##_on(&a, &b);                             \
                host_end(&b);                                \
                host_end(&a);                                \
                redis_cluster_deinit(&server);               \
        }                                                    \
        static void fn##_on(struct host *a, struct host *b)

#endif
