#include "base/fd.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U /* kernel, since 6.3 */
#endif

#define READ_FIRST_BYTES 4096 /* if fstat doesn't know the size (/proc); not tuned */

int fd_close(int fd)
{
        int saved = errno;

        /* Linux closes the descriptor even if close() reports an error: never repeat it. */
        if (fd >= 0)
                close(fd);
        errno = saved;
        return -1;
}

int fd_open_standard(void)
{
        for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
                /* The lowest free number is this one; inherited, like the standard ones. */
                if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", O_RDWR) < 0)
                        return -errno;
        return 0;
}

int fd_reopen_read_only(int fd)
{
        char path[sizeof("/proc/self/fd/") + 10];
        int copy;

        snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
        /* A process with the file may hold a lease of it (F_SETLEASE): don't wait for that. */
        copy = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
        return copy < 0 ? -errno : copy;
}

int memfd_create_sized(const char *name, uint64_t bytes)
{
        _cleanup_fd_ int fd = -1;

        if (bytes > INT64_MAX)
                return -EFBIG;
        fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_NOEXEC_SEAL);
        if (fd < 0 && errno == EINVAL)
                fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
        if (fd < 0)
                return -errno;
        /* The file isn't executable on old kernels either; other uids can't reopen it through
         * /proc. */
        if (fchmod(fd, 0600) < 0 || ftruncate(fd, (off_t)bytes) < 0 ||
                fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) < 0)
                return -errno;
        return fd_take(&fd);
}

void *memory_map(int fd, uint64_t bytes)
{
        int flags = fd >= 0 ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, saved;
        void *base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, flags, fd, 0);

        if (base == MAP_FAILED)
                return NULL;
        if (madvise(base, bytes, MADV_DONTDUMP) == 0)
                return base;
        saved = errno;
        munmap(base, bytes);
        errno = saved;
        return NULL;
}

int fd_punch_hole(int fd, uint64_t offset, uint64_t len)
{
        int r;

        if (offset > INT64_MAX || len > INT64_MAX)
                return -EFBIG;
        do
                r = fallocate(
                        fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)offset, (off_t)len);
        while (r < 0 && errno == EINTR);
        return r < 0 ? -errno : 0;
}

static int write_all(int fd, const void *data, size_t len)
{
        const char *p = data;

        while (len > 0) {
                ssize_t n = write(fd, p, len);

                if (n < 0 && errno == EINTR)
                        continue;
                if (n < 0)
                        return -errno;
                p += n;
                len -= (size_t)n;
        }
        return 0;
}

/* Returns an owned descriptor of the directory of `path`, or -errno. */
static int open_parent(const char *path)
{
        _cleanup_free_ char *copy = strdup(path);
        int fd;

        if (!copy)
                return -ENOMEM;
        fd = open(dirname(copy), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        return fd < 0 ? -errno : fd;
}

/* Writes the data to `temporary` (a mkostemp template), and to disk. After a failure the file
 * stays. */
static int write_temporary(char *temporary, const void *data, size_t len, unsigned mode)
{
        _cleanup_fd_ int fd = mkostemp(temporary, O_CLOEXEC);
        int r;

        if (fd < 0)
                return -errno;
        r = write_all(fd, data, len);
        if (r < 0)
                return r;
        if (fchmod(fd, mode) < 0 || fsync(fd) < 0)
                return -errno;
        return close(fd_take(&fd)) < 0 ? -errno : 0;
}

int file_replace(const char *path, const void *data, size_t len, unsigned mode)
{
        _cleanup_fd_ int dir_fd = open_parent(path);
        _cleanup_free_ char *temporary = NULL;
        int r;

        if (dir_fd < 0)
                return dir_fd;
        if (asprintf(&temporary, "%s.tmp-XXXXXX", path) < 0) {
                temporary = NULL;
                return -ENOMEM;
        }
        r = write_temporary(temporary, data, len, mode);
        if (r == 0 && rename(temporary, path) < 0)
                r = -errno;
        if (r < 0) {
                /* If mkostemp() failed this is still the bare template: no such file. */
                unlink(temporary);
                return r;
        }
        return fsync(dir_fd) < 0 ? -errno : 0;
}

static int open_to_read(const char *path, bool only_regular, size_t *ret_hint)
{
        /* With O_NONBLOCK a FIFO without a writer opens at once. */
        const int flags = O_RDONLY | O_CLOEXEC | O_NOCTTY | (only_regular ? O_NONBLOCK : 0);
        _cleanup_fd_ int fd = open(path, flags);
        struct stat st;

        if (fd < 0 || fstat(fd, &st) < 0)
                return only_regular && errno == ENXIO ? -EBADFD : -errno; /* a socket */
        if (only_regular && !S_ISREG(st.st_mode))
                return S_ISDIR(st.st_mode) ? -EISDIR : -EBADFD;
        *ret_hint = st.st_size > 0 ? (size_t)st.st_size : READ_FIRST_BYTES;
        return fd_take(&fd);
}

ssize_t fd_read(int fd, void *to, size_t size)
{
        size_t len = 0;

        while (len < size) {
                ssize_t n = read(fd, (char *)to + len, size - len);

                if (n < 0 && errno != EINTR)
                        return -errno;
                if (n == 0)
                        break;
                len += n > 0 ? (size_t)n : 0;
        }
        return (ssize_t)len;
}

int fd_read_at(int fd, void *to, size_t size, uint64_t offset)
{
        for (size_t done = 0; done < size;) {
                ssize_t n = pread(fd, (char *)to + done, size - done, (off_t)(offset + done));

                if (n < 0 && errno != EINTR)
                        return -errno;
                if (n == 0)
                        return -ENODATA;
                done += n > 0 ? (size_t)n : 0;
        }
        return 0;
}

static int read_whole(
        const char *path, bool only_regular, size_t max, char **ret_data, size_t *ret_len)
{
        _cleanup_free_ char *data = NULL;
        size_t size = 0, len = 0, hint = 0;
        _cleanup_fd_ int fd = open_to_read(path, only_regular, &hint);

        if (fd < 0)
                return fd;
        max = MIN(max, SIZE_MAX / 4);
        /* One byte more than allowed shows that the file is longer. */
        for (size_t want = MIN(hint, max) + 1; len == size; want = MIN(2 * want, max + 1)) {
                char *bigger = realloc(data, want + 1);
                ssize_t n;

                if (!bigger)
                        return -ENOMEM;
                data = bigger;
                n = fd_read(fd, data + len, want - len);
                if (n < 0)
                        return (int)n;
                size = want;
                len += (size_t)n;
                if (len > max)
                        return -EFBIG;
        }
        data[len] = '\0';
        *ret_data = TAKE(data);
        *ret_len = len;
        return 0;
}

int file_read(const char *path, size_t max, char **ret_data, size_t *ret_len)
{
        return read_whole(path, false, max, ret_data, ret_len);
}

int file_read_regular(const char *path, size_t max, char **ret_data, size_t *ret_len)
{
        return read_whole(path, true, max, ret_data, ret_len);
}

const char *file_read_error(int error)
{
        return error == -EBADFD ? "it is no regular file" : strerror(-error);
}
