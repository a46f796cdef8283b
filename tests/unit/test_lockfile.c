/* Lock files belong to this daemon alone, despite other files and processes that open them. */
#include "tests/unit/test-support.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/macros.h"
#include "daemon/server/base/lockfile.h"

#define STRANGER 65533 /* no user of the system's */

struct place {
        char dir[32], path[64], fresh[64];
};

static int setup(void **state)
{
        struct place *p = calloc(1, sizeof(*p));

        assert_non_null(p);
        strcpy(p->dir, "/tmp/kvl-lock-XXXXXX");
        assert_non_null(mkdtemp(p->dir));
        snprintf(p->path, sizeof(p->path), "%s/lock", p->dir);
        snprintf(p->fresh, sizeof(p->fresh), "%s/lock.new", p->dir);
        *state = p;
        return 0;
}

static int teardown(void **state)
{
        struct place *p = *state;

        unlink(p->path);
        unlink(p->fresh);
        assert_int_equal(rmdir(p->dir), 0); /* and nothing else was left there */
        free(p);
        return 0;
}

static unsigned mode_of(const char *path)
{
        struct stat st;

        assert_int_equal(lstat(path, &st), 0);
        return st.st_mode & 07777;
}

/* A file of an older daemon, or of another program. */
static void leave(const char *path, const char *text, unsigned mode)
{
        assert_int_equal(file_replace(path, text, strlen(text), mode), 0);
}

/* A process that is gone. */
static pid_t dead(void)
{
        pid_t pid = fork();

        if (pid == 0)
                _exit(0);
        assert_int_equal(waitpid(pid, NULL, 0), pid);
        return pid;
}

TEST_WITH(test_take_and_drop, setup, teardown, NULL)
{
        struct place *p = *state;
        mode_t mask = umask(0);
        int fd = lockfile_take(p->path);

        umask(mask);
        assert_true(fd >= 0);
        assert_int_equal(mode_of(p->path), 0600);
        assert_int_equal(lockfile_owner(p->path), getpid());
        assert_int_equal(lockfile_take(p->path), -EBUSY);
        assert_int_equal(lockfile_drop(p->path, fd), -1);
        assert_int_equal(access(p->path, F_OK), -1);
}

/* A stranger could open the file, and may lock it now or later: another file becomes the lock. */
TEST_WITH(test_open_to_others, setup, teardown, NULL)
{
        static const bool held[] = {true, false};
        struct place *p = *state;
        char text[32];

        for (size_t i = 0; i < ARRAY_SIZE(held); i++) {
                int stranger, fd;

                snprintf(text, sizeof(text), "%d\n", (int)dead());
                leave(p->path, text, 0644);
                stranger = open(p->path, O_RDONLY | O_CLOEXEC);
                assert_true(stranger >= 0);
                if (held[i])
                        assert_int_equal(flock(stranger, LOCK_EX), 0);
                fd = lockfile_take(p->path);
                assert_true(fd >= 0);
                assert_int_equal(mode_of(p->path), 0600);
                assert_int_equal(lockfile_owner(p->path), getpid());
                assert_int_equal(flock(stranger, LOCK_EX | LOCK_NB), 0); /* and it says nothing */
                assert_int_equal(lockfile_take(p->path), -EBUSY);
                fd_close(stranger);
                lockfile_drop(p->path, fd);
        }
}

/* One that an older daemon has is its as long as it lives; whose number a process of another user
 * has got isn't there any more. */
TEST_WITH(test_of_a_living_daemon, setup, teardown, NULL)
{
        struct place *p = *state;
        char text[32];
        int theirs, fd, changed;
        eventfd_t n;
        pid_t other;

        snprintf(text, sizeof(text), "%d\n", (int)getpid());
        leave(p->path, text, 0644);
        theirs = open(p->path, O_RDWR | O_CLOEXEC);
        assert_int_equal(flock(theirs, LOCK_EX), 0);
        assert_int_equal(lockfile_take(p->path), -EBUSY);
        assert_int_equal(ftruncate(theirs, 0), 0); /* it has just locked it */
        assert_int_equal(lockfile_take(p->path), -EBUSY);
        assert_int_equal(mode_of(p->path), 0644);
        if (geteuid() != 0) {
                fd_close(theirs);
                return;
        }
        changed = eventfd(0, EFD_CLOEXEC);
        other = fork();
        if (other == 0) {
                if (setuid(STRANGER) == 0 && eventfd_write(changed, 1) == 0)
                        pause();
                _exit(1);
        }
        assert_int_equal(eventfd_read(changed, &n), 0);
        fd_close(changed);
        assert_int_equal(dprintf(theirs, "%d\n", (int)other) > 0, 1);
        fd = lockfile_take(p->path);
        kill(other, SIGKILL);
        waitpid(other, NULL, 0);
        assert_true(fd >= 0);
        fd_close(theirs);
        lockfile_drop(p->path, fd);
}

