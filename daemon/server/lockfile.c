#include "daemon/server/lockfile.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/macros.h"
#include "base/parse.h"

/* Locks the file at `path`, which may be unlinked meanwhile by the daemon that had it. */
static int take(const char *path)
{
        for (;;) {
                _cleanup_fd_ int fd =
                        open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0644);
                struct stat ours, there;

                if (fd < 0)
                        return -errno;
                if (fstat(fd, &ours) < 0)
                        return -errno;
                if (!S_ISREG(ours.st_mode))
                        return -EINVAL;
                if (flock(fd, LOCK_EX | LOCK_NB) < 0)
                        return errno == EWOULDBLOCK ? -EBUSY : -errno;
                if (stat(path, &there) == 0 && ours.st_ino == there.st_ino)
                        return fd_take(&fd);
        }
}

int lockfile_take(const char *path)
{
        _cleanup_fd_ int fd = take(path);

        if (fd < 0)
                return fd_take(&fd);
        /* For people and for the next daemon's message; the lock itself needs no text. */
        if (ftruncate(fd, 0) < 0 || dprintf(fd, "%d\n", (int)getpid()) < 0)
                return -errno;
        return fd_take(&fd);
}

uint64_t lockfile_owner(const char *path)
{
        _cleanup_free_ char *text = NULL;
        uint64_t pid = 0;
        size_t len = 0;

        if (file_read(path, 32, &text, &len) < 0)
                return 0;
        text[strcspn(text, "\n")] = '\0';
        return parse_u64(text, &pid) == 0 ? pid : 0;
}

int lockfile_drop(const char *path, int fd)
{
        if (fd >= 0)
                unlink(path);
        return fd_close(fd);
}
