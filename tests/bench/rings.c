/*
 * rings: operations a second that the daemon executes through a client's ring. Compared with
 * answers a second of a process on a socket, on the daemon's core. Measured with the client on that
 * core and on another one. The CPU time of the daemon's thread for an operation is shown beside it.
 */
#include <errno.h>
#include <limits.h>
#include <malloc.h>
#include <math.h>
#include <poll.h>
#include <stdlib.h>

#include "base/macros.h"
#include "tests/bench/baseline.h"
#include "tests/bench/bench.h"
#include "tests/bench/fixture.h"
#include "tests/integration/pattern.h"

#define MIN_ECHOES 20 /* specification: times an echo's */
#define BATCH      128
#define N_PAGES    16384 /* leased, published, published again, freed; twice that at the peak */

enum what { PUBLISH, DUPLICATE, FREE, FREE_8, ECHO, N_WHATS };

struct rings {
        struct fixture fixture;
        struct fixture_client client;
        struct echo echo;
        uint32_t n_pages, pages[N_PAGES], more[N_PAGES];
        uint8_t keys[N_PAGES * KVL_KEY_BYTES];
        uint64_t text;
        uint32_t n_started, n_done;
        int failed;                           /* the first code that isn't done or duplicate */
        struct series rate[N_CORES][N_WHATS]; /* operations a second */
        struct series cpu[N_CORES][N_WHATS];  /* nanoseconds the daemon ran for one */
};

static void on_done(
        struct kvl_ns *ns, int code, const uint32_t *pages, uint32_t n, uint64_t tokens, void *data)
{
        struct rings *b = data;

        b->n_done++;
        if (code != 0 && code != KVL_DUPLICATE && b->failed == 0)
                b->failed = code;
}

/* Waits for an event on the connection. */
static int wait_some(struct rings *b)
{
        struct pollfd p = {.fd = kvl_fd(b->client.conn), .events = POLLIN};
        int r = kvl_dispatch(b->client.conn);

        if (r == 0)
                poll(&p, 1, 1000);
        return r < 0 ? r : 0;
}

static int start_one(struct rings *b, unsigned what, uint32_t first, uint32_t n)
{
        const uint32_t *pages = what == PUBLISH ? b->pages : b->more;
        struct kvl_publish p = {.size = sizeof(p),
                .pages = pages + first,
                .keys = b->keys + (size_t)first * KVL_KEY_BYTES,
                .n_pages = n,
                .last_tokens = FIXTURE_PAGE_TOKENS};

        if (what == FREE || what == FREE_8)
                return kvl_free_start(b->client.ns, pages + first, n, on_done, b);
        return kvl_publish_start(b->client.ns, &p, on_done, b);
}

/* All pages through the ring, `at_once` in a call. */
static int pump(struct rings *b, unsigned what, uint32_t at_once)
{
        int r = 0;

        b->n_started = b->n_done = 0;
        for (uint32_t i = 0; r == 0 && i < b->n_pages; i += at_once) {
                while ((r = start_one(b, what, i, at_once)) == -EAGAIN)
                        if ((r = wait_some(b)) < 0)
                                return r;
                b->n_started++;
        }
        while (r == 0 && b->n_done < b->n_started)
                r = wait_some(b);
        return r ? r : b->failed;
}

/* n_ops: operations of the ring's entries. */
static int time_pump(
        struct rings *b, unsigned placement, unsigned what, uint32_t at_once, uint32_t n_ops)
{
        pid_t pid = b->fixture.daemon.pid;
        uint64_t cpu = bench_cpu_nsec(pid), start = now_nsec(), nsec;
        int r = pump(b, what, at_once);

        nsec = now_nsec() - start;
        series_add(&b->rate[placement][what], n_ops * 1e9 / (double)nsec);
        series_add(&b->cpu[placement][what], (double)(bench_cpu_nsec(pid) - cpu) / n_ops);
        return r;
}

static int lease_all(struct rings *b, uint32_t *pages)
{
        int r = 0;

        for (uint32_t i = 0; r == 0 && i < b->n_pages; i += 1024)
                r = kvl_lease(b->client.ns, 0, MIN(b->n_pages - i, 1024u), pages + i);
        return r;
}

static int release_all(struct rings *b, const uint32_t *pages)
{
        return kvl_release(b->client.ns, pages, b->n_pages);
}

