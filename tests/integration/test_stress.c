/*
 * Readers against the evictor: a cache more than ten times too small, writers that never stop, and
 * processes that compare every byte of every page while they hold it. 10^7 pins (10^6 in the short
 * run); over the socket, where each costs a round trip, 50,000 a reader.
 */
#include <stdio.h>

#include "tests/integration/harness.h"
#include "tests/integration/pattern.h"

#define N_READERS 3
#define N_WRITERS 2
#define N_CHAINS  640 /* of 12 pages: 7680, for a cache of 512 */

#if defined(__SANITIZE_ADDRESS__)
#define SLOWNESS 10 /* of a sanitizer that looks at every byte that is compared */
#else
#define SLOWNESS 1
#endif

static const struct private_tenant one[] = {{"a", "limit = 2MiB\n"}, {NULL, NULL}};
static const struct private_options small_cache = {.tenants = one};

struct crowd {
        struct harness *h;
        uint64_t random;
        struct worker *writers[N_WRITERS], *readers[N_READERS];
};

static struct worker_job job(struct crowd *c, uint64_t count)
{
        return (struct worker_job){.seed = pattern_next(&c->random),
                .count = count,
                .n_planes = 1,
                .n_chains = N_CHAINS};
}

static struct worker *start(struct crowd *c, const char *what, uint64_t count)
{
        return worker_start_job(c->h, what, "a", job(c, count));
}

static void start_writers(struct crowd *c, struct harness *h)
{
        *c = (struct crowd){.h = h, .random = harness_seed()};
        for (unsigned i = 0; i < N_WRITERS; ++i)
                c->writers[i] = start(c, "load", 0);
}

static void start_all(struct crowd *c, struct harness *h, uint64_t n_pins)
{
        start_writers(c, h);
        for (unsigned i = 0; i < N_READERS; ++i)
                c->readers[i] = start(c, "read", n_pins);
}

/* Writers check found pages, too: one that saw a wrong byte has exited. */
static void kill_all(struct worker **workers, unsigned n)
{
        for (unsigned i = 0; i < n; ++i) {
                assert_true(worker_is_running(workers[i]));
                worker_kill(workers[i]);
        }
}

/* The whole cache was evicted at least once. On a busy machine that takes any number of turns, so
 * readers continue until then. Without evictions the test times out. */
static bool evicted(struct harness *h)
{
        uint64_t n = ctl_status(h, "evictions");

        print_message("%llu evictions, %llu pages published\n", (unsigned long long)n,
                (unsigned long long)ctl_status(h, "publishes"));
        return n > 512;
}

static uint64_t pins_of_each(void)
{
        if (!harness_shares())
                return private_full() ? 500000 : 50000 / SLOWNESS;
        /* A driver call for each page that is compared, and the same protocol. */
        if (private_on_gpu())
                return (private_full() ? 1000000 : 100000 / SLOWNESS) / N_READERS + 1;
        return (private_full() ? 10000000 : 1000000 / SLOWNESS) / N_READERS + 1;
}

HARNESS_TEST(test_readers, &small_cache)
{
        struct crowd c;

        start_all(&c, h, pins_of_each());
        for (unsigned i = 0; i < N_READERS; ++i)
                worker_wait(c.readers[i]);
        assert_true(evicted(h));
        kill_all(c.writers, N_WRITERS);
        harness_assert_settled(h);
}

/* Readers die with pins, while they take more. Other clients aren't affected, and nothing leaks. */
HARNESS_TEST(test_killed_readers, &small_cache)
{
        unsigned n_kills = private_full() ? 400 : private_short() ? 10 : 30;
        struct crowd c;

        start_all(&c, h, 0);
        for (unsigned i = 0; i < n_kills; ++i) {
                unsigned victim = (unsigned)(pattern_next(&c.random) % N_READERS);

                sleep_msec((unsigned)(pattern_next(&c.random) % 60));
                assert_true(worker_is_running(c.readers[victim]));
                worker_kill(c.readers[victim]);
                if (i % 10 == 0)
                        ctl(h, "check");
                c.readers[victim] = start(&c, "read", 0);
        }
        while (!evicted(h))
                sleep_msec(100);
        kill_all(c.readers, N_READERS);
        kill_all(c.writers, N_WRITERS);
        harness_assert_settled(h);
}

/* A reader that loses the processor each time between pin and look. This usually takes nanoseconds,
 * so the evictor hardly ever hits it. */
HARNESS_TEST(test_slow_reader, &small_cache)
{
        static const char *const env[] = {
                "KVL_FAULT_POINT=lookup-pinned", "KVL_FAULT_PASS=yield", NULL};
        uint64_t n_pins = private_full() ? 50000 : private_short() ? 3000 : 5000 / SLOWNESS;
        struct worker *slow;
        struct crowd c;

        if (!harness_shares())
                skip();
        start_writers(&c, h);
        do {
                slow = worker_start_job_as(
                        h, program_worker_fault(), env, "read", "a", job(&c, n_pins));
                worker_wait(slow);
        } while (!evicted(h));
        kill_all(c.writers, N_WRITERS);
        harness_assert_settled(h);
}
