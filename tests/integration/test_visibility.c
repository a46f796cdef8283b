/* Changes that one process makes to the cache are visible to others at once. With shared memory
 * this needs no daemon. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tests/integration/harness.h"

#define N 4 /* pages of a text */

static const struct private_tenant one[] = {{"a", "limit = 2MiB\n"}, {NULL, NULL}};
static const struct private_options small_cache = {.tenants = one};

static void assert_found(struct worker *w, unsigned chain, unsigned n)
{
        uint32_t found[N];

        worker_tell(w, "lookup %u:0-%u", chain, n - 1);
        assert_int_equal(worker_numbers(w, found, N), n);
        for (unsigned i = 0; i < n; ++i)
                worker_tell(w, "verify %u %u", found[i], 1000 * chain + i);
        for (unsigned i = 0; i < n; ++i)
                worker_tell(w, "release %u", found[i]);
}

static void assert_missed(struct worker *w, unsigned chain)
{
        assert_int_equal(worker_ask(w, "lookup %u:0-%u", chain, N - 1), 1); /* KVL_MISS */
}

/* Checks that the run has the transport of its name. */
HARNESS_TEST(test_mode, NULL)
{
        struct worker *a = worker_start(h, "a", "ns", 1);

        worker_start(h, "a", "ns", 1);
        assert_int_equal(ctl_status(h, "n_sharing"), harness_shares() ? 2 : 0);
        worker_tell(a, "info");
        assert_non_null(strstr(a->rest, private_device()));
        assert_non_null(strstr(a->rest, private_on_gpu() ? "memory=gpu" : "memory=cpu"));
}

HARNESS_TEST(test_found, NULL)
{
        struct worker *a = worker_start(h, "a", "ns", 1), *b = worker_start(h, "a", "ns", 1);
        uint32_t pages[N];

        for (unsigned chain = 1; chain < 20; ++chain) {
                assert_missed(b, chain);
                worker_publish_chain(a, chain, N, pages);
                assert_found(b, chain, N);
        }
        worker_stop(a);
        assert_found(b, 7, N);
}

/* b finds a's published pages although the daemon has been stopped since. Pages that b looks up for
 * the first time are in a set that it has mapped. */
HARNESS_TEST(test_found_without_daemon, NULL)
{
        struct worker *a, *b;
        uint32_t pages[N];

        if (!harness_shares())
                skip();
        a = worker_start(h, "a", "ns", 1);
        b = worker_start(h, "a", "ns", 1);
        worker_publish_chain(a, 1, N, pages);
        assert_found(b, 1, N);
        worker_publish_chain(a, 2, N, pages);
        kill(h->daemon.pid, SIGSTOP);
        assert_found(b, 2, N);
        assert_missed(b, 3);
        kill(h->daemon.pid, SIGCONT);
}

/* The next lookup of any client misses, also if the page was found a moment ago. */
HARNESS_TEST(test_invalidate_key, NULL)
{
        struct worker *a = worker_start(h, "a", "ns", 1), *b = worker_start(h, "a", "ns", 1);
        uint32_t pages[N], found[N];

        for (unsigned chain = 1; chain < 20; ++chain) {
                worker_publish_chain(a, chain, N, pages);
                worker_tell(b, "lookup %u:0-%u", chain, N - 1);
                assert_int_equal(worker_numbers(b, found, N), N);
                worker_tell(a, "invalidate %u:2", chain);
                assert_int_equal(atoi(a->rest), 2);
                assert_found(b, chain, 2);
                assert_found(a, chain, 2);
                worker_tell(a, "invalidate %u:0", chain);
                assert_missed(b, chain);
                /* Held since before: as they were. */
                for (unsigned i = 0; i < N; ++i)
                        worker_tell(b, "verify %u %u", found[i], 1000 * chain + i);
        }
}

