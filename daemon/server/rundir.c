#include "daemon/server/rundir.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"

#define PATH_SIZE (CONFIG_PATH_MAX + 16)

static int make_dir(const char *path, bool *ret_made)
{
        if (mkdir(path, 0755) == 0) {
                *ret_made = true;
                return 0;
        }
        return errno == EEXIST ? 0 : -errno;
}

static int explain(int r, const char *path, struct detail *d)
{
        return detail_set(d, r,
                "cannot use the runtime directory %s: %s: make it writable for uid %u or give "
                "another "
                "by --runtime-dir",
                path, strerror(-r), (unsigned)geteuid());
}

/* Locks the file at `path`, which may be unlinked meanwhile by the daemon that had it. */
static int lock_file(const char *path)
{
        for (;;) {
                _cleanup_fd_ int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644);
                struct stat ours, there;

                if (fd < 0)
                        return -errno;
                if (flock(fd, LOCK_EX | LOCK_NB) < 0)
                        return errno == EWOULDBLOCK ? -EBUSY : -errno;
                if (fstat(fd, &ours) == 0 && stat(path, &there) == 0 && ours.st_ino == there.st_ino)
                        return fd_take(&fd);
        }
}

static int explain_busy(const char *lock_path, const char *path, struct detail *d)
{
        _cleanup_free_ char *text = NULL;
        size_t len = 0;
        uint64_t pid = 0;

        if (file_read(lock_path, 32, &text, &len) == 0)
                text[strcspn(text, "\n")] = '\0';
        if (text && parse_u64(text, &pid) == 0)
                return detail_set(d, -EBUSY,
                        "another kvleased (pid %llu) uses %s: stop it or give another "
                        "--runtime-dir",
                        (unsigned long long)pid, path);
        return detail_set(
                d, -EBUSY, "another kvleased uses %s: stop it or give another --runtime-dir", path);
}

int rundir_open(struct rundir *d, const char *path, struct detail *detail)
{
        char name[PATH_SIZE];
        int r;

        *d = (struct rundir){.lock_fd = -1};
        snprintf(d->path, sizeof(d->path), "%s", path);
        r = make_dir(path, &d->made);
        if (r < 0)
                return explain(r, path, detail);
        snprintf(name, sizeof(name), "%s/lock", path);
        d->lock_fd = lock_file(name);
        if (d->lock_fd == -EBUSY)
                return explain_busy(name, path, detail);
        if (d->lock_fd < 0)
                return explain(d->lock_fd, path, detail);
        /* For people and for the next daemon's message; the lock itself needs no text. */
        if (ftruncate(d->lock_fd, 0) < 0 || dprintf(d->lock_fd, "%d\n", (int)getpid()) < 0)
                return explain(-errno, path, detail);
        snprintf(name, sizeof(name), "%s/t", path);
        r = make_dir(name, &d->made_tenants_dir);
        return r < 0 ? explain(r, path, detail) : 0;
}

void rundir_close(struct rundir *d)
{
        char name[PATH_SIZE];

        if (d->lock_fd < 0)
                return;
        snprintf(name, sizeof(name), "%s/t", d->path);
        if (d->made_tenants_dir)
                rmdir(name);
        snprintf(name, sizeof(name), "%s/lock", d->path);
        unlink(name);
        d->lock_fd = fd_close(d->lock_fd);
        if (d->made)
                rmdir(d->path);
}
