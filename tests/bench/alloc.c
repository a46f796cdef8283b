/*
 * alloc: a page leased from the magazine, against a page taken from an array. A pinned page
 * released, against a release in a table. Leases and frees in turn, against those over the socket.
 */
#include <errno.h>
#include <time.h>

#include "base/macros.h"
#include "tests/bench/baseline.h"
#include "tests/bench/bench.h"
#include "tests/bench/fixture.h"
#include "tests/bench/table.h"

#define N_PAGES       65536
#define MAX_LEASE     12     /* pages taken from an array */
#define MAX_RELEASE   5      /* the same in the table */
#define LEASE_BATCH   128    /* fewer than a magazine in use holds; not tuned */
#define REFILL_NSEC   200000 /* for the daemon to fill it again; not tuned */
#define WARM_KEYS     8
#define RELEASE_BATCH 1000
#define PAIRS         500 /* leases, each followed by its free */

enum what { LEASE, ARRAY, RELEASE, TABLE, RELEASE_128, TABLE_128, PAIR, PAIR_SOCKET, N_WHATS };

struct alloc {
        struct fixture fixture;
        struct fixture_client client, over_socket;
        struct table *table;
        uint8_t keys[FIXTURE_TEXT * KVL_KEY_BYTES];
        uint32_t pages[FIXTURE_TEXT];
        struct series series[N_WHATS];
};

static int time_leases(struct alloc *b)
{
        static const struct timespec refill = {.tv_nsec = REFILL_NSEC};
        uint32_t pages[LEASE_BATCH];
        uint64_t start;
        int r = 0;

        nanosleep(&refill, NULL);
        kvl_dispatch(b->client.conn);
        start = now_nsec();
        for (unsigned i = 0; i < LEASE_BATCH; ++i)
                r |= kvl_lease(b->client.ns, 0, 1, &pages[i]);
        series_add(&b->series[LEASE], (double)(now_nsec() - start) / LEASE_BATCH);
        series_add(&b->series[ARRAY], take_nsec(LEASE_BATCH));
        return r ? r : kvl_free(b->client.ns, pages, LEASE_BATCH);
}

static int time_releases(struct alloc *b)
{
        static uint32_t pages[RELEASE_BATCH];
        uint64_t start, tokens;
        uint32_t n;
        int r = 0;

        for (unsigned i = 0; i < RELEASE_BATCH; ++i)
                r |= kvl_lookup(b->client.ns, 0, b->keys + i % WARM_KEYS * KVL_KEY_BYTES, 1,
                        &pages[i], &n, &tokens);
        start = now_nsec();
        for (unsigned i = 0; i < RELEASE_BATCH; ++i)
                r |= kvl_release(b->client.ns, &pages[i], 1);
        series_add(&b->series[RELEASE], (double)(now_nsec() - start) / RELEASE_BATCH);
        if (r == 0)
                r = kvl_lookup(b->client.ns, 0, b->keys, 128, pages, &n, &tokens);
        start = now_nsec();
        if (r == 0)
                r = kvl_release(b->client.ns, pages, n);
        series_add(&b->series[RELEASE_128], (double)(now_nsec() - start) / 128);
        return r;
}

/* time_releases() with the table. */
static int time_table(struct alloc *b)
{
        static uint32_t pages[RELEASE_BATCH];
        uint64_t start, tokens;
        uint32_t n = 0;

        for (unsigned i = 0; i < RELEASE_BATCH; ++i)
                n += table_lookup(
                        b->table, b->keys + i % WARM_KEYS * KVL_KEY_BYTES, 1, &pages[i], &tokens);
        start = now_nsec();
        for (unsigned i = 0; i < RELEASE_BATCH; ++i)
                table_release(b->table, &pages[i], 1);
        series_add(&b->series[TABLE], (double)(now_nsec() - start) / RELEASE_BATCH);
        n += table_lookup(b->table, b->keys, 128, pages, &tokens);
        start = now_nsec();
        table_release(b->table, pages, 128);
        series_add(&b->series[TABLE_128], (double)(now_nsec() - start) / 128);
        return n == RELEASE_BATCH + 128 ? 0 : -ENOENT;
}

