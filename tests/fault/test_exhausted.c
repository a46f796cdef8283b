/*
 * The machine runs out: a full disk, no locked memory, clocks that jump. The daemon
 * reports it, refuses what it can't do and serves the rest. It recovers when the shortage is over.
 * Single calls that fail: test_inject.c. Descriptors: test_limits.c, test_descriptors.c.
 */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/macros.h"
#include "tests/integration/file-clock.h"
#include "tests/integration/harness.h"

#define YEAR_NSEC (UINT64_C(365) * 86400 * 1000000000)

static void must_refuse(struct harness *h, const char *words, const char *sentence)
{
        struct proc_output o;

        assert_int_equal(ctl_run(h, words, &o), 1);
        if (!strstr(o.err, sentence))
                fail_msg("%s: \"%s\" doesn't say \"%s\"", words, o.err, sentence);
        proc_output_free(&o);
}

/* A client's day. */
static void serve(struct harness *h, unsigned chain)
{
        struct worker *w = worker_start(h, "a", "ns", 1);
        uint32_t pages[4];

        worker_publish_chain(w, chain, 4, pages);
        worker_tell(w, "hits 50 %u:0-3", chain); /* as many requests, for the recorder */
        worker_stop(w);
        ctl(h, "check");
}

/* ---- a full disk ---------------------------------------------------------------------------- */

/* Mounts a small disk on the state directory. False: not permitted. */
static bool mount_small(struct harness *h)
{
        if (unshare(CLONE_NEWNS) < 0 || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
                mount("tmpfs", h->daemon.state, "tmpfs", 0, "size=256k,nr_inodes=64,mode=700") < 0)
                return false;
        return true;
}

static void fill_disk(const char *path)
{
        _cleanup_fd_ int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
        static const char block[4096] = {1};

        assert_true(fd >= 0);
        while (write(fd, block, sizeof(block)) > 0)
                ;
        assert_int_equal(errno, ENOSPC);
}

static uint64_t lost_requests(struct harness *h)
{
        json_t *reply = ctl_json(h, "trace record status");
        uint64_t n = (uint64_t)json_integer_value(json_object_get(reply, "lost"));

        json_decref(reply);
        return n;
}

/* A change that can't be stored isn't made. Records made meanwhile are lost, and counted. */
static void run_on_full_disk(struct harness *h)
{
        char filler[PRIVATE_PATH_MAX + 16];

        ctl(h, "tenants set a limit=32MiB");
        ctl(h, "trace record on");
        serve(h, 1);
        snprintf(filler, sizeof(filler), "%s/filler", h->daemon.state);
        fill_disk(filler);
        must_refuse(h, "tenants set a limit=16MiB", "make room");
        must_refuse(h, "tenants add x limit=1MiB", "make room");
        assert_int_equal(ctl_tenant(h, "a", "limit_bytes"), 32 << 20);
        serve(h, 2);
        ctl(h, "trace record off");
        for (unsigned i = 0; lost_requests(h) == 0; i++) {
                if (i == 300)
                        fail_msg("nothing was counted as lost");
                sleep_msec(10);
        }
        harness_restart(h); /* the daemon can't save policies' state, and ends all the same */
        assert_int_equal(ctl_tenant(h, "a", "limit_bytes"), 32 << 20);
        assert_int_equal(unlink(filler), 0);
        ctl(h, "tenants set a limit=16MiB");
        serve(h, 3);
        harness_restart(h);
        assert_int_equal(ctl_tenant(h, "a", "limit_bytes"), 16 << 20);
}

HARNESS_TEST(test_disk, NULL)
{
        assert_int_equal(private_daemon_stop(&h->daemon, &(int){0}), 0);
        if (!mount_small(h)) {
                print_message("skipped: a disk can't be mounted here: %s\n", strerror(errno));
                harness_start(h);
                skip();
        }
        harness_start(h);
        run_on_full_disk(h);
        harness_assert_settled(h);
        assert_int_equal(private_daemon_stop(&h->daemon, &(int){0}), 0);
        assert_int_equal(umount(h->daemon.state), 0);
        harness_start(h);
}

/* ---- descriptors ---------------------------------------------------------------------------- */

static void limit_daemon(struct harness *h, int resource, rlim_t n)
{
        struct rlimit old, limit;

        assert_int_equal(prlimit(h->daemon.pid, resource, NULL, &old), 0);
        limit = (struct rlimit){n, old.rlim_max};
        assert_int_equal(prlimit(h->daemon.pid, resource, &limit, NULL), 0);
}

/* ---- locked memory -------------------------------------------------------------------------- */

/* kvlease locks no memory; a limit of 0 is a container's default. */
HARNESS_TEST(test_locked_memory, NULL)
{
        struct rlimit before;

        assert_int_equal(getrlimit(RLIMIT_MEMLOCK, &before), 0);
        limit_daemon(h, RLIMIT_MEMLOCK, 0);
        assert_int_equal(setrlimit(RLIMIT_MEMLOCK, &(struct rlimit){0, before.rlim_max}), 0);
        serve(h, 1);
        harness_restart(h); /* inherits it */
        serve(h, 2);
        assert_int_equal(setrlimit(RLIMIT_MEMLOCK, &before), 0);
}

/* ---- clocks --------------------------------------------------------------------------------- */

static const struct private_tenant expiring[] = {
        {"a", "limit = 64MiB\nexpire = 1h\nsession_expire = 1h\n"}, {NULL, NULL}};
static const struct private_options jumping = {.env = file_clock_env, .tenants = expiring};

/* The clock jumps forwards by years, back to the beginning, and to the greatest number. Pages may
 * expire, held ones stay, and the state is consistent. */
HARNESS_TEST(test_clock, &jumping)
{
        static const uint64_t times[] = {YEAR_NSEC, 10 * YEAR_NSEC, 1000, 2000, UINT64_MAX / 2,
                UINT64_MAX - 1, 5, YEAR_NSEC};
        struct worker *w = worker_start(h, "a", "ns", 1);
        uint32_t pages[4];

        worker_publish_chain(w, 1, 4, pages);
        worker_tell(w, "session-open text");
        for (unsigned i = 0; i < ARRAY_SIZE(times); i++) {
                print_message("%llu ns\n", (unsigned long long)times[i]);
                file_clock_set(times[i]);
                serve(h, 2 + i);
                for (unsigned k = 0; k < 4; k++)
                        worker_tell(w, "verify %u %u", pages[k], 1000 + k);
                ctl(h, "check");
        }
}

int main(void)
{
        return test_run_all(file_clock_open, file_clock_close);
}
