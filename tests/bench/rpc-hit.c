/*
 * A hit over the socket: kvl_lookup() of the first 128 pages of a text that is cached, and their
 * kvl_release(), through libkvlease without shared memory; against frames of the same sizes that
 * another process sends back unread. Both processes on one core, then on two.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "proto/kvlease.pb-c.h"
#include "tests/bench/baseline.h"
#include "tests/bench/fixture.h"
#include "tests/bench/rpc.h"
#include "tests/integration/pattern.h"

#define N_KEYS    128u
#define N_PAGES   102400u /* resident */
#define BLOCK     50      /* hits, then echoes */
#define MAX_RATIO 2.0     /* specification, with the next one */
#define PAGE_USEC 0.05

enum what { LOOKUP, RELEASE, HIT, N_WHATS };

struct rpc_hit {
        struct fixture fixture;
        struct fixture_client client;
        struct echo echo;
        unsigned n_ops;
        uint8_t *keys;   /* owned; N_PAGES of 32 bytes */
        uint32_t *pages; /* owned; N_PAGES */
        uint64_t random; /* state */
        struct series own[N_CORES][N_WHATS], echoes[N_CORES][N_WHATS];
};

static int one_hit(struct rpc_hit *b, struct series *s)
{
        uint32_t text = (uint32_t)(pattern_next(&b->random) % (N_PAGES / FIXTURE_TEXT));
        uint32_t first = text * FIXTURE_TEXT, found[N_KEYS], n_found = 0;
        uint64_t tokens, start, middle;
        uint8_t keys[N_KEYS * KVL_KEY_BYTES];
        double took;
        int r;

        memcpy(keys, b->keys + (size_t)first * KVL_KEY_BYTES, sizeof(keys));
        start = now_nsec();
        r = kvl_lookup(b->client.ns, 0, keys, N_KEYS, found, &n_found, &tokens);
        middle = now_nsec();
        if (r == 0)
                r = kvl_release(b->client.ns, found, n_found);
        took = bench_usec_since(start);
        if (r != 0)
                return bench_fail(kvl_last_error(), r);
        if (n_found != N_KEYS || memcmp(found, b->pages + first, sizeof(found)) != 0)
                return bench_fail("a hit didn't find its pages", -EIO);
        series_add(&s[HIT], took);
        series_add(&s[LOOKUP], (double)(middle - start) / 1000);
        series_add(&s[RELEASE], took - (double)(middle - start) / 1000);
        return 0;
}

static int one_echo(struct rpc_hit *b, struct series *s)
{
        uint64_t start = now_nsec();
        double took[HIT];
        int r = 0;

        for (unsigned w = LOOKUP; r == 0 && w < HIT; ++w) {
                r = echo_call(&b->echo);
                took[w] = bench_usec_since(start);
                start = now_nsec();
        }
        if (r < 0)
                return bench_fail("echo", r);
        series_add(&s[LOOKUP], took[LOOKUP]);
        series_add(&s[RELEASE], took[RELEASE]);
        series_add(&s[HIT], took[LOOKUP] + took[RELEASE]);
        return 0;
}

static int one_placement(struct rpc_hit *b, unsigned placement)
{
        int core = b->fixture.cores[placement];
        int r = bench_pin(b->fixture.daemon.pid, core);

        if (r == 0)
                r = bench_pin(b->echo.pid, core);
        if (r < 0)
                return bench_fail("pinning to a core", r);
        for (unsigned i = 0; r == 0 && i < b->n_ops; i += BLOCK) {
                for (unsigned k = 0; r == 0 && k < BLOCK; ++k)
                        r = one_hit(b, b->own[placement]);
                for (unsigned k = 0; r == 0 && k < BLOCK; ++k)
                        r = one_echo(b, b->echoes[placement]);
        }
        return r;
}

/* The first round warms up. */
static int one_round(struct rpc_hit *b, bool warm)
{
        int r = 0;

        for (unsigned p = 0; r == 0 && p < N_CORES; ++p) {
                if (b->fixture.cores[p] < 0)
                        continue;
                r = one_placement(b, p);
                for (unsigned w = 0; w < N_WHATS; ++w) {
                        (warm ? series_drop_round : series_close_round)(&b->own[p][w]);
                        (warm ? series_drop_round : series_close_round)(&b->echoes[p][w]);
                }
        }
        return r;
}

