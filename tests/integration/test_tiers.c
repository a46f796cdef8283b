/* A cache larger than the device: cold pages are in host memory. They come back with their bytes,
 * also after the daemon was killed. */
#include <signal.h>

#include "base/macros.h"
#include "tests/integration/harness.h"

#define CHAINS      12
#define CHAIN_PAGES 256 /* of 4 KiB: three times the device's memory */

static const struct private_tenant one[] = {{"a", NULL}, {NULL, NULL}};
#define DEVICE_LINES "memory = 4MiB\nextent = 2MiB\nhost_memory = 16MiB\n"
static const struct private_options tiers = {.tenants = one, .device_lines = DEVICE_LINES};
static const struct private_options kept = {
        .tenants = one, .device_lines = DEVICE_LINES, .is_kept = true};

static void publish_all(struct worker *w)
{
        uint32_t pages[CHAIN_PAGES];

        for (unsigned chain = 0; chain < CHAINS; ++chain) {
                worker_publish_chain(w, chain, CHAIN_PAGES, pages);
                for (unsigned i = 0; i < CHAIN_PAGES; ++i)
                        worker_tell(w, "release %u", pages[i]);
                ctl_wait_status(w->harness, "pages_granted", 0);
        }
}

/* Pages of a chain that are found, every byte as it was published. */
static uint32_t read_chain(struct worker *w, unsigned chain)
{
        uint32_t pages[CHAIN_PAGES], n = 0;

        if (worker_ask(w, "lookup %u:0-%u", chain, CHAIN_PAGES - 1) == 0)
                n = worker_numbers(w, pages, CHAIN_PAGES);
        for (uint32_t i = 0; i < n; ++i)
                worker_tell(w, "verify %u %u", pages[i], 1000 * chain + i);
        for (uint32_t i = 0; i < n; ++i)
                worker_tell(w, "release %u", pages[i]);
        return n;
}

static uint32_t read_all(struct worker *w)
{
        uint32_t n = 0;

        for (unsigned chain = 0; chain < CHAINS; ++chain)
                n += read_chain(w, chain);
        return n;
}

/* The device alone holds a third. Beside a GPU pages are demoted one by one, more slowly than these
 * small ones are leased: then only the bytes of found pages are checked. */
static void assert_most(uint32_t n)
{
        print_message("%u of %u pages found\n", n, CHAINS * CHAIN_PAGES);
        assert_true(n > (private_on_gpu() ? 0 : CHAINS * CHAIN_PAGES / 2));
}

HARNESS_TEST(test_larger_than_device, &tiers)
{
        struct worker *w = worker_start(h, "a", "ns", 1);
        uint32_t n;

        publish_all(w);
        n = read_all(w);
        assert_most(n);
        worker_stop(w);
        ctl(h, "purge a --remove");
}

HARNESS_TEST(test_survives, &kept)
{
        struct worker *w = worker_start(h, "a", "ns", 1);

        if (!private_is_contiguous()) {
                worker_stop(w);
                print_message("skipped: this memory doesn't outlive the daemon\n");
                skip();
        }
        publish_all(w);
        assert_int_equal(kill((pid_t)ctl_status(h, "pid"), SIGKILL), 0);
        assert_int_equal(private_daemon_await(&h->daemon), 0);
        ctl_wait_status(h, "n_clients", 1);
        assert_most(read_all(w));
        worker_stop(w);
        ctl(h, "purge a --remove");
}
