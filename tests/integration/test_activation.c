/* Sockets are made before the daemon runs, by another process, as systemd does. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/macros.h"
#include "proto/sock.h"
#include "tests/integration/harness.h"

/* Passes descriptors from 3 on and three variables, as systemd does between fork and exec. */
static void exec_activated(struct private_daemon *d, const int *fds, unsigned n, const char *names)
{
        char pid[16], count[16];

        for (unsigned i = 0; i < n; ++i)
                if (dup2(fds[i], (int)(3 + i)) < 0)
                        _exit(126);
        snprintf(pid, sizeof(pid), "%d", (int)getpid());
        snprintf(count, sizeof(count), "%u", n);
        setenv("LISTEN_PID", pid, 1);
        setenv("LISTEN_FDS", count, 1);
        setenv("LISTEN_FDNAMES", names, 1);
        unsetenv("NOTIFY_SOCKET");
        execl(program_daemon(), program_daemon(), "--config", d->config, (char *)NULL);
        _exit(127);
}

/* High numbers, so that dup2() to 3 and 4 can't hit one of them. */
static int listen_high(const char *path)
{
        int fd = sock_listen(path, 0666), high;

        assert_true(fd >= 0);
        high = fcntl(fd, F_DUPFD_CLOEXEC, 100);
        assert_true(high >= 100);
        fd_close(fd);
        return high;
}

HARNESS_TEST(test_activation, NULL)
{
        char path[PRIVATE_PATH_MAX], dir[PRIVATE_PATH_MAX];
        struct worker *w = NULL;
        struct stat before, after;
        int fds[2], status;

        assert_int_equal(private_daemon_stop(&h->daemon, &status), 0);
        snprintf(dir, sizeof(dir), "%.40s/t", h->daemon.runtime);
        mkdir(dir, 0755);
        snprintf(dir, sizeof(dir), "%.40s/t/a", h->daemon.runtime);
        mkdir(dir, 0755);
        fds[0] = listen_high(private_daemon_socket(&h->daemon, "a", path));
        fds[1] = listen_high(h->daemon.admin);
        assert_int_equal(stat(path, &before), 0);
        h->daemon.pid = fork();
        if (h->daemon.pid == 0)
                exec_activated(&h->daemon, fds, 2, "tenant-a:admin");
        /* The sockets listen already: a client that connects waits for the daemon. */
        assert_int_equal(ctl_status(h, "n_tenants"), 1);
        assert_int_equal(stat(path, &after), 0);
        assert_int_equal(after.st_ino, before.st_ino); /* taken, not replaced */
        w = worker_start(h, "a", "ns", 1);
        worker_stop(w);
        ctl_wait_status(h, "n_clients", 0);
        fd_close(fds[0]);
        fd_close(fds[1]);
        assert_int_equal(private_daemon_stop(&h->daemon, &status), 0);
        assert_int_equal(status, 0);
        assert_int_equal(stat(path, &after), 0); /* its maker's, not the daemon's, to remove */
        assert_int_equal(private_daemon_start(&h->daemon), 0);
}
