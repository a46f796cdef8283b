/* Limits of the daemon: descriptors and connections. It reports them, and serves on. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/macros.h"
#include "proto/sock.h"
#include "proto/status.h"
#include "tests/fault/raw.h"

/* ---- descriptors ---- */

#define N_FLOOD    200
#define WATCH_MSEC 300

static const struct private_tenant crowded[] = {{"a", "max_clients = 2000\n"}, {NULL, NULL}};
static const struct private_options crowd = {
        .daemon_lines = "max_clients = 2000\n", .tenants = crowded};

static void limit_fds(struct harness *h, rlim_t n)
{
        struct rlimit limit;

        assert_int_equal(prlimit(h->daemon.pid, RLIMIT_NOFILE, NULL, &limit), 0);
        limit.rlim_cur = n;
        assert_int_equal(prlimit(h->daemon.pid, RLIMIT_NOFILE, &limit, NULL), 0);
}

/* The daemon's share of a processor without requests. */
static double idle_load(struct harness *h)
{
        struct timespec from, to;
        clockid_t clock;

        assert_int_equal(clock_getcpuclockid(h->daemon.pid, &clock), 0);
        assert_int_equal(clock_gettime(clock, &from), 0);
        sleep_msec(WATCH_MSEC);
        assert_int_equal(clock_gettime(clock, &to), 0);
        return ((double)(to.tv_sec - from.tv_sec) * 1e9 + (double)(to.tv_nsec - from.tv_nsec)) /
               (WATCH_MSEC * 1e6);
}

static void assert_logged(struct harness *h, const char *words, unsigned n)
{
        unsigned found = 0;
        size_t len;
        char *text;

        assert_int_equal(file_read(h->daemon.log, 16 << 20, &text, &len), 0);
        for (const char *at = text; (at = strstr(at, words)); at++)
                found++;
        if (found != n)
                fail_msg("\"%s\" is %u times in: %s", words, found, text);
        free(text);
}

/*
 * Only `more` descriptors are left, fewer than a connection takes. (The limit is lowered, since
 * tenants leave a reserve: descriptors.h.) New clients are closed, connected ones are served, and
 * the loop sleeps. Afterwards new clients get in again.
 */
static void run_out(struct harness *h, unsigned more)
{
        struct worker *w = worker_start(h, "a", "ns", 1), *late;
        int fds[N_FLOOD];
        char path[PRIVATE_PATH_MAX], byte;
        uint32_t pages[4];
        unsigned n_closed = 0;

        worker_publish_chain(w, 1 + more, 4, pages);
        for (unsigned i = 0; i < 1000 && !proc_holds_reserve(h->daemon.pid); i++)
                sleep_msec(10);
        limit_fds(h, (rlim_t)proc_count_fds(h->daemon.pid) + more);
        private_daemon_socket(&h->daemon, "a", path);
        for (unsigned i = 0; i < N_FLOOD; i++) {
                fds[i] = sock_connect(path);
                assert_true(fds[i] >= 0);
        }
        worker_tell(w, "lookup %u:0-3", 1 + more);
        worker_tell(w, "release %u %u %u %u", pages[0], pages[1], pages[2], pages[3]);
        assert_true(idle_load(h) < 0.5);
        for (unsigned i = 0; i < N_FLOOD; i++) {
                n_closed += recv(fds[i], &byte, 1, MSG_DONTWAIT) == 0 || errno == ECONNRESET;
                fd_close(fds[i]);
        }
        /* One connection may have found a free place, and been refused with a reason. */
        assert_in_range(n_closed, N_FLOOD - 1, N_FLOOD);
        assert_logged(h, "no file descriptors left", 1);
        assert_logged(h, "cannot watch process", 0);
        ctl_wait_status(h, "n_clients", 1);
        limit_fds(h, 1024);
        late = worker_start(h, "a", "ns", 1);
        worker_tell(late, "lookup %u:0-3", 1 + more);
        worker_stop(late);
        worker_stop(w);
}

