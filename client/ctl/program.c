#include "client/ctl/program.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/macros.h"

extern char **environ;

int program_of(const char *root, uint64_t pid, char ret_path[PROGRAM_PATH_BYTES])
{
        static const char deleted[] = " (deleted)";
        const size_t deleted_len = sizeof(deleted) - 1;
        char link[PROGRAM_PATH_BYTES + 32];
        ssize_t n;

        snprintf(link, sizeof(link), "%s/proc/%" PRIu64 "/exe", root, pid);
        n = readlink(link, ret_path, PROGRAM_PATH_BYTES - 1);
        if (n <= 0)
                return n < 0 ? -errno : -ENOENT;
        ret_path[n] = '\0';
        if ((size_t)n <= deleted_len || strcmp(ret_path + n - deleted_len, deleted) != 0)
                return 0;
        ret_path[(size_t)n - deleted_len] = '\0';
        return 1;
}

/* Waits for data, or the end of the other side. Returns false at the time-out. */
static bool wait_until(int fd, uint64_t until_nsec)
{
        uint64_t now = clock_now_nsec();
        struct pollfd p = {fd, POLLIN, 0};

        return now < until_nsec && poll(&p, 1, (int)((until_nsec - now) / NSEC_PER_MSEC) + 1) > 0;
}

/* Returns the exit code; -1: killed at the time-out. */
static int end_program(pid_t pid, uint64_t until_nsec)
{
        _cleanup_fd_ int pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
        int status = -1;

        if (pidfd < 0 || !wait_until(pidfd, until_nsec))
                kill(pid, SIGKILL);
        while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
                ;
        return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* Starts the program with its output in a pipe; returns the other end, owned. */
static int start_program(const char *const *argv, bool with_stderr, pid_t *ret_pid)
{
        posix_spawn_file_actions_t actions;
        int fds[2], r;

        if (pipe2(fds, O_CLOEXEC) < 0)
                return -1;
        posix_spawn_file_actions_init(&actions);
        posix_spawn_file_actions_adddup2(&actions, fds[1], STDOUT_FILENO);
        if (with_stderr)
                posix_spawn_file_actions_adddup2(&actions, fds[1], STDERR_FILENO);
        r = posix_spawn(ret_pid, argv[0], &actions, NULL, (char *const *)argv, environ);
        posix_spawn_file_actions_destroy(&actions);
        close(fds[1]);
        return r == 0 ? fds[0] : fd_close(fds[0]);
}

int program_read(const char *const *argv, bool with_stderr, char *ret, size_t size)
{
        uint64_t until = clock_now_nsec() + PROGRAM_MSEC * NSEC_PER_MSEC;
        size_t len = 0;
        ssize_t n = 1;
        pid_t pid;
        int code, fd = start_program(argv, with_stderr, &pid);

        if (fd < 0)
                return -1;
        while (n > 0 && len + 1 < size && wait_until(fd, until)) {
                n = read(fd, ret + len, size - 1 - len);
                len += n > 0 ? (size_t)n : 0;
        }
        close(fd);
        ret[len] = '\0';
        code = end_program(pid, n == 0 ? until : 0);
        return n == 0 ? code : -1;
}
