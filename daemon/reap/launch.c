/* Starts the process with its end of the pair, and no other descriptor of ours. */
#include "daemon/reap/launch.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/macros.h"
#include "daemon/reap/wire.h"

extern char **environ;

/* The program to execute: REAP_JOB_FD, until the process has a job. A descriptor is used because
 * under valgrind "/proc/self/exe" is valgrind's program, while opening it opens ours. */
#define PROGRAM_FD   REAP_JOB_FD
#define PROGRAM_PATH "/proc/self/fd/4"
static_assert(PROGRAM_FD == 4, "PROGRAM_PATH");

/* The order matters: the two descriptors may have any numbers except those opened first. */
static int add_actions(posix_spawn_file_actions_t *a, int program_fd, int fd)
{
        int r = 0;

        for (int i = 0; i < REAP_SOCKET_FD && r == 0; i++)
                r = posix_spawn_file_actions_addopen(a, i, "/dev/null", O_RDWR, 0);
        if (r == 0)
                r = posix_spawn_file_actions_adddup2(a, program_fd, PROGRAM_FD);
        if (r == 0)
                r = posix_spawn_file_actions_adddup2(a, fd, REAP_SOCKET_FD);
        if (r == 0)
                r = posix_spawn_file_actions_addclosefrom_np(a, REAP_SOCKET_FD + 1);
        return -r;
}

/* A session of its own: signals of a terminal to the daemon's processes don't reach it. It blocks
 * and ignores none of the daemon's signals. */
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

static int spawn(int program_fd, int fd, pid_t *ret_pid)
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
                r = add_actions(&actions, program_fd, fd);
                if (r == 0)
                        r = set_attributes(&attr);
                if (r == 0)
                        r = -posix_spawn(ret_pid, PROGRAM_PATH, &actions, &attr, argv, environ);
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

/* Moves a descriptor beyond the numbers that the actions open first. Takes it; it may be < 0. */
static int move_up(int fd)
{
        int high = fd < 0 ? -errno : fcntl(fd, F_DUPFD_CLOEXEC, REAP_SOCKET_FD + 1);
        int r = fd < 0 || high >= 0 ? high : -errno;

        fd_close(fd);
        return r;
}

int reap_launch(const char *exe, int socket_bytes, int *ret_fd, pid_t *ret_pid)
{
        int pair[2], program, end, r;

        if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
                return -errno;
        limit_sockets(pair, socket_bytes);
        end = move_up(pair[1]);
        program = move_up(open(exe, O_PATH | O_CLOEXEC));
        r = MIN(end, program);
        if (r >= 0)
                r = spawn(program, end, ret_pid);
        fd_close(program);
        fd_close(end);
        if (r < 0)
                fd_close(pair[0]);
        else
                *ret_fd = pair[0];
        return r;
}
