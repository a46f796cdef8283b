/* Namespaces: identity of the layout, versions, invalidation, draining. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/macros.h"
#include "tests/integration/harness.h"

static struct worker *connected(struct harness *h)
{
        struct worker *w = worker_spawn(h);
        char socket[PRIVATE_PATH_MAX];

        worker_tell(w, "connect %s", private_daemon_socket(&h->daemon, "a", socket));
        return w;
}

/* The refusal names both layouts. */
HARNESS_TEST(test_layout, NULL)
{
        struct worker *b = connected(h);

        worker_start(h, "a", "ns", 1);
        assert_int_equal(worker_ask(b, "open ns 3"), 8); /* KVL_LAYOUT */
        assert_int_equal(worker_ask(b, "open ns 1 - 8192"), 8);
        if (!strstr(b->rest, "8192") || !strstr(b->rest, "4096"))
                fail_msg("not both layouts in \"%s\"", b->rest);
        worker_tell(b, "open other 3");
}

/* Engines whose kernels have different layouts don't share a namespace, and learn why. */
HARNESS_TEST(test_format, NULL)
{
        struct worker *a = connected(h), *b = connected(h), *c = connected(h);

        worker_tell(a, "open ns 1 - - - - - flash-NHD");
        assert_int_equal(worker_ask(b, "open ns 1 - - - - - flash-HND"), 8); /* KVL_LAYOUT */
        if (!strstr(b->rest, "another format") || !strstr(b->rest, "flash-NHD") ||
                !strstr(b->rest, "flash-HND"))
                fail_msg("not both formats in \"%s\"", b->rest);
        assert_int_equal(worker_ask(c, "open ns 1"), 8);
        worker_tell(b, "open ns 1 - - - - - flash-NHD");
        worker_tell(c, "open other 1");
}

/*
 * Without a name, workers with one layout share a namespace, and those with another layout don't.
 */
HARNESS_TEST(test_no_name, NULL)
{
        struct worker *a = connected(h), *b = connected(h), *c = connected(h);
        char name[101], words[128];
        uint32_t pages[3];

        worker_tell(a, "open - 1 - - - - - flash-NHD");
        worker_tell(b, "open - 1 - - - - - flash-NHD");
        worker_tell(c, "open - 1 - - - - - flash-HND");
        worker_publish_chain(a, 1, 3, pages);
        worker_tell(b, "lookup 1:0-2");
        assert_int_equal(worker_ask(c, "lookup 1:0-2"), 1);
        worker_tell(b, "name");
        assert_int_equal(sscanf(b->rest, "%100s", name), 1);
        assert_int_equal(strncmp(name, "test-model@", 11), 0);
        snprintf(words, sizeof(words), "purge a %s", name);
        ctl(h, words);
        assert_int_equal(worker_ask(b, "lookup 1:0-2"), 1);
}

/* The daemon has looked some time after a request of whomever. */
static void await_leasable(struct harness *h, struct worker *w, int n)
{
        int is = -1;

        for (unsigned i = 0; i < 3000 && is != n; i++) {
                if (i > 0)
                        usleep(10000);
                (void)ctl_status(h, "pages_detached");
                worker_tell(w, "leasable");
                is = atoi(w->rest);
        }
        assert_int_equal(is, n);
}

/* How many pages leases would get, as all that counts changes. */
HARNESS_TEST(test_leasable, NULL)
{
        struct worker *a = worker_start(h, "a", "ns", 1), *b = worker_start(h, "a", "ns", 1);
        uint32_t pages[5], cached[3];
        int all;

        worker_tell(a, "leasable");
        all = atoi(a->rest);
        assert_true(all > 100);
        await_leasable(h, b, all);
        worker_tell(a, "lease 5");
        worker_numbers(a, pages, 5);
        await_leasable(h, a, all - 5);
        worker_tell(a, "free %u %u %u %u %u", pages[0], pages[1], pages[2], pages[3], pages[4]);
        await_leasable(h, a, all);
        worker_publish_chain(a, 1, 3, cached);
        await_leasable(h, a, all - 3);
        worker_tell(b, "lookup 1:0");
        worker_tell(a, "release %u %u %u", cached[0], cached[1], cached[2]);
        await_leasable(h, a, all - 1);
        worker_tell(b, "release %u", cached[0]);
        await_leasable(h, a, all);
}

/* Another version of the weights retires pages of the old one; their pins last. */
HARNESS_TEST(test_version, NULL)
{
        struct worker *a = worker_start(h, "a", "ns", 1), *b;
        uint32_t pages[3];

        worker_publish_chain(a, 1, 3, pages);
        b = connected(h);
        worker_tell(b, "open ns 1 2");
        assert_int_equal(worker_ask(b, "lookup 1:0-2"), 1);
        worker_publish_chain(b, 1, 2, pages);
        worker_tell(a, "events");
        assert_non_null(strstr(a->rest, "stale"));
        assert_int_equal(worker_ask(a, "lookup 1:0-2"), 6); /* KVL_STALE */
        assert_int_equal(worker_ask(a, "lease 1"), 6);
}

