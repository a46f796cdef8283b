/*
 * Guarantees under overload: reservations, fair shares, lending, limits changed under load, and
 * workers that die all the while. Priorities: test_waits.c. Figures are kvlease-bench's.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/macros.h"
#include "tests/integration/harness.h"
#include "tests/integration/pattern.h"

#define MIB       (UINT64_C(1) << 20)
#define SET       (2 * MIB)
#define SET_PAGES 512u  /* of 4 KiB */
#define WAIT_MSEC 60000 /* for a state that is sure to come; not tuned */
#define MANY_CHAINS \
        2000 /* texts of a job: 6.5 pages each on the average, more than any pool here */

/* ---- waiting for a state -------------------------------------------------------------------- */

static uint64_t deadline(void)
{
        return now_nsec() + WAIT_MSEC * UINT64_C(1000000);
}

static void wait_tenant(
        struct harness *h, const char *tenant, const char *name, uint64_t min, uint64_t max)
{
        uint64_t end = deadline(), is;

        while ((is = ctl_tenant(h, tenant, name)) < min || is > max) {
                if (now_nsec() > end)
                        fail_msg("%s of %s stays %llu, %llu to %llu were expected", name, tenant,
                                (unsigned long long)is, (unsigned long long)min,
                                (unsigned long long)max);
                sleep_msec(10);
        }
}

static uint64_t region_number(struct harness *h, const char *tenant, const char *name)
{
        json_t *reply = ctl_json(h, "regions"), *row;
        uint64_t value = UINT64_MAX;
        size_t i;

        json_array_foreach(ctl_list(reply, "regions"), i, row)
        {
                json_t *is = json_object_get(row, "tenant");

                if (is && json_is_string(is) && strcmp(json_string_value(is), tenant) == 0)
                        value = (uint64_t)json_integer_value(json_object_get(row, name));
        }
        json_decref(reply);
        if (value == UINT64_MAX)
                fail_msg("no region of %s", tenant);
        return value;
}

/* ---- workers -------------------------------------------------------------------------------- */

/* Calls safe points, and has more texts than memory. */
static struct worker *serve(struct harness *h, const char *what, const char *tenant, uint64_t seed)
{
        return worker_start_job(h, what, tenant,
                (struct worker_job){.seed = seed, .n_planes = 1, .n_chains = MANY_CHAINS});
}

/* Kills a worker, which would have exited by itself after an error. */
static void end_job(struct worker *w)
{
        assert_true(worker_is_running(w));
        worker_kill(w);
}

/* Leases whole sets until there are no more; their number. */
static unsigned fill(struct worker *w)
{
        unsigned n = 0;

        while (worker_ask(w, "lease %u", SET_PAGES) == 0)
                n++;
        assert_true(w->code == KVL_FULL || w->code == KVL_QUOTA || w->code == KVL_RESERVATION);
        return n;
}

/* ---- limits and tenants changed under load -------------------------------------------------- */

static const struct private_tenant two[] = {{"a", NULL}, {"b", NULL}, {NULL, NULL}};
static const struct private_options roomy = {.tenants = two,
        .daemon_lines = "revoke_timeout = 60s\n",
        .device_lines = "memory = 64MiB\nextent = 2MiB\n"};

/* Cached pages are evicted, and mapped ones are given back at safe points. No client sees a wrong
 * byte. */
static void test_limit_shrunk(void **state)
{
        struct harness *h = *state;
        uint64_t random = harness_seed();
        struct worker *workers[3];
        unsigned n_killed = 0;

        for (unsigned i = 0; i < ARRAY_SIZE(workers); ++i)
                workers[i] = serve(h, "serve", "a", pattern_next(&random));
        wait_tenant(h, "a", "charged_bytes", 24 * MIB, 64 * MIB);
        for (unsigned limit = 16; limit >= 4; limit /= 2) {
                char words[64];

                snprintf(words, sizeof(words), "tenants set a limit=%uMiB", limit);
                ctl(h, words);
                assert_int_equal(ctl_tenant(h, "a", "limit_bytes"), limit * MIB);
                wait_tenant(h, "a", "charged_bytes", 0, limit * MIB);
                ctl(h, "check");
                /* One dies, and another one takes its place. */
                worker_kill(workers[n_killed % ARRAY_SIZE(workers)]);
                workers[n_killed++ % ARRAY_SIZE(workers)] =
                        serve(h, "serve", "a", pattern_next(&random));
        }
        ctl(h, "tenants set a limit=32MiB");
        wait_tenant(h, "a", "charged_bytes", 16 * MIB, 32 * MIB);
        for (unsigned i = 0; i < ARRAY_SIZE(workers); ++i)
                end_job(workers[i]);
}

/* ---- reservations --------------------------------------------------------------------------- */

static const struct private_tenant one_pinned[] = {
        {"a", "class = pinned\nreserve = 32MiB\n"}, {"b", NULL}, {"c", NULL}, {NULL, NULL}};
