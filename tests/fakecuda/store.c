#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/macros.h"
#include "tests/fakecuda/fake.h"

/*
 * Each allocation is a file, "KIND.DEVICE.BYTES.PID.START.SERIAL". A process that opens it holds a
 * shared lock on the open file. The lock lasts until the last descriptor and mapping of that open
 * file are gone, in any process. So a file that can be locked exclusively is dead, however its
 * users ended. Looking, opening and making are serialised by the file "lock".
 */
#define RESIDUE       0xA5
#define RESIDUE_BYTES 4096

static const char *const kind_names[] = {[STORE_VMM] = "vmm", [STORE_IPC] = "ipc"};

uint64_t store_start_time(pid_t pid)
{
        char path[64], text[1024], *at;
        uint64_t start = 0;
        ssize_t n;
        int fd;

        snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
        fd = open(path, O_RDONLY | O_CLOEXEC);
        if (fd < 0)
                return 0;
        n = read(fd, text, sizeof(text) - 1);
        close(fd);
        text[n < 0 ? 0 : n] = '\0';
        at = strrchr(text, ')');
        if (!at ||
                sscanf(at,
                        ") %*c %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %" SCNu64,
                        &start) != 1)
                return 0;
        /* A zombie has no memory any more. */
        return at[2] == 'Z' ? 0 : start;
}

static void path_of(const char *name, char path[PATH_MAX])
{
        snprintf(path, PATH_MAX, "%s/%s", fake.dir, name);
}

static int dir_lock(void)
{
        char path[PATH_MAX];
        int fd;

        path_of("lock", path);
        fd = open(path, O_RDWR | O_CLOEXEC);
        if (fd < 0) {
                fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
                if (fd < 0)
                        return -errno;
                (void)fchmod(fd, 0666);
        }
        while (flock(fd, LOCK_EX) < 0) {
                if (errno != EINTR) {
                        int r = -errno;

                        close(fd);
                        return r;
                }
        }
        return fd;
}

bool store_parse(const char *name, struct store_name *ret)
{
        char kind[4];
        int end = 0;

        *ret = (struct store_name){0};
        if (sscanf(name, "%3[a-z].%d.%zu.%d.%" SCNu64 ".%u%n", kind, &ret->device, &ret->bytes,
                    &ret->pid, &ret->start, &ret->serial, &end) != 6 ||
                name[end])
                return false;
        ret->kind = strcmp(kind, kind_names[STORE_VMM]) == 0 ? STORE_VMM : STORE_IPC;
        return strcmp(kind, kind_names[ret->kind]) == 0 && ret->device >= 0 &&
               ret->device < FAKE_DEVICES_MAX;
}

/* Dir lock held. Removes the file if it is unused; returns true if a process uses it. */
static bool is_used(const char *name)
{
        char path[PATH_MAX];
        bool used;
        int fd;

        path_of(name, path);
        fd = open(path, O_RDWR | O_CLOEXEC);
        if (fd < 0)
                return false;
        used = flock(fd, LOCK_EX | LOCK_NB) < 0;
        if (!used)
                unlink(path);
        close(fd);
        return used;
}

static int count_used(int device, size_t *ret_bytes)
{
        DIR *d = opendir(fake.dir);
        struct store_name n;
        struct dirent *e;

        if (!d)
                return -errno;
        *ret_bytes = 0;
        while ((e = readdir(d)) != NULL) {
                if (store_parse(e->d_name, &n) && n.device == device && is_used(e->d_name))
                        *ret_bytes += n.bytes;
        }
        closedir(d);
        return 0;
}

int store_used(int device, size_t *ret_bytes)
{
        int lock = dir_lock(), r;

        if (lock < 0)
                return lock;
        r = count_used(device, ret_bytes);
        close(lock);
        return r;
}

/* Enough residue that uncleared memory shows in any page of 2 MiB. */
static int fill_residue(int fd, size_t bytes)
{
        char residue[RESIDUE_BYTES];

        memset(residue, RESIDUE, sizeof(residue));
        for (size_t at = 0; at < bytes; at += FAKE_GRANULARITY) {
                size_t n = MIN(bytes - at, FAKE_GRANULARITY), part = MIN(n, sizeof(residue));

                if (pwrite(fd, residue, part, (off_t)at) < 0 ||
                        pwrite(fd, residue, part, (off_t)(at + n - part)) < 0)
                        return -errno;
        }
        return 0;
}

