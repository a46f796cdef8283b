/*
 * Pages of a size that models have (1,576,960 bytes, 2,048 times 770). Processes share them, also
 * over a restart of the daemon, and they are demoted meanwhile. On a GPU their distance is greater
 * than their size; on the host it is if the worker asks for it.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/macros.h"
#include "tests/integration/harness.h"

#define PAGE_BYTES 1576960
#define APART      1638400 /* 25 times 64 KiB */
#define CHAIN      5       /* pages */

static const struct private_tenant tenants[] = {{"a", NULL}, {"b", NULL}, {NULL, NULL}};
#define DEVICE_LINES "memory = 160MiB\nextent = 64MiB\n"
static const struct private_options plain = {.tenants = tenants, .device_lines = DEVICE_LINES};
static const struct private_options kept = {
        .tenants = tenants, .device_lines = DEVICE_LINES, .is_kept = true};
static const struct private_options tiers = {.tenants = tenants,
        .device_lines = "memory = 64MiB\nextent = 64MiB\nhost_memory = 256MiB\n",
        .is_kept = true};

/* Starts a worker with its namespace open; stride 0: kvleased chooses. */
static struct worker *start_worker(struct harness *h, const char *tenant, unsigned stride)
{
        struct worker *w = worker_spawn(h);
        char socket[PRIVATE_PATH_MAX];

        worker_tell(w, "connect %s", private_daemon_socket(&h->daemon, tenant, socket));
        worker_tell(w, "open ns 1 - %u - - %u", PAGE_BYTES, stride);
        return w;
}

static unsigned stride_of(struct worker *w)
{
        const char *at = strstr(worker_tell(w, "info"), "stride=");

        assert_non_null(at);
        return (unsigned)strtoul(at + strlen("stride="), NULL, 10);
}

/* Found by another worker than the one that published it; how many of a chain are. */
static unsigned read_chain(struct worker *w, unsigned chain)
{
        uint32_t pages[CHAIN];
        unsigned n = 0;

        if (worker_ask(w, "lookup %u:0-%u", chain, CHAIN - 1) == 0)
                n = worker_numbers(w, pages, CHAIN);
        for (unsigned i = 0; i < n; ++i) {
                worker_tell(w, "verify %u %u", pages[i], 1000 * chain + i);
                worker_tell(w, "release %u", pages[i]);
        }
        return n;
}

static void publish(struct worker *w, unsigned chain)
{
        uint32_t pages[CHAIN];

        worker_publish_chain(w, chain, CHAIN, pages);
        for (unsigned i = 0; i < CHAIN; ++i)
                worker_tell(w, "release %u", pages[i]);
}

/* Bytes that a tenant writes between pages are never read by another tenant. */
HARNESS_TEST(test_nothing_left, &plain)
{
        struct worker *a, *b;
        uint32_t pages[CHAIN];

        if (private_on_gpu())
                skip(); /* a worker reads pages there, and nothing else */
        a = start_worker(h, "a", APART);
        worker_publish_chain(a, 1, CHAIN, pages);
        for (unsigned i = 0; i < CHAIN; ++i)
                worker_tell(a, "poke %u 119 %u", pages[i], PAGE_BYTES + 1000);
        worker_stop(a);
        ctl(h, "purge a --remove");
        b = start_worker(h, "b", APART);
        worker_tell(b, "lease %u", CHAIN);
        assert_int_equal(worker_numbers(b, pages, CHAIN), CHAIN);
        for (unsigned i = 0; i < CHAIN; ++i) {
                worker_tell(b, "zeros %u", pages[i]);
                assert_int_equal(
                        strtol(worker_tell(b, "peek %u %u", pages[i], PAGE_BYTES + 1000), NULL, 10),
                        0);
        }
}

static void kill_daemon(struct harness *h)
{
        assert_int_equal(kill((pid_t)ctl_status(h, "pid"), SIGKILL), 0);
        assert_int_equal(private_daemon_await(&h->daemon), 0);
}

static void survives(struct harness *h, unsigned asked)
{
        struct worker *one, *two, *three;
        unsigned stride;

        if (!private_is_contiguous()) {
                print_message("skipped: this memory doesn't outlive the daemon\n");
                skip();
        }
        one = start_worker(h, "a", asked);
        two = start_worker(h, "a", 0);
        stride = stride_of(one);
        publish(one, 1);
        kill_daemon(h);
        ctl_wait_status(h, "n_clients", 2);
        assert_int_equal(read_chain(two, 1), CHAIN);
        publish(two, 2);
        three = start_worker(h, "a", 0);
        assert_int_equal(stride_of(three), stride);
        assert_int_equal(read_chain(one, 2), CHAIN);
        assert_int_equal(read_chain(three, 1), CHAIN);
        assert_int_equal(read_chain(three, 2), CHAIN);
        worker_stop(one);
        worker_stop(two);
        worker_stop(three);
}

HARNESS_TEST(test_survives_apart, &kept)
{
        survives(h, APART);
}

/* More texts than the device holds; found pages have their bytes, in any tier. The next text waits
 * until the last one's pages were demoted: others would be evicted for it. */
HARNESS_TEST(test_below, &tiers)
{
        struct worker *one = start_worker(h, "a", APART), *two = start_worker(h, "a", 0);
        unsigned n = 0;

        for (unsigned chain = 0; chain < 16; ++chain) {
                publish(one, chain);
                ctl_wait_status(h, "pages_granted", 0);
                ctl_wait_still(h, STILL_BRIEFLY);
        }
        if (private_is_contiguous()) {
                kill_daemon(h);
                ctl_wait_status(h, "n_clients", 2);
        }
        for (unsigned chain = 0; chain < 16; ++chain)
                n += read_chain(two, chain);
        if (private_on_gpu())
                assert_true(n > 0);
        else
                assert_int_equal(n, 16 * CHAIN); /* the device holds 40 */
}