/* Pages with everything below them vanish at once, pinned ones stay readable. */
HARNESS_TEST(test_invalidate_key, NULL)
{
        struct worker *a = worker_start(h, "a", "ns", 1), *b = worker_start(h, "a", "ns", 1);
        uint32_t trunk[6], branch[2], found[6];

        worker_publish_chain(a, 1, 6, trunk);
        worker_tell(a, "lease 2");
        worker_numbers(a, branch, 2);
        worker_tell(a, "publish 2:0-1 1:3 %u %u", branch[0], branch[1]);
        worker_tell(b, "invalidate 1:2");
        assert_int_equal(atoi(b->rest), 6); /* 1:2 to 1:5 and the branch */
        worker_tell(b, "lookup 1:0-5");
        assert_int_equal(worker_numbers(b, found, 6), 2);
        assert_int_equal(worker_ask(b, "lookup 2:0-1"), 1);
        assert_int_equal(ctl_status(h, "pages_detached"), 6);
        for (unsigned i = 0; i < 6; ++i)
                worker_tell(a, "verify %u %u", trunk[i], 1000 + i);
        worker_tell(a, "release %u %u %u %u %u %u", trunk[0], trunk[1], trunk[2], trunk[3],
                trunk[4], trunk[5]);
        assert_int_equal(ctl_status(h, "pages_detached"), 2);
}

HARNESS_TEST(test_invalidate_all, NULL)
{
        struct worker *a = worker_start(h, "a", "ns", 1), *b = worker_start(h, "a", "ns", 1);
        uint32_t pages[4];

        worker_publish_chain(a, 1, 4, pages);
        worker_tell(b, "invalidate all");
        assert_int_equal(atoi(b->rest), 4);
        assert_int_equal(worker_ask(b, "lookup 1:0-3"), 1);
        for (unsigned i = 0; i < 4; ++i)
                worker_tell(a, "verify %u %u", pages[i], 1000 + i);
        worker_tell(a, "release %u %u %u %u", pages[0], pages[1], pages[2], pages[3]);
        worker_publish_chain(a, 1, 4, pages);
}

HARNESS_TEST(test_purge, NULL)
{
        struct worker *w = worker_start(h, "a", "ns", 1);
        uint32_t pages[4];

        worker_publish_chain(w, 1, 4, pages);
        worker_tell(w, "release %u %u", pages[2], pages[3]);
        ctl(h, "purge a ns");
        assert_int_equal(worker_ask(w, "lookup 1:0"), 1);
        worker_tell(w, "verify %u 1000", pages[0]);
}

HARNESS_TEST(test_drain, NULL)
{
        struct worker *w = worker_start(h, "a", "ns", 1), *late;
        char socket[PRIVATE_PATH_MAX];
        struct proc_output o;
        uint32_t pages[2];

        worker_publish_chain(w, 1, 2, pages);
        /* Clients are left: it says so by its exit status. */
        assert_int_equal(ctl_run(h, "drain --timeout 1s", &o), 4);
        proc_output_free(&o);
        worker_tell(w, "events");
        assert_non_null(strstr(w->rest, "drain"));
        assert_int_equal(worker_ask(w, "lease 1"), 7); /* KVL_DRAINING */
        worker_tell(w, "lookup 1:0-1");
        late = worker_spawn(h);
        assert_int_equal(
                worker_ask(late, "connect %s", private_daemon_socket(&h->daemon, "a", socket)), 7);
        ctl(h, "drain --off");
        worker_tell(w, "events");
        assert_non_null(strstr(w->rest, "drain-end"));
        worker_tell(w, "lease 1");
        worker_kill(late);
        worker_stop(w);
        ctl_wait_status(h, "n_clients", 0);
        ctl(h, "drain");
        ctl(h, "drain --off");
}

/* A daemon that stops tells its clients and doesn't wait for them for ever. */
HARNESS_TEST(test_stop, NULL)
{
        struct worker *w = worker_start(h, "a", "ns", 1);
        uint32_t pages[2];

        worker_publish_chain(w, 1, 2, pages);
        harness_restart(h);
        assert_true(worker_ask(w, "events") < 0);
        assert_non_null(strstr(w->rest, "disconnected"));
        worker_tell(w, "verify %u 1000", pages[0]); /* mapped pages stay readable */
        assert_true(worker_ask(w, "lease 1") < 0);
}
