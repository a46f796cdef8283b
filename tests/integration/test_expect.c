/*
 * An engine announces the requests in its queue (kvl_expect()). The texts that they continue
 * outlive a flood that evicts others of the same age. The limits of this: tests/unit/test_expire.c.
 */
#include <stdio.h>
#include <string.h>

#include "tests/integration/harness.h"

#define CHAIN_PAGES 64
#define N_CHAINS    12  /* three quarters of the device: a magazine has at most an eighth */
#define FLOOD       16  /* chains: all of it */
#define FIRST       100 /* chain of the first flood; of the next ones 200, 300 */

static const struct private_tenant both[] = {
        {"a", "evict = lru\n"}, {"b", "evict = pgi\n"}, {NULL, NULL}};
static const struct private_options options = {
        .tenants = both, .device_lines = "memory = 4MiB\nextent = 2MiB\n"};

static void publish(struct worker *w, unsigned chain)
{
        uint32_t pages[CHAIN_PAGES];
        char line[4096] = "release";
        size_t at = strlen(line);

        worker_publish_chain(w, chain, CHAIN_PAGES, pages);
        for (unsigned i = 0; i < CHAIN_PAGES; i++)
                at += (size_t)snprintf(line + at, sizeof(line) - at, " %u", pages[i]);
        worker_tell(w, "%s", line);
}

/* Publishes chains 0.., in that order of age. */
static void publish_texts(struct worker *w)
{
        for (unsigned i = 0; i < N_CHAINS; i++)
                publish(w, i);
}

/* Publishes as many new pages as the device has. */
static void flood(struct worker *w, unsigned first)
{
        for (unsigned i = 0; i < FLOOD; i++)
                publish(w, first + i);
}

static void expect_chain(struct worker *w, unsigned chain, unsigned ttl_msec)
{
        worker_tell(w, "expect %u %u:0-%u", ttl_msec, chain, CHAIN_PAGES - 1);
}

/* Cached pages of the chain, from the first on. */
static unsigned n_cached(struct worker *w, unsigned chain)
{
        uint32_t n[2];

        if (worker_ask(w, "probe %u:0-%u", chain, CHAIN_PAGES - 1) != 0)
                return 0;
        assert_int_equal(worker_numbers(w, n, 2), 2);
        return n[0];
}

static void end(struct harness *h, struct worker *w, const char *tenant)
{
        char words[64];

        worker_stop(w);
        snprintf(words, sizeof(words), "purge %s --remove", tenant);
        ctl(h, words);
}

/* The expected one of two texts of the same age stays, even if its worker does nothing else. */
HARNESS_TEST(test_outlives_a_flood, &options)
{
        const char *const tenants[] = {"a", "b"};

        for (unsigned i = 0; i < 2; i++) {
                struct worker *w = worker_start(h, tenants[i], "cache", 1);
                struct worker *other = worker_start(h, tenants[i], "cache", 1);
                uint64_t expected = ctl_status(h, "expected");
                uint64_t fulfilled = ctl_status(h, "expected_fulfilled");

                publish_texts(other);
                expect_chain(w, 0, 60000);
                ctl_wait_status(h, "expected", expected + 1);
                ctl_wait_status(h, "pages_expected", CHAIN_PAGES);
                flood(other, FIRST);
                assert_int_equal(n_cached(w, 0), CHAIN_PAGES);
                if (i == 0)
                        assert_int_equal(n_cached(w, 1), 0);
                assert_int_equal(ctl_status(h, "expected_fulfilled"), fulfilled);
                /* The request comes. */
                worker_tell(w, "hits 1 0:0-%u", CHAIN_PAGES - 1);
                ctl_wait_status(h, "expected_fulfilled", fulfilled + 1);
                ctl_wait_status(h, "pages_expected", 0);
                flood(other, 2 * FIRST);
                if (i == 0)
                        assert_int_equal(n_cached(w, 0), 0);
                worker_stop(other);
                end(h, w, tenants[i]);
        }
}
