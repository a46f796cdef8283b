/* Starting the process: with its end of the pair, and nothing else of ours. */
#include "daemon/reap/launch.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/fd.h"
#include "daemon/reap/wire.h"

extern char **environ;

/* In order: the pair's end may have any number, and none of these is its. */
static int add_actions(posix_spawn_file_actions_t *a, int fd)
{
        int r = 0;

        for (int i = 0; i < REAP_SOCKET_FD && r == 0; i++)
                r = posix_spawn_file_actions_addopen(a, i, "/dev/null", O_RDWR, 0);
        if (r == 0)
                r = posix_spawn_file_actions_adddup2(a, fd, REAP_SOCKET_FD);
        if (r == 0)
                r = posix_spawn_file_actions_addclosefrom_np(a, REAP_SOCKET_FD + 1);
        return -r;
}

/* A session of its own: what a terminal sends to the daemon's processes isn't for it. No signal of
 * the daemon's is blocked or ignored in it. */
static int set_attributes(posix_spawnattr_t *attr)
{
        sigset_t none, all;
        int r;

        sigemptyset(&none);
        sigfillset(&all);
        r = posix_spawnattr_setsigmask(attr, &none);
        if (r == 0)
                r = posix_spawnattr_setsigdefault(attr, &all);
        if (r == 0)
                r = posix_spawnattr_setflags(
                        attr, POSIX_SPAWN_SETSID | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
        return -r;
}

static int spawn(const char *exe, int fd, pid_t *ret_pid)
{
        static char name[] = "kvleased", argument[] = REAP_ARGUMENT;
        char *argv[] = {name, argument, NULL};
        posix_spawn_file_actions_t actions;
        posix_spawnattr_t attr;
        int r = -posix_spawn_file_actions_init(&actions);

        if (r < 0)
                return r;
        r = -posix_spawnattr_init(&attr);
        if (r == 0) {
                r = add_actions(&actions, fd);
                if (r == 0)
                        r = set_attributes(&attr);
                if (r == 0)
                        r = -posix_spawn(ret_pid, exe, &actions, &attr, argv, environ);
                posix_spawnattr_destroy(&attr);
        }
        posix_spawn_file_actions_destroy(&actions);
        return r;
}

static void limit_sockets(const int pair[2], int bytes)
{
        for (unsigned i = 0; i < 2 && bytes > 0; i++)
                (void)setsockopt(pair[i], SOL_SOCKET, SO_SNDBUF, &bytes, sizeof(bytes));
}

int reap_launch(const char *exe, int socket_bytes, int *ret_fd, pid_t *ret_pid)
{
        int pair[2], high, r;

        if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
                return -errno;
        limit_sockets(pair, socket_bytes);
        /* Beyond the numbers that the actions open first. */
        high = fcntl(pair[1], F_DUPFD_CLOEXEC, REAP_SOCKET_FD + 1);
        r = high < 0 ? -errno : spawn(exe, high, ret_pid);
        fd_close(high);
        fd_close(pair[1]);
        if (r < 0)
                fd_close(pair[0]);
        else
                *ret_fd = pair[0];
        return r;
}