/* A connection takes two descriptors: once the first one is missing, once the second. */
HARNESS_TEST(test_no_descriptors, &crowd)
{
        run_out(h, 0);
        run_out(h, 1);
}

/* ---- connections ---- */

static const struct private_tenant small[] = {
        {"a", "max_clients = 2\n"}, {"b", NULL}, {NULL, NULL}};
static const struct private_options few = {.daemon_lines = "max_clients = 5\n", .tenants = small};

static void open_at(struct raw *r, struct harness *h, const char *tenant)
{
        char path[PRIVATE_PATH_MAX];

        raw_open(r, h, private_daemon_socket(&h->daemon, tenant, path));
}

static void assert_accepted(struct raw *r, struct harness *h, const char *tenant)
{
        const Kvlease__V1__HelloReply *hello;

        open_at(r, h, tenant);
        hello = raw_hello(r, 1, 1);
        assert_non_null(hello);
        assert_string_equal(hello->detail, "");
        assert_int_equal(hello->status, WIRE_OK);
}

/* Refused with this sentence, then disconnected. */
static void assert_full(struct harness *h, const char *tenant, const char *sentence)
{
        const Kvlease__V1__HelloReply *hello;
        struct raw r;

        open_at(&r, h, tenant);
        hello = raw_hello(&r, 1, 1);
        assert_non_null(hello);
        assert_int_equal(hello->status, WIRE_TOO_MANY);
        if (!strstr(hello->detail, sentence))
                fail_msg("\"%s\" without \"%s\"", hello->detail, sentence);
        assert_true(raw_hung_up(&r));
        raw_close(&r);
}

HARNESS_TEST(test_too_many, &few)
{
        struct raw raws[5];
        struct proc_output o;

        for (unsigned i = 0; i < 2; i++)
                assert_accepted(&raws[i], h, "a");
        assert_full(h, "a", "tenant a has 2 connections, the most it may have");
        assert_full(h, "a", "kvleasectl tenants set a max_clients=");
        for (unsigned i = 2; i < 5; i++)
                assert_accepted(&raws[i], h, "b");
        assert_full(h, "b", "kvleased has 5 connections, the most it may have");
        assert_full(h, "b", "raise max_clients in [daemon]");
        /* An administrator must get in. */
        assert_int_equal(ctl_run(h, "status", &o), 0);
        proc_output_free(&o);
        raw_close(&raws[0]);
        ctl_wait_status(h, "n_clients", 4);
        assert_accepted(&raws[0], h, "a"); /* a place that was left is a place */
        raw_close(&raws[4]);
        ctl_wait_status(h, "n_clients", 4);
        ctl(h, "tenants set a max_clients=3");
        assert_accepted(&raws[4], h, "a");
        for (unsigned i = 0; i < 5; i++)
                raw_close(&raws[i]);
}

/* A refusal for want of a place costs a descriptor: at most 32 at a time. */
HARNESS_TEST(test_refused_are_bounded, &few)
{
        struct raw raws[2];
        char path[PRIVATE_PATH_MAX], byte;
        unsigned n_closed = 0;
        int fds[100];

        for (unsigned i = 0; i < 2; i++)
                assert_accepted(&raws[i], h, "a");
        private_daemon_socket(&h->daemon, "a", path);
        for (unsigned i = 0; i < ARRAY_SIZE(fds); i++) {
                fds[i] = sock_connect(path);
                assert_true(fds[i] >= 0);
        }
        /* Connections are accepted in batches; exactly 32 stay open. */
        for (unsigned i = 0; i < 1000 && n_closed < ARRAY_SIZE(fds) - 32; i++) {
                n_closed = 0;
                for (unsigned k = 0; k < ARRAY_SIZE(fds); k++)
                        n_closed += recv(fds[k], &byte, 1, MSG_DONTWAIT) == 0;
                sleep_msec(10);
        }
        assert_int_equal(n_closed, ARRAY_SIZE(fds) - 32);
        for (unsigned i = 0; i < ARRAY_SIZE(fds); i++)
                fd_close(fds[i]);
        for (unsigned i = 0; i < 2; i++)
                raw_close(&raws[i]);
}
