/* 32 clients at once on 4 tenants: each page found has the bytes of its key. */
#include <stdio.h>

#include "tests/integration/harness.h"
#include "tests/integration/pattern.h"

#define N_CLIENTS 32

/* Limits that make tenants evict: a text set of 40 * 12 pages in 1 to 4 sets of 512, or of 64 in
 * planes. */
static const struct private_tenant four[] = {{"a", "limit = 2MiB\n"}, {"b", "limit = 4MiB\n"},
        {"c", "limit = 16MiB\n"}, {"d", "limit = 64MiB\n"}, {NULL, NULL}};
static const struct private_options four_tenants = {
        .tenants = four, .device_lines = "memory = 128MiB\nextent = 2MiB\n"};

static void run(struct harness *h, unsigned n_planes)
{
        uint64_t seed = harness_seed(), n_ops = private_full()    ? 20000
                                                : private_short() ? 120
                                                                  : 600;
        struct worker *workers[N_CLIENTS];

        if (private_under_valgrind())
                n_ops = 20;
        for (unsigned i = 0; i < N_CLIENTS; ++i)
                workers[i] = worker_start_load(
                        h, four[i % 4].name, pattern_mix(seed + i), n_ops, n_planes);
        for (unsigned i = 0; i < N_CLIENTS; ++i)
                worker_wait(workers[i]);
        assert_true(ctl_status(h, "lookup_hits") > 0);
        assert_true(ctl_status(h, "publishes") > 0);
}

HARNESS_TEST(test_one_plane, &four_tenants)
{
        run(h, 1);
}

HARNESS_TEST(test_planes, &four_tenants)
{
        run(h, 4);
}
