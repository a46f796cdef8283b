/* Children of tests end with them (child.h). */
#include "tests/unit/child.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/wait.h>

#include "base/fd.h"
#include "tests/unit/test-support.h"

#define PATIENCE_MSEC 10000
#define SOME_UID      41001

static _Noreturn void stay(int fd)
{
        alarm(2 * PATIENCE_MSEC / 1000); /* where it isn't tied */
        if (write(fd, "", 1) != 1)
                _exit(1);
        for (;;)
                pause();
}

static void stay_as_another(int fd)
{
        pid_t parent = getppid();

        if (setresuid(SOME_UID, SOME_UID, SOME_UID) < 0)
                _exit(1);
        child_tie(parent);
        stay(fd);
}

static void stay_as_it_is(int fd)
{
        stay(fd);
}

/* A test that ends without a thought for its child, once that has come so far. */
static _Noreturn void leave_behind(void (*child)(int fd))
{
        int started[2];
        char byte;

        if (pipe2(started, O_CLOEXEC) < 0)
                _exit(1);
        if (child_fork() == 0)
                child(started[1]);
        close(started[1]);
        _exit(read(started[0], &byte, 1) == 1 ? 0 : 1);
}

static void expect_end(void (*child)(int fd))
{
        struct pollfd p = {.events = POLLIN};
        int fds[2], status;
        pid_t pid;

        assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
        pid = child_fork();
        assert_true(pid >= 0);
        if (pid == 0) {
                close(fds[0]);
                leave_behind(child); /* which has the other end of the pipe until it dies */
        }
        fd_close(fds[1]);
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_int_equal(status, 0);
        p.fd = fds[0];
        assert_int_equal(poll(&p, 1, PATIENCE_MSEC), 1);
        assert_true(p.revents & POLLHUP);
        fd_close(fds[0]);
}

TEST(test_ends)
{
        expect_end(stay_as_it_is);
}

TEST(test_ends_as_another)
{
        if (geteuid() != 0) {
                print_message("skipped: only root can become another user\n");
                skip();
        }
        expect_end(stay_as_another);
}