static void report(struct rpc_hit *b, struct bench_run *run)
{
        static const char *const names[N_WHATS] = {
                "lookup-128-socket", "release-128-socket", "hit-128-socket"};

        for (unsigned p = 0; p < N_CORES; ++p)
                for (unsigned w = 0; w < N_WHATS; ++w) {
                        struct bench_result *r;

                        if (b->fixture.cores[p] < 0)
                                continue;
                        r = bench_add(
                                run, "us", "%s%s", names[w], p == CORE_OTHER ? "-two-cores" : "");
                        series_report(r, &b->own[p][w], &b->echoes[p][w], "echo");
                        r->max_ratio = MAX_RATIO;
                        r->more = N_KEYS * PAGE_USEC;
                }
}

/* Frame sizes of a lookup and a release of N_KEYS pages, and of their answers. */
static void frame_sizes(struct echo_sizes ret_sizes[2])
{
        Kvlease__V1__LookupRequest lookup = KVLEASE__V1__LOOKUP_REQUEST__INIT;
        Kvlease__V1__LookupReply found = KVLEASE__V1__LOOKUP_REPLY__INIT;
        Kvlease__V1__ReleaseRequest release = KVLEASE__V1__RELEASE_REQUEST__INIT;
        Kvlease__V1__SimpleReply released = KVLEASE__V1__SIMPLE_REPLY__INIT;
        static uint8_t keys[N_KEYS * KVL_KEY_BYTES];
        uint32_t pages[N_KEYS];

        for (uint32_t i = 0; i < N_KEYS; ++i)
                pages[i] = N_PAGES / 2;
        lookup.ns_id = release.ns_id = 1;
        lookup.keys.data = keys;
        lookup.keys.len = sizeof(keys);
        found.pages = release.pages = pages;
        found.n_pages = release.n_pages = N_KEYS;
        found.tokens = N_KEYS * FIXTURE_PAGE_TOKENS;
        ret_sizes[0] = echo_sizes_of(&lookup.base, &found.base);
        ret_sizes[1] = echo_sizes_of(&release.base, &released.base);
}

static int setup(struct rpc_hit *b, unsigned rounds)
{
        struct echo_sizes sizes[2];
        int r = 0;

        b->keys = malloc((size_t)N_PAGES * KVL_KEY_BYTES);
        b->pages = malloc(N_PAGES * sizeof(uint32_t));
        if (!b->keys || !b->pages)
                return bench_fail("keys", -ENOMEM);
        for (unsigned p = 0; r == 0 && p < N_CORES; ++p)
                for (unsigned w = 0; r == 0 && w < N_WHATS; ++w) {
                        r = series_init(&b->own[p][w], b->n_ops, rounds);
                        if (r == 0)
                                r = series_init(&b->echoes[p][w], b->n_ops, rounds);
                }
        if (r < 0)
                return r;
        frame_sizes(sizes);
        r = echo_open(&b->echo, sizes);
        if (r < 0)
                return bench_fail("echo", r);
        r = fixture_open(&b->fixture, N_PAGES + N_PAGES / 16, FIXTURE_PAGE_BYTES);
        if (r == 0)
                r = fixture_connect(&b->fixture, KVL_CONNECT_NO_SHM, &b->client);
        return r < 0 ? r : fixture_fill(b->client.ns, 1, N_PAGES, b->keys, b->pages);
}

static void teardown(struct rpc_hit *b)
{
        fixture_disconnect(&b->client);
        fixture_close(&b->fixture);
        echo_close(&b->echo);
        for (unsigned p = 0; p < N_CORES; ++p)
                for (unsigned w = 0; w < N_WHATS; ++w) {
                        series_deinit(&b->own[p][w]);
                        series_deinit(&b->echoes[p][w]);
                }
        free(b->keys);
        free(b->pages);
}

int rpc_run_hits(struct bench_run *run)
{
        struct rpc_hit b = {.fixture = FIXTURE_INIT, .echo = {.fd = -1}, .random = 1};
        int r;

        b.n_ops = run->quick ? BLOCK : 1000;
        r = setup(&b, run->rounds);
        for (unsigned i = 0; r == 0 && i <= run->rounds; ++i)
                r = one_round(&b, i == 0);
        if (r == 0)
                report(&b, run);
        teardown(&b);
        return r;
}
