/* Extents need more descriptors than the daemon may have. It warns at the start, refuses with the
 * remedy, and keeps enough to admit the administrator. */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/macros.h"
#include "daemon/server/base/fd-parts.h"
#include "proto/status.h"
#include "tests/fault/raw-shm.h"
#include "tests/unit/child.h"

#define FEW_FDS   128
#define WAIT_MSEC 30000 /* not tuned */

/* 512 extents. */
static const struct private_tenant rows[] = {{"a", NULL}, {NULL, NULL}};
static const struct private_options options = {
        .daemon_lines = "max_clients = 20\n",
        .device_lines = "memory = 1GiB\nextent = 2MiB\n",
        .tenants = rows,
};

/* Under kvleased --keep, each extent needs more of them. */
static const struct private_options kept = {
        .daemon_lines = "max_clients = 20\n",
        .device_lines = "memory = 1GiB\nextent = 2MiB\n",
        .tenants = rows,
        .is_kept = true,
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

HARNESS_TEST(test_warned, &options)
{
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

/* Leases one page after another; returns the answer that refuses. */
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

/* n_expected: at least so many sets fit beside the reserve. */
static void refuse_early(struct harness *h, unsigned n_expected)
{
        pid_t pid = (pid_t)ctl_status(h, "pid");
        const Kvlease__V1__LeaseReply *reply;
        struct rlimit before;
        struct raw r, late;
        unsigned n;

        raw_open(&r, h, NULL);
        assert_int_equal(prlimit(pid, RLIMIT_NOFILE, NULL, &before), 0);
        set_limit(pid, (struct rlimit){FEW_FDS, before.rlim_max});
        reply = lease_all(&r, raw_attach(&r), &n);
        assert_int_equal(reply->status, WIRE_TOO_MANY);
        if (!strstr(reply->detail, "may have 128 open files") ||
                !strstr(reply->detail, "LimitNOFILE"))
                fail_msg("\"%s\"", reply->detail);
        assert_in_range(n, n_expected, FEW_FDS);
        lease_all(&r, 1, &n);
        assert_int_equal(n, 0);
        assert_int_equal(count_log(h, "no further extents are made"), 1);
        /* There is room for another administrator. */
        ctl(h, "tenants set a weight=7");
        raw_open(&late, h, NULL);
        assert_int_equal(raw_hello(&late, 1, 1)->status, WIRE_OK);
        raw_close(&late);
        raw_close(&r);
        set_limit(pid, before);
}

HARNESS_TEST(test_refused_early, &options)
{
        refuse_early(h, FEW_FDS * 3 / 8);
}

/* Each extent is two files there: its own, and its exported one. */
HARNESS_TEST(test_refused_early_when_kept, &kept)
{
        refuse_early(h, FEW_FDS * 3 / 16);
}

#define N_SHARING 8

/* A process with that many clients, which share memory until it is killed. */
static pid_t share_memory(struct harness *h)
{
        static struct raw_shm sharing[N_SHARING];
        int ready[2];
        char byte;
        pid_t pid;

        assert_int_equal(pipe2(ready, O_CLOEXEC), 0);
        fflush(NULL);
        pid = child_fork();
        assert_true(pid >= 0);
        if (pid == 0) {
                setenv("CMOCKA_TEST_ABORT", "1", 1);
                for (unsigned i = 0; i < N_SHARING; i++)
                        raw_share(&sharing[i], h, "good");
                assert_int_equal(write(ready[1], "r", 1), 1);
                pause();
                _exit(0);
        }
        fd_close(ready[1]);
        assert_int_equal(read(ready[0], &byte, 1), 1);
        fd_close(ready[0]);
        return pid;
}

/* With all shared memory of clients, and its stored descriptors, the reserve is left. */
HARNESS_TEST(test_shared_and_kept, &kept)
{
        struct rlimit before;
        int own, taken;
        unsigned n;
        struct raw r;
        pid_t pid = (pid_t)ctl_status(h, "pid"), sharing;

        for (unsigned i = 0; i < 1000 && !proc_holds_reserve(pid); i++)
                sleep_msec(10);
        own = proc_count_fds(pid);
        assert_int_equal(prlimit(pid, RLIMIT_NOFILE, NULL, &before), 0);
        set_limit(pid, (struct rlimit){FEW_FDS, before.rlim_max});
        sharing = share_memory(h);
        raw_open(&r, h, NULL);
        assert_int_equal(lease_all(&r, raw_attach(&r), &n)->status, WIRE_TOO_MANY);
        assert_true(n > 0);
        /* The descriptors at the start belong to the reserve, except for three listeners. */
        taken = proc_count_fds(pid) - own;
        assert_in_range(taken, 4 * N_SHARING, FEW_FDS - DESCRIPTORS_RESERVE - 3);
        ctl(h, "tenants set a weight=7");
        raw_close(&r);
        kill(sharing, SIGKILL);
        assert_int_equal(waitpid(sharing, NULL, 0), sharing);
        set_limit(pid, before);
}

/* The kernel's table has its final size from the start: growing it would stop the loop. */
HARNESS_TEST(test_table, NULL)
{
        uint64_t needed = ctl_status(h, "open_files_needed"), max = ctl_status(h, "open_files_max");

        assert_true(needed > 256); /* its value without a limit */
        assert_true(proc_status_value(h->daemon.pid, "FDSize") >= (int64_t)MIN(needed, max));
}

/* Restarts with the present configuration. */
static void restart(struct harness *h)
{
        int status;

        assert_int_equal(private_daemon_stop(&h->daemon, &status), 0);
        assert_int_equal(private_daemon_start(&h->daemon), 0);
}

/* Exchange with other hosts takes descriptors for threads and for connections to nodes. Tenants
 * have the rest. */
HARNESS_TEST(test_remote, NULL)
{
        uint64_t needed = ctl_status(h, "open_files_needed");
        uint64_t limit = ctl_tenant(h, "a", "open_files_limit");
        FILE *f = fopen(h->daemon.config, "ae");
        long len;

        assert_non_null(f);
        assert_int_equal(fseek(f, 0, SEEK_END), 0);
        len = ftell(f);
        assert_true(fprintf(f, "\n[remote x]\naddresses = 127.0.0.1:1\n") > 0);
        assert_int_equal(fclose(f), 0);
        restart(h);
        assert_int_equal(ctl_status(h, "open_files_needed"), needed + 7 + 3);
        assert_int_equal(ctl_tenant(h, "a", "open_files_limit"), limit - 7 - 3);
        assert_int_equal(truncate(h->daemon.config, len), 0);
        restart(h);
        assert_int_equal(ctl_status(h, "open_files_needed"), needed);
}
