/* SIGKILL at random moments, 200 times (20 in the short run): nothing leaks, nothing is wrong. */
#include <stdio.h>

#include "tests/integration/harness.h"
#include "tests/integration/pattern.h"

#define N_WORKERS 6

static const struct private_tenant two[] = {
        {"a", "limit = 4MiB\n"}, {"b", "limit = 16MiB\n"}, {NULL, NULL}};
static const struct private_options two_tenants = {.tenants = two};

/* Tenant a's namespace has one plane, b's four. */
static struct worker *start(struct harness *h, unsigned i, uint64_t *random)
{
        return worker_start_load(h, i % 2 ? "a" : "b", pattern_next(random), 0, i % 2 ? 1 : 4);
}

static void kill_and_replace(
        struct harness *h, struct worker **workers, unsigned n, uint64_t *random)
{
        for (unsigned i = 0; i < n; ++i) {
                unsigned victim = (unsigned)(pattern_next(random) % N_WORKERS);

                /* Under valgrind a worker needs longer to begin. */
                sleep_msec(
                        (unsigned)(pattern_next(random) % (private_under_valgrind() ? 800 : 40)));
                worker_kill(workers[victim]);
                if (i % 10 == 0)
                        ctl(h, "check");
                workers[victim] = start(h, victim, random);
        }
}

HARNESS_TEST(test_kill, &two_tenants)
{
        unsigned n_kills = private_full() ? 200 : private_short() ? 10 : 20;
        struct worker *workers[N_WORKERS], *probe;
        uint64_t random = harness_seed();

        for (unsigned i = 0; i < N_WORKERS; ++i)
                workers[i] = start(h, i, &random);
        sleep_msec(private_under_valgrind() ? 3000 : 100);
        kill_and_replace(h, workers, n_kills, &random);
        while (ctl_status(h, "publishes") == 0) /* a busy host takes its time */
                sleep_msec(50);
        for (unsigned i = 0; i < N_WORKERS; ++i)
                worker_kill(workers[i]);
        harness_assert_settled(h);
        /* Pages of the dead workers are right, and are found. */
        probe = worker_start_load(h, "a", pattern_next(&random), 200, 1);
        worker_wait(probe);
        probe = worker_start_load(h, "b", pattern_next(&random), 200, 4);
        worker_wait(probe);
}

/* A worker is killed with mappings and pages: all is freed soon. */
HARNESS_TEST(test_reclaim, &two_tenants)
{
        struct worker *w = worker_start(h, "b", "ns", 1);
        uint32_t pages[8];

        worker_publish_chain(w, 1, 8, pages);
        worker_tell(w, "lease 1000");
        worker_kill(w);
        ctl_wait_status(h, "pages_granted", 0);
        assert_int_equal(ctl_status(h, "pages_sealed"), 8);
        assert_int_equal(ctl_status(h, "pages_pinned"), 0);
}