static int time_pairs(struct alloc *b, unsigned what, unsigned n_pairs)
{
        struct kvl_ns *ns = what == PAIR ? b->client.ns : b->over_socket.ns;
        uint64_t start = now_nsec();
        uint32_t page;
        int r = 0;

        for (unsigned i = 0; r == 0 && i < n_pairs; ++i) {
                r = kvl_lease(ns, 0, 1, &page);
                if (r == 0)
                        r = kvl_free(ns, &page, 1);
        }
        series_add(&b->series[what], n_pairs * 1e9 / (double)(now_nsec() - start));
        return r;
}

static int one_round(struct alloc *b, unsigned n, bool warm)
{
        int r = 0;

        for (unsigned i = 0; r == 0 && i < n; ++i) {
                r = time_leases(b);
                if (r == 0)
                        r = time_releases(b);
                if (r == 0)
                        r = time_table(b);
                if (r == 0 && i % 10 == 0)
                        r = time_pairs(b, PAIR, PAIRS);
                if (r == 0 && i % 10 == 0)
                        r = time_pairs(b, PAIR_SOCKET, PAIRS);
        }
        for (unsigned w = 0; w < N_WHATS; ++w)
                (warm ? series_drop_round : series_close_round)(&b->series[w]);
        return r ? bench_fail(kvl_last_error(), r) : 0;
}

static void report(struct alloc *b, struct bench_run *run)
{
        struct series *s = b->series;
        struct bench_result *r = bench_add(run, "ns", "lease-1");

        series_report(r, &s[LEASE], &s[ARRAY], "array");
        r->max_ratio = MAX_LEASE;
        r = bench_add(run, "ns", "release-1");
        series_report(r, &s[RELEASE], &s[TABLE], "table");
        r->max_ratio = MAX_RELEASE;
        r = bench_add(run, "ns", "release-128-per-page");
        series_report(r, &s[RELEASE_128], &s[TABLE_128], "table");
        r = bench_add(run, "1/s", "lease-and-free");
        series_report(r, &s[PAIR], &s[PAIR_SOCKET], "socket");
}

/* Puts the first text into the table, at the same pages. */
static int fill_table(struct alloc *b)
{
        int r = table_new(N_PAGES, &b->table);

        for (unsigned i = 0; r == 0 && i < FIXTURE_TEXT; ++i)
                if (!table_insert(b->table, b->keys + i * KVL_KEY_BYTES, b->pages[i],
                            FIXTURE_PAGE_TOKENS))
                        r = -ENOSPC;
        return r < 0 ? bench_fail("the table", r) : 0;
}

static int setup(struct alloc *b, unsigned n_samples, unsigned rounds)
{
        int r = 0;

        for (unsigned w = 0; r == 0 && w < N_WHATS; ++w)
                r = series_init(&b->series[w], n_samples, rounds);
        if (r == 0)
                r = fixture_open(&b->fixture, N_PAGES, FIXTURE_PAGE_BYTES);
        if (r == 0)
                r = fixture_connect(&b->fixture, 0, &b->client);
        if (r == 0)
                r = fixture_connect(&b->fixture, KVL_CONNECT_NO_SHM, &b->over_socket);
        if (r == 0)
                r = fixture_fill(b->client.ns, 1, FIXTURE_TEXT, b->keys, b->pages);
        return r ? r : fill_table(b);
}

static int run_alloc(struct bench_run *run)
{
        static struct alloc b;
        unsigned n = run->quick ? 10 : 500;
        int r;

        b.fixture = FIXTURE_INIT;
        r = setup(&b, n, run->rounds);
        for (unsigned i = 0; r == 0 && i <= run->rounds; ++i)
                r = one_round(&b, n, i == 0);
        if (r == 0)
                report(&b, run);
        fixture_disconnect(&b.client);
        fixture_disconnect(&b.over_socket);
        fixture_close(&b.fixture);
        table_free(TAKE(b.table));
        for (unsigned w = 0; w < N_WHATS; ++w)
                series_deinit(&b.series[w]);
        return r;
}

const struct bench bench_alloc = {
        "alloc", "lease of a page from the magazine, and release of a pinned one", 11, run_alloc};