static int one_pass(struct rings *b, unsigned placement)
{
        int r;

        b->text++;
        for (uint32_t i = 0; i < b->n_pages; ++i)
                pattern_key(b->text, i, b->keys + (size_t)i * KVL_KEY_BYTES);
        r = lease_all(b, b->pages);
        if (r == 0)
                r = time_pump(b, placement, PUBLISH, BATCH, b->n_pages);
        if (r == 0)
                r = lease_all(b, b->more);
        if (r == 0)
                r = time_pump(b, placement, DUPLICATE, BATCH, b->n_pages);
        if (r == 0)
                r = time_pump(b, placement, FREE, 1, b->n_pages);
        if (r == 0)
                r = lease_all(b, b->more);
        if (r == 0)
                r = time_pump(b, placement, FREE_8, BATCH, b->n_pages / 8);
        if (r == 0)
                r = release_all(b, b->pages);
        if (r == 0)
                r = release_all(b, b->pages); /* the duplicates' pins */
        return r ? r : fixture_drop(b->client.ns, b->keys, b->n_pages / BATCH, BATCH);
}

static int time_echoes(struct rings *b, unsigned placement, unsigned n)
{
        uint64_t start = now_nsec();
        int r = 0;

        for (unsigned i = 0; r == 0 && i < n; ++i)
                r = echo_call(&b->echo);
        series_add(&b->rate[placement][ECHO], n * 1e9 / (double)(now_nsec() - start));
        return r;
}

static int one_round(struct rings *b, bool quick, bool warm)
{
        int r = 0;

        for (unsigned p = 0; r == 0 && p < N_CORES; ++p) {
                int core = b->fixture.cores[p];

                if (core < 0)
                        continue;
                r = bench_pin(b->fixture.daemon.pid, core);
                if (r == 0)
                        r = bench_pin(b->echo.pid, core);
                for (unsigned i = 0; r == 0 && i < (quick ? 1 : 5); ++i) {
                        r = one_pass(b, p);
                        if (r == 0)
                                r = time_echoes(b, p, quick ? 100 : 2000);
                }
                for (unsigned w = 0; w < N_WHATS; ++w) {
                        (warm ? series_drop_round : series_close_round)(&b->rate[p][w]);
                        (warm ? series_drop_round : series_close_round)(&b->cpu[p][w]);
                }
        }
        return r ? bench_fail("operations through the ring", r) : 0;
}

static void report(struct rings *b, struct bench_run *run)
{
        static const char *const names[] = {"publish", "duplicate", "free", "free-by-8"};

        for (unsigned p = 0; p < N_CORES; ++p)
                for (unsigned w = 0; w < ECHO && b->fixture.cores[p] >= 0; ++w) {
                        const char *suffix = p == CORE_CLIENT ? "-one-core" : "-two-cores";
                        struct bench_result *r = bench_add(run, "1/s", "%s%s", names[w], suffix);

                        series_report(r, &b->rate[p][w], &b->rate[p][ECHO], "echo");
                        r->p99 = r->baseline_p99 = NAN;
                        r->min_ratio = MIN_ECHOES;
                        r = bench_add(run, "ns", "%s%s-daemon-cpu", names[w], suffix);
                        series_report(r, &b->cpu[p][w], NULL, NULL);
                        r->p99 = NAN;
                }
}

static int setup(struct rings *b, unsigned rounds)
{
        struct echo_sizes sizes[2];
        int r = 0;

        for (unsigned p = 0; r == 0 && p < N_CORES; ++p)
                for (unsigned w = 0; r == 0 && w < N_WHATS; ++w) {
                        r = series_init(&b->rate[p][w], 16, rounds);
                        if (r == 0)
                                r = series_init(&b->cpu[p][w], 16, rounds);
                }
        if (r < 0)
                return r;
        echo_frame_sizes(sizes);
        r = echo_open(&b->echo, sizes);
        if (r < 0)
                return bench_fail("echo", r);
        r = fixture_open(&b->fixture, 8 * N_PAGES, FIXTURE_PAGE_BYTES);
        return r ? r : fixture_connect(&b->fixture, 0, &b->client);
}

static int run_rings(struct bench_run *run)
{
        static struct rings b;
        int r;

        /* Whether the heap of so small a process shrinks after each pass depends on chance: the
         * faults of growing it again more than double the time of a free. */
        mallopt(M_TRIM_THRESHOLD, INT_MAX);
        b.fixture = FIXTURE_INIT;
        b.echo.fd = -1;
        b.n_pages = run->quick ? 1024 : N_PAGES;
        r = setup(&b, run->rounds);
        for (unsigned i = 0; r == 0 && i <= run->rounds; ++i)
                r = one_round(&b, run->quick, i == 0);
        if (r == 0)
                report(&b, run);
        fixture_disconnect(&b.client);
        fixture_close(&b.fixture);
        echo_close(&b.echo);
        for (unsigned p = 0; p < N_CORES; ++p)
                for (unsigned w = 0; w < N_WHATS; ++w) {
                        series_deinit(&b.rate[p][w]);
                        series_deinit(&b.cpu[p][w]);
                }
        return r;
}

const struct bench bench_rings = {"rings",
        "operations a second that kvleased executes through a client's ring", 5, run_rings};
