/* Clients that ask for more than there is, and don't read their answers. Others are served,
 * administrators are answered, memory is bounded. Afterwards all is as before. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/macros.h"
#include "proto/sock.h"
#include "tests/fault/good.h"
#include "tests/fault/raw-shm.h"
#include "tests/fault/raw.h"

/* Time limit of an answer, on any loaded machine. */
#define ANSWER_NSEC (2 * NSEC_PER_SEC * (private_under_valgrind() ? 20 : 1))

static const struct private_tenant three[] = {
        {"a", "max_clients = 100\n"}, {"b", "max_clients = 100\n"}, {"c", NULL}, {NULL, NULL}};

/* ---- all at once ---- */

#define N_RINGS   16
#define N_WRITERS 16 /* ask for no answers, so that nothing holds them */
#define N_DEAF    32 /* ask, and never read */
#define N_ROUNDS  10
#define KIB       1024

static const struct private_options small = {
        .daemon_lines = "max_pending = 1MiB\n", .tenants = three};

/* A frame that frees nothing. */
static size_t pack_nothing(uint8_t buf[256], uint32_t ns_id, uint16_t flags)
{
        Kvlease__V1__FreeRequest nothing = KVLEASE__V1__FREE_REQUEST__INIT;
        int n;

        nothing.ns_id = ns_id;
        n = msg_pack(buf, 1, MSG_FREE, flags, 1, 0, &nothing.base);
        assert_true(n > 0);
        return (size_t)n;
}

static void connect_to(struct raw *r, struct harness *h, const char *tenant, uint32_t *ret_ns_id)
{
        char path[PRIVATE_PATH_MAX];

        raw_open(r, h, private_daemon_socket(&h->daemon, tenant, path));
        *ret_ns_id = raw_attach(r);
}

/* Writes for ever to connections of its own, only whole frames of `flags`. */
static void write_on(struct harness *h, const char *tenant, unsigned n, uint16_t flags)
{
        struct raw raws[N_DEAF];
        uint8_t frames[64][256], many[64 * 256];
        size_t len[64] = {0}, each = 0;
        uint32_t ns_id;

        assert_true(n <= N_DEAF);
        for (unsigned i = 0; i < n; i++)
                connect_to(&raws[i], h, tenant, &ns_id);
        for (unsigned i = 0; i < ARRAY_SIZE(frames); i++) {
                len[i] = pack_nothing(frames[i], ns_id, flags);
                memcpy(many + each, frames[i], len[i]);
                each += len[i];
        }
        for (size_t at[N_DEAF] = {0};;) {
                bool any = false;

                for (unsigned i = 0; i < n; i++) {
                        ssize_t sent = send(raws[i].fd, many + at[i], each - at[i],
                                MSG_NOSIGNAL | MSG_DONTWAIT);

                        any |= sent > 0;
                        if (sent > 0)
                                at[i] = (at[i] + (size_t)sent) % each;
                }
                if (!any)
                        sleep_msec(1);
        }
}

static void be_deaf(struct harness *h, void *data)
{
        write_on(h, data, N_DEAF, 0);
}

static void be_loud(struct harness *h, void *data)
{
        write_on(h, data, N_WRITERS, FRAME_NO_REPLY);
}

/* Rings that are always full of entries that fail at once. */
static void flood_rings(struct harness *h, void *data)
{
        static struct raw_shm shm[N_RINGS];
        const struct shm_submission touch = {.op = SHM_OP_TOUCH, .ns_id = UINT32_MAX};

        for (unsigned i = 0; i < N_RINGS; i++)
                raw_share(&shm[i], h, "good");
        for (;;)
                for (unsigned i = 0; i < N_RINGS; i++) {
                        struct shm_client *c = shm[i].client;

                        while (atomic_load(&c->sub_tail) - atomic_load(&c->sub_head) <
                                SHM_SUB_ENTRIES)
                                raw_submit(&shm[i], &touch);
                        if (atomic_exchange(&c->daemon_sleeps, 0))
                                (void)raw_ring(&shm[i]);
                }
}

static void stop_flood(struct raw_child *c)
{
        kill(c->pid, SIGKILL);
        assert_int_equal(proc_wait(c->pid, 5000, NULL), 0);
        c->fd = fd_close(c->fd);
}

static int by_number(const void *a, const void *b)
{
        const uint64_t *x = a, *y = b;

        return (*x > *y) - (*x < *y);
}