/* Another's file, a second name of some file, a link, a pipe: none is truncated or locked. */
TEST_WITH(test_not_ours, setup, teardown, NULL)
{
        struct place *p = *state;
        struct stat st;
        char other[80], text[8] = "";
        int fd;

        snprintf(other, sizeof(other), "%s/other", p->dir);
        leave(other, "kept", 0600);
        assert_int_equal(link(other, p->path), 0);
        fd = lockfile_take(p->path);
        assert_true(fd >= 0);
        lockfile_drop(p->path, fd);
        fd = open(other, O_RDONLY | O_CLOEXEC);
        assert_int_equal(read(fd, text, sizeof(text)), 4);
        assert_string_equal(text, "kept");
        fd_close(fd);
        assert_int_equal(symlink("other", p->path), 0);
        assert_int_equal(lockfile_take(p->path), -ELOOP);
        assert_int_equal(unlink(p->path), 0);
        assert_int_equal(unlink(other), 0);
        assert_int_equal(mkfifo(p->path, 0600), 0);
        assert_int_equal(lockfile_take(p->path), -EINVAL);
        assert_int_equal(unlink(p->path), 0);
        if (geteuid() != 0)
                return;
        leave(p->path, "x", 0600);
        assert_int_equal(chown(p->path, STRANGER, (gid_t)-1), 0);
        fd = lockfile_take(p->path);
        assert_true(fd >= 0);
        assert_int_equal(fstat(fd, &st), 0);
        assert_int_equal(st.st_uid, 0);
        lockfile_drop(p->path, fd);
}

/* Another daemon is about to replace it, or was killed then. */
TEST_WITH(test_replaced_by_two, setup, teardown, NULL)
{
        struct place *p = *state;
        char text[32];
        int theirs, fd;

        snprintf(text, sizeof(text), "%d\n", (int)dead());
        leave(p->path, text, 0644);
        leave(p->fresh, "", 0600);
        theirs = open(p->fresh, O_RDWR | O_CLOEXEC);
        assert_int_equal(flock(theirs, LOCK_EX), 0);
        assert_int_equal(lockfile_take(p->path), -EBUSY);
        assert_int_equal(mode_of(p->path), 0644);
        fd_close(theirs);
        fd = lockfile_take(p->path);
        assert_true(fd >= 0);
        assert_int_equal(mode_of(p->path), 0600);
        lockfile_drop(p->path, fd);
}

/* Many that start at once over a file that must be replaced: never two have the lock. */
TEST_WITH(test_race, setup, teardown, NULL)
{
        struct place *p = *state;

        for (unsigned round = 0; round < 20; round++) {
                pid_t pids[8];
                unsigned n_got = 0, n_gone = 0;
                char text[32], byte;
                int over[2];

                snprintf(text, sizeof(text), "%d\n", (int)dead());
                leave(p->path, text, 0644);
                assert_int_equal(pipe(over), 0);
                for (size_t i = 0; i < ARRAY_SIZE(pids); i++) {
                        pids[i] = fork();
                        if (pids[i] == 0) {
                                int fd = lockfile_take(p->path);

                                /* The holder keeps the lock until all have tried. The file stays,
                                 * as with a killed process: only the lock ends. */
                                close(over[1]);
                                if (fd >= 0)
                                        (void)!read(over[0], &byte, 1);
                                _exit(fd >= 0 ? 7 : fd == -EBUSY ? 0 : 1);
                        }
                }
                close(over[0]);
                for (unsigned tries = 0; n_gone < ARRAY_SIZE(pids); tries++) {
                        int status;
                        pid_t pid = waitpid(-1, &status, WNOHANG);

                        if (n_gone == ARRAY_SIZE(pids) - 1 || tries == 10000)
                                over[1] = fd_close(over[1]);
                        if (pid == 0) {
                                usleep(1000);
                                continue;
                        }
                        assert_true(pid > 0);
                        assert_true(WIFEXITED(status) && WEXITSTATUS(status) != 1);
                        n_got += WEXITSTATUS(status) == 7;
                        n_gone++;
                }
                assert_int_equal(n_got, 1);
                unlink(p->path);
        }
}

/* The file was removed, and another daemon took a new one, which this daemon must not remove. */
TEST_WITH(test_drop_removed, setup, teardown, NULL)
{
        struct place *p = *state;
        int fd = lockfile_take(p->path), second;

        assert_int_equal(unlink(p->path), 0);
        second = lockfile_take(p->path);
        assert_true(fd >= 0 && second >= 0);
        lockfile_drop(p->path, fd);
        assert_int_equal(access(p->path, F_OK), 0);
        lockfile_drop(p->path, second);
}
