/* Shared by engines: an operation in blocking calls. */
#include "daemon/tier/disk-engine.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/macros.h"

void disk_ring(int event_fd)
{
        const uint64_t one = 1;

        if (write(event_fd, &one, sizeof(one)) < 0)
                assert(errno == EAGAIN); /* rung 2^64 - 2 times */
}

void disk_lock_init(pthread_mutex_t *lock)
{
        pthread_mutexattr_t attr;

        pthread_mutexattr_init(&attr);
        pthread_mutexattr_settype(&attr, PTHREAD_MUTEX_ADAPTIVE_NP);
        pthread_mutex_init(lock, &attr);
        pthread_mutexattr_destroy(&attr);
}

/* Skips the transferred bytes. */
static void advance(struct disk_op *op, uint64_t bytes)
{
        op->offset += bytes;
        op->bytes -= bytes;
        while (bytes > 0) {
                size_t len = MIN((uint64_t)op->iov->iov_len, bytes);

                op->iov->iov_base = (char *)op->iov->iov_base + len;
                op->iov->iov_len -= len;
                bytes -= len;
                if (op->iov->iov_len == 0) {
                        op->iov++;
                        op->n_iov--;
                }
        }
}

bool disk_op_moved(struct disk_op *op, int64_t r)
{
        if (r == -EINTR || r == -EAGAIN)
                return false;
        if (r > 0)
                advance(op, (uint64_t)r);
        if (r > 0 && op->bytes > 0)
                return false;
        /* Nothing was written, without an error: not seen on files; don't retry forever. */
        op->result = r > 0 ? 0 : r < 0 ? (int)r : op->kind == DISK_OP_READ ? -ENODATA : -EIO;
        if (op->result == 0 && op->kind == DISK_OP_READ && op->check)
                op->check(op);
        return true;
}

static void transfer(int fd, struct disk_op *op)
{
        ssize_t r;

        do {
                r = op->kind == DISK_OP_READ
                            ? preadv(fd, op->iov, (int)op->n_iov, (off_t)op->offset)
                            : pwritev(fd, op->iov, (int)op->n_iov, (off_t)op->offset);
        } while (!disk_op_moved(op, r < 0 ? -errno : r));
}

int disk_file_is_whole(int fd, uint64_t bytes)
{
        struct stat st;

        if (fstat(fd, &st) < 0)
                return -errno;
        if (st.st_nlink == 0)
                return -ENOENT;
        return (uint64_t)st.st_size < bytes ? -ENODATA : 0;
}

static int flush(int fd, uint64_t bytes)
{
        if (fdatasync(fd) < 0)
                return -errno;
        return disk_file_is_whole(fd, bytes);
}

int disk_zero_otherwise(int fd, uint64_t offset, uint64_t bytes)
{
        if (fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)offset, (off_t)bytes) <
                0)
                return errno == EOPNOTSUPP ? 0 : -errno;
        return fallocate(fd, FALLOC_FL_KEEP_SIZE, (off_t)offset, (off_t)bytes) < 0 ? -errno : 0;
}

static int zero(int fd, uint64_t offset, uint64_t bytes)
{
        if (fallocate(fd, FALLOC_FL_ZERO_RANGE | FALLOC_FL_KEEP_SIZE, (off_t)offset,
                    (off_t)bytes) == 0)
                return 0;
        return errno == EOPNOTSUPP ? disk_zero_otherwise(fd, offset, bytes) : -errno;
}

static int discard_contents(int fd)
{
        return ftruncate(fd, 0) < 0 || fsync(fd) < 0 ? -errno : 0;
}

void disk_op_run(int fd, struct disk_op *op)
{
        switch (op->kind) {
        case DISK_OP_READ:
        case DISK_OP_WRITE:
                transfer(fd, op);
                break;
        case DISK_OP_FLUSH:
                op->result = flush(fd, op->bytes);
                break;
        case DISK_OP_ZERO:
                op->result = zero(fd, op->offset, op->bytes);
                break;
        case DISK_OP_DISCARD:
                op->result = discard_contents(fd);
                break;
        }
}