/* Dir lock held. */
static int make_file(
        enum store_kind kind, int device, size_t bytes, int *ret_fd, char ret_name[FAKE_NAME_BYTES])
{
        static unsigned serial;
        char path[PATH_MAX];
        int fd;

        /* A program that replaced itself by exec has the same pid and start time. */
        do {
                snprintf(ret_name, FAKE_NAME_BYTES, "%s.%d.%zu.%d.%" PRIu64 ".%u", kind_names[kind],
                        device, bytes, (int)getpid(), fake.start,
                        __atomic_add_fetch(&serial, 1, __ATOMIC_RELAXED));
                path_of(ret_name, path);
                fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        } while (fd < 0 && errno == EEXIST);
        if (fd < 0)
                return -errno;
        if (fchmod(fd, 0666) < 0 || ftruncate(fd, (off_t)bytes) < 0 || flock(fd, LOCK_SH) < 0) {
                int r = -errno;

                close(fd);
                unlink(path);
                return r;
        }
        *ret_fd = fd;
        return 0;
}

int store_create(
        enum store_kind kind, int device, size_t bytes, int *ret_fd, char ret_name[FAKE_NAME_BYTES])
{
        int lock = dir_lock(), fd = -1, r;
        size_t used;

        if (lock < 0)
                return lock;
        r = count_used(device, &used);
        if (r == 0 && (bytes > fake.memory || used > fake.memory - bytes))
                r = -ENOMEM;
        if (r == 0)
                r = make_file(kind, device, bytes, &fd, ret_name);
        close(lock);
        if (r < 0)
                return r;
        r = fill_residue(fd, bytes);
        if (r < 0) {
                close(fd);
                store_forget(ret_name);
                return r;
        }
        *ret_fd = fd;
        return 0;
}

int store_open(const char *name, int *ret_fd)
{
        struct store_name n;
        char path[PATH_MAX];
        int lock, fd, r = 0;

        if (!store_parse(name, &n))
                return -EINVAL;
        if (store_start_time(n.pid) != n.start)
                return -ESTALE;
        lock = dir_lock();
        if (lock < 0)
                return lock;
        path_of(name, path);
        fd = open(path, O_RDWR | O_CLOEXEC);
        if (fd < 0 || flock(fd, LOCK_SH) < 0)
                r = -errno;
        close(lock);
        if (r < 0 && fd >= 0)
                close(fd);
        if (r == 0)
                *ret_fd = fd;
        return r;
}

bool store_identify(int fd, char ret_name[FAKE_NAME_BYTES], struct store_name *ret)
{
        char link[64], path[PATH_MAX], *name;
        struct stat here, there;
        ssize_t n;

        snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
        n = readlink(link, path, sizeof(path) - 1);
        if (n < 0)
                return false;
        path[n] = '\0';
        name = strrchr(path, '/');
        if (!name || strlen(name + 1) >= FAKE_NAME_BYTES || !store_parse(name + 1, ret) ||
                ret->kind != STORE_VMM)
                return false;
        strcpy(ret_name, name + 1);
        path_of(ret_name, path);
        return fstat(fd, &here) == 0 && stat(path, &there) == 0 && here.st_dev == there.st_dev &&
               here.st_ino == there.st_ino;
}

int store_clear(int fd, size_t bytes)
{
        return fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, (off_t)bytes) < 0
                       ? -errno
                       : 0;
}

void store_forget(const char *name)
{
        int lock = dir_lock();

        if (lock < 0)
                return;
        (void)is_used(name);
        close(lock);
}

int store_free(const char *name, int fd)
{
        char path[PATH_MAX];
        int lock = dir_lock(), r = 0;

        if (lock < 0)
                return lock;
        path_of(name, path);
        if (flock(fd, LOCK_EX | LOCK_NB) < 0)
                r = -EBUSY;
        else
                unlink(path);
        close(lock);
        return r;
}
