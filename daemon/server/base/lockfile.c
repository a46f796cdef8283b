#include "daemon/server/base/lockfile.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/macros.h"
#include "base/parse.h"
#include "daemon/server/base/log.h"

/* Bytes read of /proc/PID/status, which has some 1.5 KiB. Not tuned. */
#define STATUS_MAX (64 << 10)

/* Fresh files that turn out not to be ours, before giving up. Not tuned. */
#define TRIES 16

static bool is_same(const struct stat *a, const struct stat *b)
{
        return a->st_dev == b->st_dev && a->st_ino == b->st_ino;
}

static bool is_at(const char *path, const struct stat *file)
{
        struct stat there;

        return lstat(path, &there) == 0 && is_same(file, &there);
}

/* A process that can open a file, even for reading, can lock it: no other user may have opened this
 * one. */
static bool is_ours(const struct stat *st)
{
        return st->st_uid == geteuid() && (st->st_mode & 077) == 0 && st->st_nlink == 1;
}

/* Returns the owned descriptor, and whether it has the lock now; or -errno. */
static int open_and_lock(const char *path, struct stat *ret_stat, bool *ret_locked)
{
        _cleanup_fd_ int fd =
                open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600);

        if (fd < 0)
                return -errno;
        *ret_locked = flock(fd, LOCK_EX | LOCK_NB) == 0;
        if (!*ret_locked && errno != EWOULDBLOCK)
                return -errno;
        if (fstat(fd, ret_stat) < 0)
                return -errno;
        return S_ISREG(ret_stat->st_mode) ? fd_take(&fd) : -EINVAL;
}

/* The effective uid of a process; -ESRCH: it doesn't exist; another -errno: unknown. */
static int uid_of(uint64_t pid, uid_t *ret_uid)
{
        _cleanup_free_ char *text = NULL;
        char path[sizeof("/proc/18446744073709551615/status")];
        const char *line;
        unsigned uid;
        size_t len;
        int r;

        snprintf(path, sizeof(path), "/proc/%" PRIu64 "/status", pid);
        r = file_read(path, STATUS_MAX, &text, &len);
        if (r == -ENOENT)
                return access("/proc/self/status", F_OK) == 0 ? -ESRCH : -ENOENT;
        if (r < 0)
                return r;
        line = strstr(text, "\nUid:");
        if (!line || sscanf(line, "\nUid: %*u %u", &uid) != 1)
                return -EINVAL;
        *ret_uid = uid;
        return 0;
}

static uint64_t read_pid(int fd)
{
        char text[32] = "";
        uint64_t pid = 0;

        if (pread(fd, text, sizeof(text) - 1, 0) < 0)
                return 0;
        text[strcspn(text, "\n")] = '\0';
        return parse_u64(text, &pid) == 0 ? pid : 0;
}

/*
 * True if the process whose number is in the file may still live and have the lock; if unknown,
 * true. Only the file's owner writes there.
 */
static bool may_be_in_use(int fd, const struct stat *file)
{
        uint64_t pid = read_pid(fd);
        uid_t uid;
        int r;

        if (pid == 0)
                return true;
        r = uid_of(pid, &uid);
        return r == 0 ? uid == file->st_uid : r != -ESRCH;
}

/*
 * Makes a locked file of ours under a name where none is expected. Only the holder of its lock
 * removes or renames it: else two processes could hold one each. -EBUSY: another process has it.
 * -EPERM: it isn't ours, in a directory where no other user makes files.
 */
static int take_fresh(const char *path)
{
        for (unsigned i = 0; i < TRIES; i++) {
                struct stat st;
                bool locked;
                _cleanup_fd_ int fd = open_and_lock(path, &st, &locked);

                if (fd < 0)
                        return fd_take(&fd);
                if (st.st_nlink == 0) /* removed by another process that gave up: not valid */
                        continue;
                if (!is_ours(&st))
                        return -EPERM;
                if (!locked)
                        return -EBUSY;
                if (is_at(path, &st))
                        return fd_take(&fd);
        }
        return -EBUSY;
}

/*
 * Puts a locked file of ours in place of `judged`. If several daemons try, the one with the lock on
 * the new file succeeds; the others find it locked. -EAGAIN: another file is there now.
 */
static int replace_file(const char *path, const struct stat *judged)
{
        _cleanup_free_ char *fresh = NULL;
        _cleanup_fd_ int fd = -1;
        int r;

        if (asprintf(&fresh, "%s.new", path) < 0) {
                fresh = NULL;
                return -ENOMEM;
        }
        fd = take_fresh(fresh);
        if (fd < 0)
                return fd_take(&fd);
        if (!is_at(path, judged))
                r = -EAGAIN;
        else
                r = rename(fresh, path) < 0 ? -errno : 0;
        if (r < 0) {
                unlink(fresh);
                return r;
        }
        return fd_take(&fd);
}

/* Locks the file at `path`, which may be unlinked meanwhile by the daemon that had it. */
static int take_file(const char *path)
{
        for (;;) {
                struct stat st;
                bool locked;
                _cleanup_fd_ int fd = open_and_lock(path, &st, &locked);
                int r;

                if (fd < 0)
                        return fd_take(&fd);
                if (is_ours(&st)) {
                        if (!locked)
                                return -EBUSY;
                        if (is_at(path, &st))
                                return fd_take(&fd);
                        continue;
                }
                if (!locked && may_be_in_use(fd, &st))
                        return -EBUSY;
                r = replace_file(path, &st);
                if (r >= 0 && !locked)
                        log_warning(
                                "another program than kvleased holds a lock on the file that was "
                                "%s: others could open it; it is replaced by one that they can't",
                                path);
                if (r != -EAGAIN)
                        return r;
        }
}

int lockfile_take(const char *path)
{
        _cleanup_fd_ int fd = take_file(path);

        if (fd < 0)
                return fd_take(&fd);
        /* For people and for the next daemon's message; the lock itself needs no text. */
        if (ftruncate(fd, 0) < 0 || dprintf(fd, "%d\n", (int)getpid()) < 0)
                return -errno;
        return fd_take(&fd);
}

uint64_t lockfile_owner(const char *path)
{
        _cleanup_fd_ int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);

        return fd < 0 ? 0 : read_pid(fd);
}

int lockfile_drop(const char *path, int fd)
{
        struct stat ours;

        /* Another daemon may have replaced a removed file. */
        if (fd >= 0 && fstat(fd, &ours) == 0 && is_at(path, &ours))
                unlink(path);
        return fd_close(fd);
}
