/* Tenants that cause much work for the store (neighbour.h). Clients with usual requests are
 * answered as before, and no iteration of the loop is long. */
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>

#include "base/clock.h"
#include "base/fd.h"
#include "tests/fault/good.h"
#include "tests/fault/neighbour.h"

#define N_ROUNDS 50

/* Time limit of a round with a dozen answers, on any loaded machine. */
#define ROUND_NSEC (2 * NSEC_PER_SEC * (private_under_valgrind() ? 20 : 1))

static const struct private_tenant tenants[] = {
        {"bad", "limit = 32MiB\nmax_clients = 64\n"}, {"big", NULL}, {"c", NULL}, {NULL, NULL}};
static const struct private_options options = {
        .tenants = tenants, .device_lines = "memory = 64MiB\nextent = 2MiB\n"};

static void be_neighbour(struct harness *h, void *data)
{
        neighbour_run(data);
}

static void test_beside(struct harness *h, enum neighbour kind)
{
        struct neighbour_run run = {.kind = kind, .n_pages = kind == NEIGHBOUR_ASKS ? 16384 : 8192};
        struct raw_child child;
        struct good g;

        run.ready = mmap(NULL, sizeof(*run.ready), PROT_READ | PROT_WRITE,
                MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        assert_true(run.ready != MAP_FAILED);
        private_daemon_socket(&h->daemon, "bad", run.socket);
        private_daemon_socket(&h->daemon, "big", run.other);
        good_start(&g, h, "c");
        child = raw_fork_start(h, be_neighbour, &run);
        for (unsigned i = 0; i < 6000 && atomic_load(run.ready) == 0; i++)
                sleep_msec(10);
        assert_int_equal(atomic_load(run.ready), 1);
        for (unsigned i = 0; i < N_ROUNDS; i++) {
                uint64_t began = now_nsec();

                good_round(&g);
                assert_true(now_nsec() - began < ROUND_NSEC);
        }
        harness_assert_prompt(h);
        /* The neighbour keeps to the protocol, and continues. */
        assert_int_equal(ctl_status(h, "violations"), 0);
        assert_int_equal(proc_wait(child.pid, 0, NULL), -ETIMEDOUT);
        kill(child.pid, SIGKILL);
        assert_int_equal(proc_wait(child.pid, 5000, NULL), 0);
        fd_close(child.fd);
        munmap(run.ready, sizeof(*run.ready));
        ctl_wait_status(h, "n_clients", 1);
        good_stop(&g);
        harness_assert_prompt(h);
}

HARNESS_TEST(test_refills, &options)
{
        test_beside(h, NEIGHBOUR_REFILLS);
}

HARNESS_TEST(test_pins, &options)
{
        test_beside(h, NEIGHBOUR_PINS);
}

HARNESS_TEST(test_asks, &options)
{
        test_beside(h, NEIGHBOUR_ASKS);
}

HARNESS_TEST(test_churn, &options)
{
        test_beside(h, NEIGHBOUR_CHURN);
}

HARNESS_TEST(test_touches, &options)
{
        test_beside(h, NEIGHBOUR_TOUCHES);
}

HARNESS_TEST(test_leases, &options)
{
        test_beside(h, NEIGHBOUR_LEASES);
}

HARNESS_TEST(test_waits, &options)
{
        test_beside(h, NEIGHBOUR_WAITS);
}
