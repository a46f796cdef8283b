/*
 * The state directory is on a slow disk: waiting calls of libc (inject.h) delay a change of a
 * tenant. All other clients are served meanwhile. The change is answered once it is durable. If the
 * daemon is killed or stopped, the file is the old one or the new one.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/macros.h"
#include "tests/fault/inject-plan.h"
#include "tests/integration/harness.h"

static const struct private_tenant rows[] = {{"a", "limit = 4MiB\n"}, {NULL, NULL}};
static const struct private_options options = {
        .daemon_lines = "stop_timeout = 60s\n", .tenants = rows};

/* Starts a daemon with inject.so. */
static void begin(struct harness *h)
{
        int status;

        assert_int_equal(private_daemon_stop(&h->daemon, &status), 0);
        reset_counts();
        h->daemon.env = daemon_env;
        harness_start(h);
        reset_counts();
}

/* Starts `kvleasectl tenants VERB NAME OPTION` and doesn't wait for it. */
static pid_t begin_ctl(struct harness *h, const char *verb, const char *name, const char *option)
{
        const char *argv[] = {
                program_ctl(), "--socket", h->daemon.admin, "tenants", verb, name, option, NULL};

        return proc_spawn(argv, NULL, (struct proc_files){-1, -1, -1});
}

static void await_held(unsigned f)
{
        uint64_t end = now_nsec() + WAIT_MSEC * UINT64_C(1000000);

        while (count_held(f) == 0 && now_nsec() < end)
                sleep_msec(2);
        assert_true(count_held(f) > 0);
}

static void assert_waits(pid_t pid)
{
        assert_int_equal(waitpid(pid, NULL, WNOHANG), 0);
}

static void assert_ends(pid_t pid, int code)
{
        int status = -1;

        assert_int_equal(proc_wait(pid, WAIT_MSEC, &status), 0);
        assert_true(WIFEXITED(status));
        assert_int_equal(WEXITSTATUS(status), code);
}

HARNESS_TEST(test_others_are_served, &options)
{
        uint32_t pages[8];
        struct worker *w;
        pid_t pid, second;

        begin(h);
        hold_from(INJECT_fsync, 1);
        pid = begin_ctl(h, "add", "slow", "weight=7");
        await_held(INJECT_fsync);
        second = begin_ctl(h, "set", "slow", "weight=8");
        w = worker_start(h, "a", "ns", 1);
        worker_publish_chain(w, 1, 8, pages);
        worker_stop(w);
        assert_int_equal(ctl_status(h, "n_tenants"), 1);
        assert_waits(pid);
        assert_waits(second);
        hold_from(INJECT_fsync, 0);
        assert_ends(pid, 0);
        assert_ends(second, 0);
        assert_int_equal(ctl_tenant(h, "slow", "weight"), 8);
        harness_assert_prompt(h);
        harness_restart(h);
        assert_int_equal(ctl_tenant(h, "slow", "weight"), 8);
}

/* SIGTERM arrives during the write: the stop waits; the change is answered and stored. */
HARNESS_TEST(test_stopped, &options)
{
        int status;
        pid_t pid;

        begin(h);
        hold_from(INJECT_fsync, 1);
        pid = begin_ctl(h, "add", "slow", "weight=7");
        await_held(INJECT_fsync);
        kill(h->daemon.pid, SIGTERM);
        assert_int_equal(proc_wait(h->daemon.pid, 300, &status), -ETIMEDOUT);
        assert_waits(pid);
        hold_from(INJECT_fsync, 0);
        assert_ends(pid, 0);
        assert_int_equal(proc_wait(h->daemon.pid, WAIT_MSEC, &status), 0);
        assert_int_equal(status, 0);
        h->daemon.pid = 0;
        harness_start(h);
        assert_int_equal(ctl_tenant(h, "slow", "weight"), 7);
}

/* Killed before the file is synced, before it replaces the old one, and after. */
HARNESS_TEST(test_killed, &options)
{
        static const struct {
                unsigned f, k;
                uint64_t weight;
        } moments[] = {{INJECT_fsync, 1, 5}, {INJECT_rename, 1, 5}, {INJECT_fsync, 2, 7}};

        begin(h);
        for (size_t i = 0; i < ARRAY_SIZE(moments); i++) {
                int status;
                pid_t pid;

                ctl(h, "tenants set a weight=5");
                reset_counts();
                hold_from(moments[i].f, moments[i].k);
                pid = begin_ctl(h, "set", "a", "weight=7");
                await_held(moments[i].f);
                assert_int_equal(kill(h->daemon.pid, SIGKILL), 0);
                assert_int_equal(proc_wait(h->daemon.pid, WAIT_MSEC, &status), 0);
                h->daemon.pid = 0;
                assert_int_equal(proc_wait(pid, WAIT_MSEC, &status), 0);
                assert_int_not_equal(status, 0); /* the command got no answer */
                reset_counts();
                harness_start(h);
                assert_int_equal(ctl_tenant(h, "a", "weight"), moments[i].weight);
        }
}

int main(void)
{
        return test_run_all(open_shared, close_shared);
}
