/*
 * Memory as extents needs more descriptors than the daemon may have: it warns at the start, refuses
 * with the remedy, and keeps enough to let the administrator in.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/macros.h"
#include "proto/status.h"
#include "tests/fault/raw.h"

#define FEW_FDS   128
#define WAIT_MSEC 30000 /* not tuned */

/* 512 extents. */
static const struct private_tenant rows[] = {{"a", NULL}, {NULL, NULL}};
static const struct private_options options = {
        .daemon_lines = "max_clients = 20\n",
        .device_lines = "memory = 1GiB\nextent = 2MiB\n",
        .tenants = rows,
};

static unsigned count_log(struct harness *h, const char *words)
{
        unsigned n = 0;
        size_t len;
        char *text;

        assert_int_equal(file_read(h->daemon.log, 16 << 20, &text, &len), 0);
        for (const char *at = text; (at = strstr(at, words)); at++)
                n++;
        free(text);
        return n;
}

static void set_limit(pid_t pid, struct rlimit limit)
{
        assert_int_equal(prlimit(pid, RLIMIT_NOFILE, &limit, NULL), 0);
}

static void test_warned(void **state)
{
        struct harness *h = *state;
        const char *argv[] = {"/bin/sh", "-c", "ulimit -n 512 && exec \"$0\" \"$@\" 2>>\"$LOG\"",
                program_daemon(), "--config", h->daemon.config, NULL};
        char log[PRIVATE_PATH_MAX + 8];
        const char *env[] = {log, NULL};
        int status;
        pid_t pid;

        snprintf(log, sizeof(log), "LOG=%s", h->daemon.log);
        assert_int_equal(count_log(h, "raise LimitNOFILE"), 0);
        assert_int_equal(private_daemon_stop(&h->daemon, &status), 0);
        pid = proc_spawn(argv, env, (struct proc_files){-1, -1, -1});
        assert_true(pid > 0);
        for (unsigned i = 0; i < 1000 && count_log(h, "ready in") < 2; i++)
                sleep_msec(10);
        assert_int_equal(kill(pid, SIGTERM), 0);
        assert_int_equal(proc_wait(pid, WAIT_MSEC, &status), 0);
        assert_int_equal(status, 0);
        assert_int_equal(count_log(h, "kvleased may have 512: raise LimitNOFILE"), 1);
        assert_int_equal(private_daemon_start(&h->daemon), 0);
}

/* Leases one page after another; the answer that refuses. */
static const Kvlease__V1__LeaseReply *lease_all(struct raw *r, uint32_t ns_id, unsigned *ret_n)
{
        Kvlease__V1__LeaseRequest lease = KVLEASE__V1__LEASE_REQUEST__INIT;
        const Kvlease__V1__LeaseReply *reply;

        lease.ns_id = ns_id;
        lease.n_pages = 512; /* a set */
        for (*ret_n = 0;; ++*ret_n) {
                assert_true(raw_request(r, MSG_LEASE, 0, &lease.base));
                reply = (const Kvlease__V1__LeaseReply *)raw_answer(r);
                assert_non_null(reply);
                if (reply->status != WIRE_OK)
                        return reply;
        }
}

static void test_refused_early(void **state)
{
        const Kvlease__V1__LeaseReply *reply;
        struct harness *h = *state;
        struct rlimit before;
        struct raw r, late;
        unsigned n;

        raw_open(&r, h, NULL);
        assert_int_equal(prlimit(h->daemon.pid, RLIMIT_NOFILE, NULL, &before), 0);
        set_limit(h->daemon.pid, (struct rlimit){FEW_FDS, before.rlim_max});
        reply = lease_all(&r, raw_attach(&r), &n);
        assert_int_equal(reply->status, WIRE_TOO_MANY);
        if (!strstr(reply->detail, "may have 128 open files") ||
                !strstr(reply->detail, "LimitNOFILE"))
                fail_msg("\"%s\"", reply->detail);
        assert_in_range(n, FEW_FDS / 2, FEW_FDS);
        lease_all(&r, 1, &n);
        assert_int_equal(n, 0);
        assert_int_equal(count_log(h, "no further extents are made"), 1);
        /* There is room for who comes to help. */
        ctl(h, "tenants set a weight=7");
        raw_open(&late, h, NULL);
        assert_int_equal(raw_hello(&late, 1, 1)->status, WIRE_OK);
        raw_close(&late);
        raw_close(&r);
        set_limit(h->daemon.pid, before);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                harness_test(test_warned, (void *)&options),
                harness_test(test_refused_early, (void *)&options),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