/* The command is answered each time within the limit. Prints the median. */
static void ask_often(struct harness *h, struct good *g, const char *words)
{
        uint64_t took[N_ROUNDS];

        for (unsigned i = 0; i < N_ROUNDS; i++) {
                uint64_t began = now_nsec();

                ctl(h, words);
                took[i] = now_nsec() - began;
                assert_true(took[i] < ANSWER_NSEC);
                good_round(g); /* a client within its limits is served */
        }
        qsort(took, N_ROUNDS, sizeof(took[0]), by_number);
        print_message("%s: median %.1f ms, longest %.1f ms\n", words,
                (double)took[N_ROUNDS / 2] / 1e6, (double)took[N_ROUNDS - 1] / 1e6);
}

static void test_flood(void **state)
{
        struct harness *h = *state;
        int64_t before = proc_status_value(h->daemon.pid, "RssAnon"), after;
        struct raw_child deaf, deaf_too, loud, rings;
        struct good g;

        good_start(&g, h, "c");
        deaf = raw_fork_start(h, be_deaf, (void *)"a");
        deaf_too = raw_fork_start(h, be_deaf, (void *)"b");
        loud = raw_fork_start(h, be_loud, (void *)"b");
        rings = raw_fork_start(h, flood_rings, NULL);
        ctl_wait_status(h, "n_clients", 1 + 2 * N_DEAF + N_WRITERS + N_RINGS);
        /* A client that doesn't read isn't read from; few others are left then. */
        for (unsigned i = 0; i < 1000 && ctl_status(h, "peers_held") < N_DEAF; i++)
                sleep_msec(10);
        assert_true(ctl_status(h, "peers_held") >= N_DEAF);
        ask_often(h, &g, "status");
        ask_often(h, &g, "tenants set c max_clients=77");
        ask_often(h, &g, "clients");
        assert_true(ctl_status(h, "pending_bytes") <= 1024 * KIB);
        assert_true(ctl_tenant(h, "a", "pending_bytes") <= 1024 * KIB / 2);
        assert_int_equal(ctl_status(h, "pending_overflows"), 0);
        after = proc_status_value(h->daemon.pid, "RssAnon");
        print_message(
                "RssAnon: %lld KiB before, %lld KiB after\n", (long long)before, (long long)after);
        /*
         * Pending output, the buffers of 113 connections with 64 KiB each, and their other memory.
         */
        if (private_measures_memory())
                assert_true(after - before < 1024 + 113 * 96);
        stop_flood(&deaf);
        stop_flood(&deaf_too);
        stop_flood(&loud);
        stop_flood(&rings);
        ctl_wait_status(h, "n_clients", 1);
        assert_int_equal(ctl_status(h, "pending_bytes"), 0);
        /* Input that the dead clients had sent, 64 connections full, was handled in slices. */
        print_message("longest turn %.1f ms\n", (double)ctl_status(h, "longest_turn_nsec") / 1e6);
        harness_assert_prompt(h);
        good_stop(&g);
}

/* ---- requests a second ---- */

static const struct private_tenant one_a_second[] = {{"a", "max_requests = 1\n"}, {NULL, NULL}};
static const struct private_options slow_hello = {
        .tenants = one_a_second, .daemon_lines = "hello_timeout = 400ms\n"};

/* A client that says hello in time isn't refused if its tenant has no turn for longer than that. A
 * silent one is, as soon as there is a turn. */
static void test_hello_waits(void **state)
{
        struct harness *h = *state;
        struct raw first, second, silent;
        char path[PRIVATE_PATH_MAX];
        uint64_t began;

        (void)private_daemon_socket(&h->daemon, "a", path);
        raw_open(&first, h, path);
        assert_non_null(raw_hello(&first, 1, 1)); /* the second's that was saved */
        began = now_nsec();
        raw_open(&silent, h, path);
        raw_open(&second, h, path);
        assert_non_null(raw_hello(&second, 1, 1));
        assert_true(now_nsec() - began >= 400 * NSEC_PER_MSEC);
        assert_true(raw_hung_up(&silent));
        assert_int_equal(ctl_tenant(h, "a", "n_clients"), 2);
        raw_close(&first);
        raw_close(&second);
        raw_close(&silent);
}

/* ---- clients that stop ---- */

/* A client that doesn't read gets notices up to half of OUTQUEUE_HOLD_BYTES, and the last one. */
#define NOTICES_BYTES (132 * KIB)

