#include "daemon/server/config/rundir.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cgroup.h"
#include "base/dir.h"
#include "base/fd.h"
#include "daemon/server/base/lockfile.h"
#include "daemon/server/base/log.h"
#include "proto/sock.h"

#define PATH_SIZE (CONFIG_PATH_MAX + 16)

#define LOCK_MAX 16384 /* bytes of the lock file: more than lives.c writes */

/* A dangling symbolic link exists for mkdir(), but not for stat(). */
static int check_dir(const char *path, struct stat *ret_stat)
{
        if (stat(path, ret_stat) < 0)
                return -errno;
        return S_ISDIR(ret_stat->st_mode) ? 0 : -ENOTDIR;
}

static int make_dir(const char *path, bool *ret_made)
{
        struct stat st;

        if (mkdir(path, 0755) == 0) {
                *ret_made = true;
                /* Clients must get through under any umask. */
                return chmod(path, 0755) < 0 ? -errno : 0;
        }
        return errno == EEXIST ? check_dir(path, &st) : -errno;
}

static int explain_failure(int r, const char *path, struct detail *d)
{
        struct stat st;

        if (r == -ENOENT && lstat(path, &st) == 0 && S_ISLNK(st.st_mode))
                return detail_set(d, r,
                        "cannot use the runtime directory %s: it is a symbolic link to nothing: "
                        "remove the link, make what it points at, or give another by --runtime-dir",
                        path);
        if (r == -ENOENT)
                return detail_set(d, r,
                        "cannot make the runtime directory %s: the directory above it is missing: make that or give another by --runtime-dir",
                        path);
        if (r == -ENOTDIR)
                return detail_set(d, r,
                        "cannot use the runtime directory %s: it or what is above it is no directory: remove that or give another by --runtime-dir",
                        path);
        if (r == -ENOSPC || r == -EDQUOT)
                return detail_set(d, r,
                        "cannot use the runtime directory %s: %s: make room on its file system, or give another by --runtime-dir",
                        path, strerror(-r));
        return detail_set(d, r,
                "cannot use the runtime directory %s: %s: make it writable for uid %u or give another by --runtime-dir",
                path, strerror(-r), (unsigned)geteuid());
}

/* Checks that no other user can write there, and replace our sockets. */
static int check_writers(const char *path, struct detail *d)
{
        char why[DIR_WHY_BYTES];
        struct stat st;
        int r = check_dir(path, &st);

        if (r < 0)
                return explain_failure(r, path, d);
        r = dir_check(path, 0, 0, why);
        if (r < 0)
                return detail_set(d, r,
                        "cannot use the runtime directory %s: %s, or give another by --runtime-dir",
                        path, why);
        if (st.st_mode & S_IWGRP)
                log_warning(
                        "group %u may write to the runtime directory %s and take the place of kvleased there: chmod g-w it",
                        (unsigned)st.st_gid, path);
        return 0;
}

static int explain_busy(const char *lock_path, const char *path, struct detail *d)
{
        uint64_t pid = lockfile_owner(lock_path);

        if (pid > 0)
                return detail_set(d, -EBUSY,
                        "another kvleased (pid %llu) uses %s: stop it or give another --runtime-dir",
                        (unsigned long long)pid, path);
        return detail_set(
                d, -EBUSY, "another kvleased uses %s: stop it or give another --runtime-dir", path);
}

/* Makes the parent of the tenants' directories. A user who can write there could pose as a
 * tenant. */
static int make_tenants_dir(struct rundir *d, struct detail *detail)
{
        char name[PATH_SIZE], why[DIR_WHY_BYTES];
        int r;

        snprintf(name, sizeof(name), "%s/t", d->path);
        r = dir_make(name, DIR_NO_LINK, 0755, why);
        if (r < 0)
                return detail_set(detail, r, "cannot use the tenants' directory %s: %s", name, why);
        d->made_tenants_dir = r > 0;
        return 0;
}

static int explain_lock(int r, const char *name, const char *path, struct detail *d)
{
        struct stat st;

        if (r == -EACCES && lstat(name, &st) == 0 && st.st_uid != geteuid())
                return detail_set(d, r,
                        "cannot lock %s: it belongs to uid %u: remove it, once no kvleased of that user uses %s",
                        name, (unsigned)st.st_uid, path);
        if (r == -ELOOP || r == -EINVAL)
                return detail_set(d, r, "cannot lock %s: it is no regular file: remove it", name);
        return explain_failure(r, path, d);
}

int rundir_open(struct rundir *d, const char *path, struct detail *detail)
{
        _cleanup_free_ char *past = NULL;
        struct cgroup_oom_kills kills;
        char name[PATH_SIZE];
        struct stat st;
        size_t len;
        int r;

        *d = (struct rundir){.lock_fd = -1};
        snprintf(d->path, sizeof(d->path), "%s", path);
        r = make_dir(path, &d->made);
        if (r < 0)
                return explain_failure(r, path, detail);
        r = check_writers(path, detail);
        if (r < 0)
                return r;
        snprintf(name, sizeof(name), "%s/lock", path);
        d->after_crash = lstat(name, &st) == 0;
        /* The file may belong to a running daemon: then the lock isn't taken. */
        (void)file_read_regular(name, LOCK_MAX, &past, &len);
        d->lock_fd = lockfile_take(name);
        if (d->lock_fd == -EBUSY)
                return explain_busy(name, path, detail);
        if (d->lock_fd < 0)
                return explain_lock(d->lock_fd, name, path, detail);
        kills = cgroup_oom_kills();
        r = lives_begin(&d->lives, past, &kills, d->lock_fd);
        if (r < 0)
                return explain_lock(r, name, path, detail);
        return make_tenants_dir(d, detail);
}

/* Removes a crashed daemon's socket of a tenant, if no process (systemd) listens there. */
static void remove_left(const char *tenants, const char *tenant)
{
        char path[PATH_SIZE + NAME_MAX + 8];
        int fd;

        snprintf(path, sizeof(path), "%s/%s/sock", tenants, tenant);
        fd = sock_connect(path);
        if (fd == -ECONNREFUSED)
                unlink(path);
        else
                fd_close(fd);
        *strrchr(path, '/') = '\0';
        rmdir(path);
}

static void remove_all_left(const char *tenants)
{
        DIR *dir = opendir(tenants);

        if (!dir)
                return;
        for (struct dirent *e; (e = readdir(dir));)
                if (e->d_name[0] != '.')
                        remove_left(tenants, e->d_name);
        closedir(dir);
}

void rundir_leave(struct rundir *d)
{
        if (d->lock_fd >= 0)
                lives_end(d->lock_fd);
        d->lock_fd = fd_close(d->lock_fd);
}

void rundir_close(struct rundir *d)
{
        char name[PATH_SIZE];

        if (d->lock_fd < 0)
                return;
        snprintf(name, sizeof(name), "%s/t", d->path);
        if (d->after_crash)
                remove_all_left(name);
        if (d->made_tenants_dir || d->after_crash)
                rmdir(name);
        snprintf(name, sizeof(name), "%s/lock", d->path);
        d->lock_fd = lockfile_drop(name, d->lock_fd);
        if (d->made)
                rmdir(d->path);
}
