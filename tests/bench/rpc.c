/*
 * rpc: cost of a request to the daemon on the socket. Lease and free of one page through
 * libkvlease, against frames of the same sizes that another process returns unread. Both processes
 * on one core, then on two. And a hit of many pages: rpc-hit.c.
 */
#include <errno.h>

#include "base/macros.h"
#include "tests/bench/baseline.h"
#include "tests/bench/bench.h"
#include "tests/bench/fixture.h"
#include "tests/bench/rpc.h"

#define MAX_RATIO 1.8 /* specification: p50 of lease and of free */
#define BLOCK     50  /* requests, then echoes: a disturbance of the machine affects both */

enum what { LEASE, FREE, LEASE_ECHO, FREE_ECHO, N_WHATS };

struct rpc {
        struct fixture fixture;
        struct fixture_client client;
        struct echo echo;
        unsigned n_ops;
        struct series series[N_CORES][N_WHATS]; /* by the other process' core */
};

/* One lease, one free, each timed. */
static int one_op(struct rpc *b, struct series *s)
{
        uint64_t start = now_nsec();
        uint32_t page;
        int r = kvl_lease(b->client.ns, 0, 1, &page);

        series_add(&s[LEASE], bench_usec_since(start));
        if (r)
                return r;
        start = now_nsec();
        r = kvl_free(b->client.ns, &page, 1);
        series_add(&s[FREE], bench_usec_since(start));
        return r;
}

static int one_echo(struct rpc *b, struct series *s)
{
        int r = 0;

        for (unsigned which = 0; r == 0 && which < 2; ++which) {
                uint64_t start = now_nsec();

                r = echo_call(&b->echo);
                series_add(&s[LEASE_ECHO + which], bench_usec_since(start));
        }
        return r;
}

static int one_placement(struct rpc *b, unsigned placement)
{
        struct series *s = b->series[placement];
        int core = b->fixture.cores[placement];
        int r = bench_pin(b->fixture.daemon.pid, core);

        if (r == 0)
                r = bench_pin(b->echo.pid, core);
        for (unsigned i = 0; r == 0 && i < b->n_ops; i += BLOCK) {
                for (unsigned k = 0; r == 0 && k < BLOCK; ++k)
                        r = one_op(b, s);
                for (unsigned k = 0; r == 0 && k < BLOCK; ++k)
                        r = one_echo(b, s);
        }
        return r;
}

/* The first round warms up. */
static int one_round(struct rpc *b, bool warm)
{
        int r = 0;

        for (unsigned p = 0; r == 0 && p < N_CORES; ++p) {
                if (b->fixture.cores[p] < 0)
                        continue;
                r = one_placement(b, p);
                for (unsigned w = 0; w < N_WHATS; ++w)
                        (warm ? series_drop_round : series_close_round)(&b->series[p][w]);
        }
        return r ? bench_fail("a request", -EIO) : 0;
}

static void report(struct rpc *b, struct bench_run *run)
{
        static const char *const names[N_CORES][2] = {
                {"lease", "free"}, {"lease-two-cores", "free-two-cores"}};

        for (unsigned p = 0; p < N_CORES; ++p)
                for (unsigned w = LEASE; w <= FREE; ++w) {
                        struct bench_result *r;

                        if (b->fixture.cores[p] < 0)
                                continue;
                        r = bench_add(run, "us", "%s", names[p][w]);
                        series_report(r, &b->series[p][w], &b->series[p][w + LEASE_ECHO], "echo");
                        r->max_ratio = MAX_RATIO;
                }
}

static int setup(struct rpc *b, unsigned rounds)
{
        struct echo_sizes sizes[2];
        int r = 0;

        for (unsigned p = 0; r == 0 && p < N_CORES; ++p)
                for (unsigned w = 0; r == 0 && w < N_WHATS; ++w)
                        r = series_init(&b->series[p][w], b->n_ops, rounds);
        if (r < 0)
                return r;
        echo_frame_sizes(sizes);
        r = echo_open(&b->echo, sizes);
        if (r < 0)
                return bench_fail("echo", r);
        r = fixture_open(&b->fixture, 4096, 65536);
        return r ? r : fixture_connect(&b->fixture, KVL_CONNECT_NO_SHM, &b->client);
}

static void teardown(struct rpc *b)
{
        fixture_disconnect(&b->client);
        fixture_close(&b->fixture);
        echo_close(&b->echo);
        for (unsigned p = 0; p < N_CORES; ++p)
                for (unsigned w = 0; w < N_WHATS; ++w)
                        series_deinit(&b->series[p][w]);
}

static int run_rpc(struct bench_run *run)
{
        struct rpc b = {.fixture = FIXTURE_INIT, .echo = {.fd = -1}};
        int r;

        b.n_ops = run->quick ? 100 : 5000;
        r = setup(&b, run->rounds);
        for (unsigned i = 0; r == 0 && i <= run->rounds; ++i)
                r = one_round(&b, i == 0);
        if (r == 0)
                report(&b, run);
        teardown(&b);
        return r < 0 ? r : rpc_run_hits(run);
}

const struct bench bench_rpc = {"rpc",
        "lease and free of one page, and a hit of 128, on the socket, against an echo", 15,
        run_rpc};
