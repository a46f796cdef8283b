/* Groups: a scheduler without mappings and its workers; deaths and their effects. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/macros.h"
#include "tests/integration/harness.h"

static const struct private_options challenge = {.daemon_lines = "liveness = challenge\n"};

/* Joins the group of `first`; mode "metadata": without mappings. */
static struct worker *join(struct harness *h, struct worker *first, const char *mode)
{
        struct worker *w = worker_spawn(h);
        char socket[PRIVATE_PATH_MAX], token[64];

        snprintf(token, sizeof(token), "%s", worker_tell(first, "token"));
        worker_tell(
                w, "connect %s %s %s", private_daemon_socket(&h->daemon, "a", socket), token, mode);
        worker_tell(w, "open ns 1");
        return w;
}

/* The scheduler leases, a worker maps, writes and publishes, the scheduler looks up. */
HARNESS_TEST(test_scheduler, NULL)
{
        struct worker *worker = worker_start(h, "a", "ns", 1);
        struct worker *scheduler = join(h, worker, "metadata");
        uint32_t pages[2], found[2];

        worker_tell(scheduler, "lease 2");
        worker_numbers(scheduler, pages, 2);
        worker_tell(scheduler, "mapped %u", pages[0]);
        assert_int_equal(atoi(scheduler->rest), 0);
        worker_tell(worker, "map %u %u", pages[0], pages[1]);
        worker_tell(worker, "fill %u 1", pages[0]);
        worker_tell(worker, "fill %u 2", pages[1]);
        worker_tell(worker, "publish 3:0-1 - %u %u", pages[0], pages[1]);
        worker_tell(scheduler, "lookup 3:0-1");
        assert_int_equal(worker_numbers(scheduler, found, 2), 2);
        assert_memory_equal(found, pages, sizeof(pages));
        worker_tell(worker, "verify %u 2", found[1]);
}

/* Processes with the engine's secret, on the same tenant's socket, are one group, whichever
 * connects first. Another secret makes another group. */
HARNESS_TEST(test_secret, NULL)
{
        char socket[PRIVATE_PATH_MAX];
        struct worker *ranks[3], *other = worker_spawn(h);
        uint32_t page;

        private_daemon_socket(&h->daemon, "a", socket);
        assert_int_equal(worker_ask(other, "connect %s secret=of-few-bytes", socket), -EINVAL);
        worker_tell(other, "connect %s secret=another-engine's-secret", socket);
        worker_tell(other, "open ns 1");
        for (size_t i = 0; i < ARRAY_SIZE(ranks); ++i) {
                ranks[i] = worker_spawn(h);
                worker_tell(ranks[i], "connect %s secret=this-engine's-secret", socket);
                worker_tell(ranks[i], "open ns 1");
        }
        worker_tell(ranks[0], "lease 1");
        worker_numbers(ranks[0], &page, 1);
        worker_tell(ranks[1], "map %u", page);
        assert_int_equal(worker_ask(other, "map %u", page), -ENOENT);
        /* The leased page stays as long as any member. */
        worker_kill(ranks[0]);
        ctl_wait_status(h, "n_clients", 3);
        worker_tell(ranks[2], "free %u", page);
        for (size_t i = 1; i < ARRAY_SIZE(ranks); ++i)
                worker_stop(ranks[i]);
}

/* A stranger of the same tenant may not free a group's pages. */
HARNESS_TEST(test_stranger, NULL)
{
        struct worker *a = worker_start(h, "a", "ns", 1), *b = worker_start(h, "a", "ns", 1);
        uint32_t page;

        worker_tell(a, "lease 1");
        worker_numbers(a, &page, 1);
        assert_true(worker_ask(b, "free %u", page) < 0);
        assert_true(worker_ask(b, "release %u", page) < 0);
        assert_true(worker_ask(b, "publish 5:0 - %u", page) < 0);
        worker_tell(a, "free %u", page);
}

/* A client counts as dead after hang-up and exit. Until then its pages stay pinned, also if its
 * socket is closed. */
HARNESS_TEST(test_hangup, NULL)
{
        struct worker *w = worker_start(h, "a", "ns", 1);
        uint32_t pages[2];

        worker_publish_chain(w, 1, 2, pages);
        worker_tell(w, "lease 1");
        worker_tell(w, "hangup");
        ctl_wait_status(h, "members_waiting_exit", 1);
        sleep_msec(100);
        assert_int_equal(ctl_status(h, "pages_pinned"), 2);
        assert_int_equal(ctl_status(h, "pages_granted"), 1);
        ctl(h, "purge a");
        assert_int_equal(ctl_status(h, "pages_detached"), 2);
        worker_tell(w, "verify %u 1001", pages[1]);
        worker_kill(w);
        ctl_wait_status(h, "members_waiting_exit", 0);
        ctl_wait_status(h, "pages_detached", 0);
}

/* A client that breaks the protocol while it maps memory is muted, and keeps its pins until it
 * exits. */
HARNESS_TEST(test_muted, NULL)
{
        struct worker *w = worker_start(h, "a", "ns", 1), *good = worker_start(h, "a", "ns", 1);
        uint32_t pages[2], found[2];

        worker_publish_chain(w, 1, 2, pages);
        worker_tell(w, "garbage");
        ctl_wait_status(h, "violations", 1);
        ctl_wait_status(h, "peers_muted", 1);
        h->violations = 1;
        assert_int_equal(ctl_status(h, "pages_pinned"), 2);
        worker_tell(good, "lookup 1:0-1");
        assert_int_equal(worker_numbers(good, found, 2), 2);
        worker_tell(w, "verify %u 1001", pages[1]);
        worker_stop(good);
        ctl(h, "purge a");
        assert_int_equal(ctl_status(h, "pages_detached"), 2);
        worker_kill(w);
        ctl_wait_status(h, "peers_muted", 0);
}

/* The other proof of a peer's process: a nonce answered with credentials. */
HARNESS_TEST(test_challenge, &challenge)
{
        struct worker *a = worker_start(h, "a", "ns", 1);
        uint32_t pages[2];

        join(h, a, "");
        worker_publish_chain(a, 1, 2, pages);
        worker_tell(a, "lease 2");
        worker_kill(a);
        ctl_wait_status(h, "n_clients", 1);
        ctl_wait_status(h, "pages_pinned", 0);
}
