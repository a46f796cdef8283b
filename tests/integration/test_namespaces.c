/* Namespaces: identity of the layout, leasable pages, draining. Invalidation: test_visibility.c. */
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
