/* Two workers share a prefix: the same memory, found by key, in processes of their own. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/macros.h"
#include "tests/integration/harness.h"

static void assert_chain(struct worker *w, unsigned chain, const uint32_t *pages, unsigned n)
{
        for (unsigned i = 0; i < n; ++i)
                worker_tell(w, "verify %u %u", pages[i], 1000 * chain + i);
}

static void share(struct harness *h, unsigned n_planes)
{
        struct worker *a = worker_start(h, "a", "ns", n_planes);
        struct worker *b = worker_start(h, "a", "ns", n_planes);
        uint32_t mine[5], theirs[8];
        int r;

        assert_int_equal(worker_ask(b, "lookup 7:0-4"), 1); /* KVL_MISS */
        worker_publish_chain(a, 7, 5, mine);
        worker_tell(b, "lookup 7:0-7");
        assert_int_equal(worker_numbers(b, theirs, 8), 5);
        assert_memory_equal(theirs, mine, sizeof(mine));
        assert_chain(b, 7, theirs, 5);
        /* One byte changed in one process is seen in the other: nothing was copied. On a GPU the
         * library writes it, which refuses that where it can tell that the page is published. */
        r = worker_ask(a, "poke %u 77", mine[3]);
        if (r == 0) {
                worker_tell(b, "peek %u", theirs[3]);
                assert_int_equal(atoi(b->rest), 77);
        } else {
                assert_true(private_on_gpu());
                assert_int_equal(r, -EINVAL);
        }
        assert_int_equal(ctl_status(h, "pages_pinned"), 5);
        assert_int_equal(ctl_status(h, "pages_sealed"), 5);
        assert_int_equal(ctl_status(h, "lookup_hits"), 5);
        worker_stop(a);
        assert_int_equal(ctl_status(h, "pages_pinned"), 5);
        worker_stop(b);
        ctl_wait_status(h, "pages_pinned", 0);
        assert_int_equal(ctl_status(h, "pages_sealed"), 5);
}

HARNESS_TEST(test_one_plane, NULL)
{
        share(h, 1);
}

/* More planes than fit one frame's descriptors. */
HARNESS_TEST(test_many_planes, NULL)
{
        share(h, 20);
}

/* Published pages outlive all workers. */
HARNESS_TEST(test_outlives, NULL)
{
        struct worker *w = worker_start(h, "a", "ns", 1);
        uint32_t pages[3], found[4];

        worker_publish_chain(w, 1, 3, pages);
        worker_stop(w);
        ctl_wait_status(h, "n_clients", 0);
        w = worker_start(h, "a", "ns", 1);
        worker_tell(w, "lookup 1:0-3");
        assert_int_equal(worker_numbers(w, found, 4), 3);
        assert_chain(w, 1, found, 3);
}

/* A magazine is filled up behind the client's back: its event loop isn't woken for it. */
HARNESS_TEST(test_refills_wake_nobody, NULL)
{
        struct worker *w = worker_start(h, "a", "ns", 1);

        for (unsigned i = 0; i < 20; ++i) {
                worker_tell(w, "lease 1");
                assert_int_equal(worker_ask(w, "wakeups 5"), 0);
        }
        worker_stop(w);
}