static const struct private_options reserved = {.tenants = one_pinned,
        .daemon_lines = "revoke_timeout = 60s\n",
        .device_lines = "memory = 64MiB\nextent = 2MiB\n"};

/* All that is reserved is granted at once, though other tenants hold the rest. */
static void test_pinned_at_once(void **state)
{
        struct harness *h = *state;
        struct worker *b = worker_start(h, "b", "ns", 1), *c = worker_start(h, "c", "ns", 1), *a;
        unsigned n;

        n = fill(b);
        n += fill(c);
        assert_int_equal(n, 16); /* sets: the dynamic pool */
        a = worker_start(h, "a", "ns", 1);
        for (unsigned i = 0; i < 4; ++i)
                worker_tell(a, "lease %u", 4 * SET_PAGES);
        assert_int_equal(ctl_tenant(h, "a", "charged_bytes"), 32 * MIB);
        assert_int_equal(ctl_tenant(h, "a", "refusals"), 0);
        if (!private_on_gpu()) /* there memory is made first, which is a wait, too */
                assert_int_equal(ctl_tenant(h, "a", "waits"), 0);
        assert_true(worker_ask(a, "lease %u", SET_PAGES) > 0); /* beyond it, it is one of many */
        worker_stop(a);
        worker_stop(b);
        worker_stop(c);
}

/* Other tenants work meanwhile: every lease of a within its reservation is granted. */
static void test_pinned_beside_load(void **state)
{
        struct harness *h = *state;
        uint64_t random = harness_seed();
        struct worker *others[4], *a = worker_start(h, "a", "ns", 1);
        unsigned n_rounds = private_full() ? 400 : private_short() ? 10 : 50;
        uint32_t pages[256];

        for (unsigned i = 0; i < ARRAY_SIZE(others); ++i)
                others[i] = serve(h, "serve", i % 2 ? "b" : "c", pattern_next(&random));
        wait_tenant(h, "b", "charged_bytes", 2 * SET, 64 * MIB);
        for (unsigned i = 0; i < n_rounds; ++i) {
                worker_publish_chain(a, i, 1 + (unsigned)(pattern_next(&random) % 64), pages);
                worker_tell(a, "release %u", pages[0]);
                worker_tell(a, "lease %u", SET_PAGES);
                worker_tell(a, "close");
                worker_tell(a, "open ns 1");
        }
        assert_int_equal(ctl_tenant(h, "a", "refusals"), 0);
        if (!private_on_gpu())
                assert_int_equal(ctl_tenant(h, "a", "waits"), 0);
        for (unsigned i = 0; i < ARRAY_SIZE(others); ++i)
                end_job(others[i]);
        worker_stop(a);
}

/* ---- fair shares ---------------------------------------------------------------------------- */

static const struct private_tenant weighted[] = {
        {"a", "weight = 100\n"}, {"b", "weight = 300\n"}, {NULL, NULL}};
static const struct private_options shared = {.tenants = weighted,
        .daemon_lines = "revoke_timeout = 60s\n",
        .device_lines = "memory = 32MiB\nextent = 2MiB\n"};

/* One tenant has all memory when the other arrives. */
static void test_weights(void **state)
{
        struct harness *h = *state;
        uint64_t random = harness_seed(), end = deadline(), a, b;
        struct worker *workers[4];

        for (unsigned i = 0; i < 2; ++i)
                workers[i] = serve(h, "serve", "a", pattern_next(&random));
        wait_tenant(h, "a", "charged_bytes", 32 * MIB, 32 * MIB);
        for (unsigned i = 2; i < 4; ++i)
                workers[i] = serve(h, "serve", "b", pattern_next(&random));
        do {
                a = ctl_tenant(h, "a", "charged_bytes");
                b = ctl_tenant(h, "b", "charged_bytes");
                if (now_nsec() > end)
                        fail_msg("a has %llu, b %llu bytes", (unsigned long long)a,
                                (unsigned long long)b);
                sleep_msec(10);
        } while (a > 8 * MIB + SET || b < 24 * MIB - SET || a < 8 * MIB - SET);
        for (unsigned i = 0; i < ARRAY_SIZE(workers); ++i)
                end_job(workers[i]);
}

/* ---- lending -------------------------------------------------------------------------------- */

static const struct private_tenant lender[] = {
        {"a", "class = pinned\nreserve = 16MiB\nlend_idle_reserve = on\n"}, {"b", NULL},
        {NULL, NULL}};
static const struct private_options lending = {.tenants = lender,
        .daemon_lines = "revoke_timeout = 60s\n",
        .device_lines = "memory = 32MiB\nextent = 2MiB\n"};

