/*
 * A request's pages put into a full namespace: 128 are leased, published and done, where each page
 * takes the place of a cached one; against the same where pages are free. One after the other, and
 * with the daemon asleep before each. And the time that the daemon's thread runs for a page.
 */
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/macros.h"
#include "tests/bench/bench.h"
#include "tests/bench/fixture.h"
#include "tests/bench/publish.h"
#include "tests/integration/pattern.h"

#define PUT_PAGES  128
#define N_PAGES    (128 * FIXTURE_TEXT)
#define SLEEP_USEC 1000 /* the daemon has fallen asleep long before */
/* Puts that a magazine's pages may serve: so many aren't counted after a change of free memory. */
#define N_AHEAD 16

enum what { FULL, FULL_IDLE, FULL_CPU, FREE, FREE_IDLE, FREE_CPU, N_WHATS };

struct full {
        struct fixture fixture;
        struct fixture_client client;
        uint64_t text; /* the last one that was put */
        struct series series[N_WHATS];
};

static int put(struct full *f, struct series *s)
{
        uint32_t pages[PUT_PAGES];
        uint8_t keys[PUT_PAGES * KVL_KEY_BYTES];
        struct kvl_publish p = {.size = sizeof(p),
                .pages = pages,
                .keys = keys,
                .n_pages = PUT_PAGES,
                .last_tokens = FIXTURE_PAGE_TOKENS};
        uint64_t start;
        int r;

        f->text++;
        for (unsigned i = 0; i < PUT_PAGES; ++i)
                pattern_key(f->text, i, keys + i * KVL_KEY_BYTES);
        start = now_nsec();
        r = kvl_lease(f->client.ns, 0, PUT_PAGES, pages);
        if (r == 0)
                r = kvl_publish(f->client.ns, &p, NULL, NULL);
        if (s)
                series_add(s, bench_usec_since(start));
        return r ? r : kvl_release(f->client.ns, pages, PUT_PAGES);
}

/* First without pauses, then each after a pause. what: FULL or FREE. */
static int time_puts(struct full *f, enum what what, unsigned n)
{
        pid_t pid = f->fixture.daemon.pid;
        uint64_t cpu;
        int r = 0;

        for (unsigned i = 0; r == 0 && i < N_AHEAD; ++i)
                r = put(f, NULL);
        cpu = bench_cpu_nsec(pid);
        for (unsigned i = 0; r == 0 && i < n; ++i)
                r = put(f, &f->series[what]);
        series_add(&f->series[what + 2],
                (double)(bench_cpu_nsec(pid) - cpu) / ((double)n * PUT_PAGES));
        for (unsigned i = 0; r == 0 && i < n; ++i) {
                usleep(SLEEP_USEC);
                r = put(f, &f->series[what + 1]);
        }
        return r;
}

/* Drops the texts published last. */
static int drop_texts(struct full *f, unsigned n)
{
        uint8_t key[KVL_KEY_BYTES];
        int r = 0;

        for (unsigned i = 0; r == 0 && i < n; ++i) {
                pattern_key(f->text - i, 0, key);
                r = fixture_drop(f->client.ns, key, 1, 1);
        }
        return r;
}

static int one_round(struct full *f, unsigned n, bool warm)
{
        int r = time_puts(f, FULL, n);

        if (r == 0)
                r = drop_texts(f, 2 * n + 2 * N_AHEAD);
        if (r == 0)
                r = time_puts(f, FREE, n);
        for (unsigned w = 0; w < N_WHATS; ++w)
                (warm ? series_drop_round : series_close_round)(&f->series[w]);
        return r ? bench_fail(kvl_last_error(), r) : 0;
}

static void report(struct full *f, struct bench_run *run)
{
        struct series *s = f->series;

        series_report(bench_add(run, "us", "put-128-full"), &s[FULL], &s[FREE], "put-128");
        series_report(bench_add(run, "us", "put-128-full-idle"), &s[FULL_IDLE], &s[FREE_IDLE],
                "put-128-idle");
        series_report(bench_add(run, "ns", "put-128-full-processor"), &s[FULL_CPU], &s[FREE_CPU],
                "put-128-processor");
}

static int fill(struct full *f, uint32_t n_pages)
{
        uint8_t *keys = malloc((size_t)n_pages * KVL_KEY_BYTES);
        uint32_t *pages = malloc(n_pages * sizeof(*pages));
        int r = keys && pages ? 0 : bench_fail("keys", -ENOMEM);

        if (r == 0)
                r = fixture_fill(f->client.ns, 0, n_pages, keys, pages);
        free(keys);
        free(pages);
        return r;
}

int publish_run_full(struct bench_run *run)
{
        struct full f = {.fixture = FIXTURE_INIT};
        uint32_t n_pages = run->quick ? N_PAGES / 8 : N_PAGES;
        unsigned n = run->quick ? 10 : 200;
        int r = 0;

        for (unsigned w = 0; r == 0 && w < N_WHATS; ++w)
                r = series_init(&f.series[w], n, run->rounds);
        if (r == 0)
                r = fixture_open(&f.fixture, n_pages, FIXTURE_PAGE_BYTES);
        if (r == 0)
                r = fixture_connect(&f.fixture, 0, &f.client);
        if (r == 0)
                r = fill(&f, n_pages);
        for (unsigned i = 0; r == 0 && i <= run->rounds; ++i)
                r = one_round(&f, n, i == 0);
        if (r == 0)
                report(&f, run);
        fixture_disconnect(&f.client);
        fixture_close(&f.fixture);
        for (unsigned w = 0; w < N_WHATS; ++w)
                series_deinit(&f.series[w]);
        return r;
}