HARNESS_TEST(test_invalidate_all, NULL)
{
        struct worker *a = worker_start(h, "a", "ns", 1), *b = worker_start(h, "a", "ns", 1);
        uint32_t pages[N], granted;

        for (unsigned chain = 1; chain < 20; ++chain) {
                worker_tell(b, "lease 1");
                worker_numbers(b, &granted, 1);
                worker_publish_chain(a, chain, N, pages);
                assert_found(b, chain, N);
                worker_tell(a, "invalidate all");
                assert_int_equal(atoi(a->rest), N);
                assert_missed(b, chain);
                assert_missed(a, chain);
                /* A page computed behind an invalidated one can't be published. */
                assert_int_equal(worker_ask(b, "publish %u:0 - %u", chain, granted), 6);
                worker_tell(b, "free %u", granted);
                /* The key is free again. */
                worker_publish_chain(a, chain, N, pages);
                assert_found(b, chain, N);
                worker_tell(a, "invalidate all");
        }
}

/* The model has other weights: every call of clients with the old version open reports it. */
HARNESS_TEST(test_version, NULL)
{
        struct worker *a = worker_start(h, "a", "ns", 1), *b = worker_spawn(h);
        char socket[PRIVATE_PATH_MAX];
        uint32_t pages[N], page;

        worker_publish_chain(a, 1, N, pages);
        worker_tell(a, "lease 1");
        worker_numbers(a, &page, 1);
        worker_tell(b, "connect %s", private_daemon_socket(&h->daemon, "a", socket));
        worker_tell(b, "open ns 1 2");
        assert_missed(b, 1);
        assert_int_equal(worker_ask(a, "lookup 1:0-3"), 6); /* KVL_STALE */
        assert_int_equal(worker_ask(a, "lease 1"), 6);
        assert_int_equal(worker_ask(a, "publish 2:0 - %u", page), 6);
        worker_tell(a, "verify %u 1000", pages[0]);
        worker_tell(a, "release %u", pages[0]);
        worker_tell(a, "free %u", page);
        worker_publish_chain(b, 1, N, pages);
        assert_found(b, 1, N);
        assert_int_equal(worker_ask(a, "lookup 1:0-3"), 6);
        /* The notice comes once; then the client opens the namespace anew. */
        worker_tell(a, "close");
        worker_tell(a, "open ns 1 2");
        assert_found(a, 1, N);
}

/* A client that only makes hits reads nothing on its socket, and breaks no rule. */
HARNESS_TEST(test_only_hits, NULL)
{
        struct worker *a = worker_start(h, "a", "ns", 1), *b = worker_start(h, "a", "ns", 1);

        for (unsigned i = 0; i < (private_under_valgrind() ? 500 : 10000); ++i)
                worker_tell(a, "invalidate-lookup 1:0"); /* a notice each, for b */
        assert_int_equal(ctl_status(h, "peers_muted"), 0);
        worker_tell(b, "lease 2");
}

/* Hits without a message to the daemon count at an eviction, even if it has slept since before
 * them. */
HARNESS_TEST(test_recent_hits_count, &small_cache)
{
        struct worker *a = worker_start(h, "a", "ns", 1), *b = worker_start(h, "a", "ns", 1);
        const struct timespec a_moment = {.tv_nsec = 300 * 1000 * 1000};
        uint32_t pages[N];

        for (unsigned chain = 1; chain <= 2; ++chain) {
                worker_publish_chain(a, chain, N, pages);
                for (unsigned i = N; i-- > 0;)
                        worker_tell(a, "release %u", pages[i]);
        }
        worker_tell(b, "hits 1 1:0-%u", N - 1); /* maps the pages, by asking */
        nanosleep(&a_moment, NULL);
        worker_tell(a, "hits 1 2:0-%u", N - 1);
        worker_tell(b, "hits 2 1:0-%u", N - 1);
        worker_tell(a, "lease %u", 512 - N); /* of 512: one of the texts has to go */
        assert_found(b, 1, N);
        assert_missed(b, 2);
}
