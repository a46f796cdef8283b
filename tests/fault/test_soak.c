/*
 * Half an hour (some seconds in the short run) of mixed load. Workers start and end, and a daemon
 * ends every minute, by a stop or a kill. Memory, descriptors and pages are at the end what they
 * were at the beginning.
 */
#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/macros.h"
#include "tests/fault/restart-scene.h"

/* The daemon's own memory may grow by so much: memory kept by allocators, and touched tables. Not
 * tuned. */
#define SLACK_KIB 8192

static const struct private_options options = {
        .tenants = scene_tenants,
        .device_lines = "memory = 320MiB\nextent = 2MiB\n",
        .is_kept = true,
};

struct level {
        int64_t rss_kib;
        int n_fds;
        uint64_t kept_fds, charged_bytes, n_pages;
};

/* Counts descriptors except those that the daemon may hold in reserve for administrators. */
static int count_used(pid_t pid)
{
        char dir_path[64], target[64];
        struct dirent *e;
        int n = 0;
        DIR *dir;

        snprintf(dir_path, sizeof(dir_path), "/proc/%d/fd", (int)pid);
        dir = opendir(dir_path);
        assert_non_null(dir);
        while ((e = readdir(dir))) {
                ssize_t len = readlinkat(dirfd(dir), e->d_name, target, sizeof(target));

                n += len > 0 && strncmp(target, "/dev/null", (size_t)len) != 0;
        }
        closedir(dir);
        return n;
}

/* The least number within half a second: a closing connection would count. */
static int count_least(pid_t pid)
{
        int n = count_used(pid);

        for (unsigned i = 0; i < 50; ++i) {
                sleep_msec(10);
                n = MIN(n, count_used(pid));
        }
        return n;
}

/* Measures without clients and cached pages. */
static struct level measure(struct harness *h)
{
        pid_t pid;
        struct level l;

        ctl(h, "purge calm --remove");
        ctl(h, "purge busy --remove");
        ctl(h, "purge churn --remove");
        ctl_wait_status(h, "charged_bytes", 0);
        pid = (pid_t)ctl_status(h, "pid");
        l = (struct level){
                .rss_kib = proc_status_value(pid, "RssAnon"),
                .n_fds = count_least(pid),
                .kept_fds = ctl_status(h, "kept_fds"),
                .charged_bytes = ctl_status(h, "charged_bytes"),
                .n_pages = ctl_status(h, "pages_sealed") + ctl_status(h, "pages_granted") +
                           ctl_status(h, "pages_detached") + ctl_status(h, "pages_free"),
        };
        print_message("%lld KiB, %d descriptors, %llu kept, %llu bytes, %llu pages\n",
                (long long)l.rss_kib, l.n_fds, (unsigned long long)l.kept_fds,
                (unsigned long long)l.charged_bytes, (unsigned long long)l.n_pages);
        return l;
}

/* One life of the daemon. */
static void live(struct scene *s, unsigned msec)
{
        uint64_t end = now_nsec() + msec * UINT64_C(1000000);

        while (now_nsec() < end) {
                scene_stir(s);
                sleep_msec(20);
        }
}

static void run(struct harness *h, unsigned n_lives, unsigned msec)
{
        struct scene s;

        scene_begin(&s, h);
        for (unsigned i = 0; i < n_lives; ++i) {
                live(&s, msec);
                if (i % 2 == 0)
                        scene_kill_daemon(&s);
                else
                        ctl(h, "restart --force");
                scene_recover(&s);
        }
        scene_end(&s);
}

HARNESS_TEST(test_soak, &options)
{
        struct level first, last;

        /* Allocates what is allocated once. */
        run(h, 2, 1000);
        first = measure(h);
        run(h, private_full() ? 30 : 4, private_full() ? 60000 : 1500);
        last = measure(h);
        assert_int_equal(last.n_fds, first.n_fds);
        assert_int_equal(last.kept_fds, first.kept_fds);
        assert_int_equal(last.charged_bytes, 0);
        assert_int_equal(last.n_pages, 0);
        if (private_measures_memory())
                assert_true(last.rss_kib <= first.rss_kib + SLACK_KIB);
}