/* Clients with pins stop: they stay connected, others continue, nothing grows. */
static void test_stopped_readers(void **state)
{
        enum { N_STOPPED = 4, N_PAGES = 8 };
        struct harness *h = *state;
        struct worker *stopped[N_STOPPED];
        uint32_t pages[N_STOPPED][N_PAGES];
        int64_t before, after;
        uint64_t ends;
        struct good g;

        good_start(&g, h, "c");
        for (unsigned i = 0; i < N_STOPPED; i++) {
                stopped[i] = worker_start(h, i % 2 ? "a" : "c", "good", 1);
                worker_publish_chain(stopped[i], 10 + i, N_PAGES, pages[i]);
        }
        for (unsigned i = 0; i < 20; i++)
                good_round(&g);
        for (unsigned i = 0; i < N_STOPPED; i++)
                assert_int_equal(kill(stopped[i]->pid, SIGSTOP), 0);
        before = proc_status_value(h->daemon.pid, "RssAnon");
        ends = now_nsec() + (private_full() ? 60 : 5) * NSEC_PER_SEC;
        while (now_nsec() < ends) {
                good_round(&g);
                ctl(h, "purge a");
                assert_true(ctl_status(h, "pages_pinned") >= N_STOPPED * N_PAGES);
                assert_true(ctl_status(h, "pending_bytes") <= N_STOPPED * NOTICES_BYTES);
        }
        /* Pages that good_round() publishes take some memory, and nothing else does. */
        after = proc_status_value(h->daemon.pid, "RssAnon");
        if (private_measures_memory())
                assert_true(after - before < 4096);
        assert_int_equal(ctl_status(h, "peers_muted"), 0);
        for (unsigned i = 0; i < N_STOPPED; i++) {
                assert_int_equal(kill(stopped[i]->pid, SIGCONT), 0);
                for (unsigned k = 0; k < N_PAGES; k++)
                        worker_tell(stopped[i], "verify %u %u", pages[i][k], 1000 * (10 + i) + k);
                worker_stop(stopped[i]);
        }
        good_stop(&g);
}

/* ---- clients that only connect ---- */

#define N_KNOCKS 3000
#define N_OPEN   300
#define FEW_FDS  96

static void limit_fds(pid_t pid, rlim_t n)
{
        struct rlimit limit;

        assert_int_equal(prlimit(pid, RLIMIT_NOFILE, NULL, &limit), 0);
        limit.rlim_cur = MIN(n, limit.rlim_max);
        assert_int_equal(prlimit(pid, RLIMIT_NOFILE, &limit, NULL), 0);
}

/* Connects silently, 300 at a time, of both tenants; then replaces the oldest ones. */
static void knock(struct harness *h, void *data)
{
        char paths[2][PRIVATE_PATH_MAX];
        int fds[N_OPEN];

        private_daemon_socket(&h->daemon, "a", paths[0]);
        private_daemon_socket(&h->daemon, "b", paths[1]);
        for (unsigned i = 0; i < N_OPEN; i++)
                fds[i] = -1;
        for (unsigned i = 0;; i++) {
                unsigned at = i % N_OPEN;

                fds[at] = fd_close(fds[at]);
                fds[at] = sock_connect(paths[i % 2]);
                if (i == N_KNOCKS && write(*(int *)data, "", 1) != 1)
                        _exit(1);
        }
}

/* Connections use up the descriptors: administrators get in, and can change things. */
static void test_storm(void **state)
{
        struct harness *h = *state;
        struct raw_child child;
        struct good g;
        int done[2];
        char byte;

        /* valgrind gives the daemon a limit of its own, in place of the one set from outside. */
        if (private_under_valgrind())
                skip();
        assert_int_equal(pipe2(done, O_CLOEXEC), 0);
        good_start(&g, h, "c");
        limit_fds(h->daemon.pid, FEW_FDS);
        child = raw_fork_start(h, knock, &done[1]);
        assert_int_equal(read(done[0], &byte, 1), 1);
        ask_often(h, &g, "status");
        ask_often(h, &g, "tenants set b max_clients=50");
        ctl(h, "tenants add made limit=4MiB");
        stop_flood(&child);
        ctl_wait_status(h, "peers_new", 0);
        limit_fds(h->daemon.pid, 1024);
        ctl(h, "tenants remove made");
        good_stop(&g);
        fd_close(done[0]);
        fd_close(done[1]);
}

int main(void)
{
        static const struct private_options plain = {.tenants = three};
        const struct CMUnitTest tests[] = {
                harness_test(test_flood, (void *)&small),
                harness_test(test_hello_waits, (void *)&slow_hello),
                harness_test(test_stopped_readers, (void *)&plain),
                harness_test(test_storm, (void *)&plain),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
