/* Leases that wait: the order in which they are served, and how a wait ends. */
#include <stdio.h>
#include <stdlib.h>

#include "base/macros.h"
#include "tests/integration/harness.h"

#define SET_PAGES    512   /* 2 MiB in pages of 4 KiB */
#define PATIENCE     60000 /* milliseconds; not tuned */
#define QUEUES       "when_full = queue\nmax_wait = 10min\n"
#define TEST_LATE_OK 5000000 /* microseconds; not tuned */

static const struct private_tenant some[] = {{"low", "priority = 10\n" QUEUES},
        {"high", "priority = 90\n" QUEUES}, {"small", "limit = 2MiB\n" QUEUES},
        {"modest", "when_full = degrade\n"}, {"hasty", "limit = 64MiB\n"}, {NULL, NULL}};
/* Two sets. */
static const struct private_options two_sets = {
        .tenants = some, .device_lines = "memory = 4MiB\nextent = 2MiB\n"};

struct answer {
        unsigned n_pages, reason;
        unsigned long long waited_usec;
};

static struct answer read_answer(struct worker *w)
{
        struct answer a;

        if (sscanf(w->rest, "%u %u %llu", &a.n_pages, &a.reason, &a.waited_usec) != 3)
                fail_msg("'%s' is no lease's answer", w->rest);
        return a;
}

static void expect_answer(struct worker *w, int code, unsigned n_pages, unsigned reason)
{
        struct answer a;

        assert_true(worker_answers(w, PATIENCE));
        a = read_answer(w);
        assert_int_equal(w->code, code);
        assert_int_equal(a.n_pages, n_pages);
        assert_int_equal(a.reason, reason);
}

/* A worker of the tenant that holds a whole set. */
static struct worker *hold_set(struct harness *h, const char *tenant, const char *ns)
{
        struct worker *w = worker_start(h, tenant, ns, 1);

        worker_tell(w, "lease %u", SET_PAGES);
        return w;
}

/* Leases of a set each, of tenants that wait, in order; all of them wait after. */
static void start_waiting(struct harness *h, struct worker **ret, const char *const *tenants)
{
        for (unsigned i = 0; tenants[i]; ++i) {
                ret[i] = worker_start(h, tenants[i], "mine", 1);
                worker_say(ret[i], "lease-with %u", SET_PAGES);
                ctl_wait_status(h, "n_waiting", i + 1);
        }
}

/* Priority decides, not the order of requests. A client that is killed while it waits is passed
 * over. */
HARNESS_TEST(test_order, &two_sets)
{
        static const char *const tenants[] = {"low", "high", "high", NULL};
        struct worker *first = hold_set(h, "hasty", "1"), *second = hold_set(h, "hasty", "2");
        struct worker *w[3];

        start_waiting(h, w, tenants);
        worker_kill(first);
        expect_answer(w[1], 0, SET_PAGES, KVL_REASON_POOL_FULL);
        assert_true(read_answer(w[1]).waited_usec > 0);
        assert_int_equal(ctl_status(h, "n_waiting"), 2);
        worker_kill(w[2]);
        ctl_wait_status(h, "n_waiting", 1);
        worker_kill(second);
        expect_answer(w[0], 0, SET_PAGES, KVL_REASON_POOL_FULL);
        assert_int_equal(ctl_tenant(h, "high", "waits"), 2);
        assert_int_equal(ctl_tenant(h, "high", "refusals"), 0);
        worker_stop(w[0]);
        worker_stop(w[1]);
}

/* A waiting lease doesn't block frees and lookups of the same connection. In the end its own free
 * is what the lease waits for. */
HARNESS_TEST(test_own_free, &two_sets)
{
        struct worker *w = worker_start(h, "small", "ns", 1);
        uint32_t pages[SET_PAGES], chain[2];

        worker_publish_chain(w, 1, 2, chain);
        worker_tell(w, "lease %u", SET_PAGES - 2);
        worker_numbers(w, pages, SET_PAGES - 2);
        worker_tell(w, "lease-start 3");
        ctl_wait_status(h, "n_waiting", 1);
        worker_tell(w, "lookup 1:0-1");
        worker_tell(w, "release %u %u", chain[0], chain[1]);
        worker_tell(w, "free %u %u", pages[5], pages[6]);
        assert_int_equal(ctl_status(h, "n_waiting"), 1);
        worker_tell(w, "free %u", pages[7]);
        worker_tell(w, "lease-wait");
        assert_int_equal(read_answer(w).n_pages, 3);
        assert_int_equal(read_answer(w).reason, KVL_REASON_QUOTA);
        assert_int_equal(ctl_status(h, "n_waiting"), 0);
}