static void test_lending(void **state)
{
        struct harness *h = *state;
        uint64_t random = harness_seed();
        struct worker *workers[2], *a;

        for (unsigned i = 0; i < ARRAY_SIZE(workers); ++i)
                workers[i] = serve(h, "serve", "b", pattern_next(&random));
        wait_tenant(h, "b", "charged_bytes", 32 * MIB, 32 * MIB);
        assert_int_equal(region_number(h, "a", "lent_bytes"), 16 * MIB);
        assert_int_equal(region_number(h, "a", "taken_back_msec"), 0);
        a = worker_start(h, "a", "ns", 1);
        worker_tell(a, "lease %u", 8 * SET_PAGES);
        assert_int_equal(ctl_tenant(h, "a", "charged_bytes"), 16 * MIB);
        assert_int_equal(ctl_tenant(h, "a", "refusals"), 0);
        assert_true(ctl_tenant(h, "b", "charged_bytes") <= 16 * MIB);
        assert_int_equal(region_number(h, "a", "lent_bytes"), 0);
        assert_in_range(region_number(h, "a", "taken_back_msec"), 1, WAIT_MSEC);
        for (unsigned i = 0; i < ARRAY_SIZE(workers); ++i)
                end_job(workers[i]);
        worker_stop(a);
}

/* Memory isn't lent to a tenant from which it couldn't be recalled. */
static void test_not_lent(void **state)
{
        struct harness *h = *state;
        struct worker *b = serve(h, "load", "b", harness_seed()), *a;

        /* The tenant has evicted pages of its own, so it was owed no more. */
        wait_tenant(h, "b", "evictions", 1, UINT64_MAX);
        assert_int_equal(ctl_tenant(h, "b", "charged_bytes"), 16 * MIB);
        a = worker_start(h, "a", "ns", 1);
        worker_tell(a, "lease %u", 8 * SET_PAGES);
        assert_int_equal(ctl_tenant(h, "a", "refusals"), 0);
        assert_int_equal(region_number(h, "a", "taken_back_msec"), 0);
        end_job(b);
        worker_stop(a);
}

/* ---- many ----------------------------------------------------------------------------------- */

#define MAX_TENANTS 100
#define N_EACH      4

/* Every fifth is pinned, every third queues; weights and priorities are all different. */
static const struct private_options *crowd(unsigned n_tenants)
{
        static char names[MAX_TENANTS][16], lines[MAX_TENANTS][160];
        static struct private_tenant tenants[MAX_TENANTS + 1];
        static struct private_options o = {.tenants = tenants,
                .daemon_lines = "revoke_timeout = 60s\n",
                .device_lines = "memory = 128MiB\nextent = 2MiB\n"};

        for (unsigned i = 0; i < n_tenants; ++i) {
                snprintf(names[i], sizeof(names[i]), "t%u", i);
                snprintf(lines[i], sizeof(lines[i]),
                        "%sweight = %u\npriority = %u\nwhen_full = %s\nmax_wait = 200ms\n",
                        i % 10 == 0  ? "class = pinned\nreserve = 4MiB\nlend_idle_reserve = on\n"
                        : i % 5 == 0 ? "class = pinned\nreserve = 2MiB\n"
                                     : "",
                        100 + i, i % 101, i % 3 ? "reject" : "queue");
                tenants[i] = (struct private_tenant){names[i], lines[i]};
        }
        tenants[n_tenants] = (struct private_tenant){NULL, NULL};
        return &o;
}

static unsigned n_crowd(void)
{
        return private_full() ? MAX_TENANTS : private_short() ? 8 : 20;
}

static struct worker *start_one(struct harness *h, unsigned tenant, uint64_t *random)
{
        static const char *const kinds[] = {"serve", "serve", "serve", "load"};
        uint64_t seed = pattern_next(random);
        char name[16];

        snprintf(name, sizeof(name), "t%u", tenant);
        return serve(h, kinds[seed % ARRAY_SIZE(kinds)], name, seed);
}

static void test_crowd(void **state)
{
        struct harness *h = *state;
        static struct worker *workers[MAX_TENANTS * N_EACH];
        unsigned n = n_crowd() * N_EACH, n_kills = private_full() ? 2 * n : n;
        uint64_t random = harness_seed();

        for (unsigned i = 0; i < n; ++i)
                workers[i] = start_one(h, i / N_EACH, &random);
        /* Until some got somewhere, too: on a GPU their start takes 0.4 s. */
        for (unsigned i = 0; i < n_kills || ctl_status(h, "publishes") == 0; ++i) {
                unsigned k = (unsigned)(pattern_next(&random) % n);

                end_job(workers[k]);
                workers[k] = start_one(h, k / N_EACH, &random);
                if (i % 16 == 0)
                        ctl(h, "check");
                sleep_msec(i < n_kills ? 5 : 100);
                assert_true(i < n_kills + 600);
        }
        ctl(h, "check");
        for (unsigned i = 0; i < n; ++i)
                end_job(workers[i]);
        harness_assert_settled(h);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                harness_test(test_limit_shrunk, (void *)&roomy),
                harness_test(test_pinned_at_once, (void *)&reserved),
                harness_test(test_pinned_beside_load, (void *)&reserved),
                harness_test(test_weights, (void *)&shared),
                harness_test(test_lending, (void *)&lending),
                harness_test(test_not_lent, (void *)&lending),
                harness_test(test_crowd, (void *)crowd(n_crowd())),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