HARNESS_TEST(test_how_long, &two_sets)
{
        struct worker *holders[] = {hold_set(h, "hasty", "1"), hold_set(h, "hasty", "2")};
        struct worker *w = worker_start(h, "low", "ns", 1), *hasty;
        struct answer a;

        assert_int_equal(worker_ask(w, "lease-with 1 wait=100"), KVL_TIMEOUT);
        a = read_answer(w);
        assert_int_equal(a.reason, KVL_REASON_DEADLINE);
        assert_in_range(a.waited_usec, 100000, 100000 + TEST_LATE_OK);
        assert_int_equal(worker_ask(w, "lease-with 1 wait=-1"), KVL_FULL);
        a = read_answer(w);
        assert_int_equal(a.reason, KVL_REASON_POOL_FULL);
        assert_int_equal(a.waited_usec, 0);
        ctl(h, "tenants set low max_wait=50ms");
        assert_int_equal(worker_ask(w, "lease 1"), KVL_TIMEOUT);
        hasty = worker_start(h, "hasty", "3", 1);
        assert_in_range(worker_ask(hasty, "lease-with 1"), KVL_QUOTA, KVL_FULL);
        assert_int_equal(read_answer(hasty).waited_usec, 0);
        assert_int_equal(ctl_tenant(h, "low", "refusals"), 3);
        worker_stop(hasty);
        worker_stop(w);
        for (unsigned i = 0; i < ARRAY_SIZE(holders); ++i)
                worker_stop(holders[i]);
}

HARNESS_TEST(test_degrade, &two_sets)
{
        struct worker *w = worker_start(h, "modest", "ns", 1);

        hold_set(h, "hasty", "1");
        assert_int_equal(worker_ask(w, "lease-with %u", SET_PAGES + 1), KVL_FULL);
        assert_int_equal(
                worker_ask(w, "lease-with %u min=%u", 2 * SET_PAGES, SET_PAGES + 1), KVL_FULL);
        assert_int_equal(worker_ask(w, "lease-with %u min=1", 2 * SET_PAGES), 0);
        assert_int_equal(read_answer(w).n_pages, SET_PAGES);
        assert_int_equal(read_answer(w).reason, KVL_REASON_DEGRADED);
        assert_int_equal(ctl_tenant(h, "modest", "degraded"), 1);
}

HARNESS_TEST(test_drain, &two_sets)
{
        struct proc_output out;
        static const char *const tenants[] = {"low", "high", NULL};
        struct worker *holders[] = {hold_set(h, "hasty", "1"), hold_set(h, "hasty", "2")};
        struct worker *w[2];

        start_waiting(h, w, tenants);
        /* Clients that hold pages stay connected. */
        assert_int_equal(ctl_run(h, "drain --timeout 100ms", &out), 4);
        proc_output_free(&out);
        expect_answer(w[0], KVL_DRAINING, 0, KVL_REASON_DRAINING);
        expect_answer(w[1], KVL_DRAINING, 0, KVL_REASON_DRAINING);
        ctl(h, "drain --off");
        for (unsigned i = 0; i < ARRAY_SIZE(holders); ++i) {
                worker_stop(w[i]);
                worker_stop(holders[i]);
        }
}

/* The daemon stops while a client waits: the client gets an answer. */
HARNESS_TEST(test_stop, &two_sets)
{
        static const char *const tenants[] = {"low", NULL};
        struct worker *holders[] = {hold_set(h, "hasty", "1"), hold_set(h, "hasty", "2")};
        struct worker *w[1];

        start_waiting(h, w, tenants);
        harness_restart(h);
        for (unsigned i = 0; i < ARRAY_SIZE(holders); ++i)
                worker_kill(holders[i]);
        expect_answer(w[0], KVL_DRAINING, 0, KVL_REASON_DRAINING);
        worker_kill(w[0]);
}

/* The first page of so many with consecutive numbers. */
static unsigned first_of_run(struct worker *w, unsigned n)
{
        unsigned first, page;
        int at, len;

        if (sscanf(w->rest, "%*u %*u %*u %u%n", &first, &at) != 1)
                fail_msg("'%s' has no pages", w->rest);
        for (unsigned i = 1; i < n; ++i, at += len) {
                assert_int_equal(sscanf(w->rest + at, " %u%n", &page, &len), 1);
                assert_int_equal(page, first + i);
        }
        return first;
}

/* A lease of consecutive pages is granted or refused at once, never queued. */
HARNESS_TEST(test_runs, &two_sets)
{
        struct worker *w = worker_start(h, "small", "ns", 1);
        unsigned first;

        worker_tell(w, "lease 3");
        worker_tell(w, "lease-with 8 run");
        first = first_of_run(w, 8);
        worker_tell(w, "lease %u", SET_PAGES - 11);
        worker_tell(w, "free %u %u %u", first + 1, first + 3, first + 6);
        assert_int_equal(worker_ask(w, "lease-with 2 run"), KVL_FULL);
        assert_int_equal(read_answer(w).reason, KVL_REASON_NO_RUN);
        assert_int_equal(read_answer(w).waited_usec, 0);
        assert_int_equal(ctl_tenant(h, "small", "refused_no_run"), 1);
        worker_tell(w, "free %u", first + 2);
        worker_tell(w, "lease-with 3 run");
        assert_int_equal(first_of_run(w, 3), first + 1);
        worker_tell(w, "free %u %u", first, first + 1);
        worker_tell(w, "lease-with 3 runs");
}
