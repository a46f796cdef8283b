/* Shared by engines: threads, and an operation in blocking calls. The engine for kernels without
 * io_uring. */
#include "daemon/tier/disk-engine.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/macros.h"
#include "base/thread.h"

void disk_ring(int event_fd)
{
        const uint64_t one = 1;

        if (write(event_fd, &one, sizeof(one)) < 0)
                assert(errno == EAGAIN); /* rung 2^64 - 2 times */
}

/* ---- operations ------------------------------------------------------------------------------ */

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

/* ---- threads --------------------------------------------------------------------------------- */

static struct disk_pool *pool_of(struct disk_engine *e)
{
        return container_of(e, struct disk_pool, engine);
}

void disk_pool_init(struct disk_pool *p, const struct disk_engine_ops *ops, int fd, int event_fd)
{
        p->engine.ops = ops;
        p->fd = fd;
        p->event_fd = event_fd;
        p->wake_fd = -1;
        thread_lock_init(&p->lock);
        thread_cond_init(&p->wake);
        thread_cond_init(&p->news);
        list_init(&p->todo);
        list_init(&p->done);
}

int disk_pool_start(struct disk_pool *p, unsigned n, void *(*run)(void *))
{
        int r = 0;

        pthread_mutex_lock(&p->lock);
        while (p->n_threads < n && r == 0) {
                r = thread_start(&p->threads[p->n_threads], NULL, run, p);
                p->n_threads += r == 0;
        }
        p->n_running = p->n_threads;
        pthread_mutex_unlock(&p->lock);
        if (r < 0)
                (void)disk_pool_close(&p->engine, 10 * 1000); /* without work they end at once */
        return r;
}

/* The reaper drains the whole list, so only the first completion wakes it. */
void disk_pool_finish(struct disk_pool *p, struct disk_op *op)
{
        bool is_first;

        pthread_mutex_lock(&p->lock);
        is_first = list_is_empty(&p->done);
        list_append(&p->done, &op->link);
        pthread_mutex_unlock(&p->lock);
        if (is_first)
                disk_ring(p->event_fd);
}

void disk_pool_leave(struct disk_pool *p)
{
        pthread_mutex_lock(&p->lock);
        p->n_running--;
        pthread_cond_signal(&p->news);
        pthread_mutex_unlock(&p->lock);
}

void disk_pool_submit(struct disk_engine *e, struct disk_op *op)
{
        struct disk_pool *p = pool_of(e);
        bool is_first;

        pthread_mutex_lock(&p->lock);
        is_first = list_is_empty(&p->todo);
        list_append(&p->todo, &op->link);
        pthread_mutex_unlock(&p->lock);
        if (p->wake_fd < 0)
                pthread_cond_signal(&p->wake);
        else if (is_first) /* the thread takes all */
                disk_ring(p->wake_fd);
}

void disk_pool_reap(struct disk_engine *e, struct list_link *ret_done)
{
        struct disk_pool *p = pool_of(e);

        pthread_mutex_lock(&p->lock);
        list_take_all(&p->done, ret_done);
        pthread_mutex_unlock(&p->lock);
}

bool disk_pool_close(struct disk_engine *e, unsigned msec)
{
        struct disk_pool *p = pool_of(e);
        uint64_t until_nsec = clock_now_nsec() + msec * NSEC_PER_MSEC;
        bool is_over;

        pthread_mutex_lock(&p->lock);
        p->is_stopping = true;
        pthread_cond_broadcast(&p->wake);
        if (p->wake_fd >= 0)
                disk_ring(p->wake_fd);
        while (p->n_running > 0 && thread_cond_wait(&p->news, &p->lock, until_nsec))
                ;
        is_over = p->n_running == 0;
        for (unsigned i = 0; !is_over && i < p->n_threads; i++)
                pthread_detach(p->threads[i]);
        pthread_mutex_unlock(&p->lock);
        if (!is_over)
                return false;
        for (unsigned i = 0; i < p->n_threads; i++)
                pthread_join(p->threads[i], NULL);
        pthread_mutex_destroy(&p->lock);
        pthread_cond_destroy(&p->wake);
        pthread_cond_destroy(&p->news);
        p->release(p);
        return true;
}

/* ---- the engine of blocking calls ------------------------------------------------------------ */

/* Returns NULL at the end. */
static struct disk_op *take_op(struct disk_pool *p)
{
        struct disk_op *op;

        pthread_mutex_lock(&p->lock);
        while (list_is_empty(&p->todo) && !p->is_stopping)
                pthread_cond_wait(&p->wake, &p->lock);
        op = list_first(&p->todo, struct disk_op, link);
        if (op)
                list_remove(&op->link);
        pthread_mutex_unlock(&p->lock);
        return op;
}

static void *run_thread(void *data)
{
        struct disk_pool *p = data;
        struct disk_op *op;

        while ((op = take_op(p))) {
                disk_op_run(p->fd, op);
                disk_pool_finish(p, op);
        }
        disk_pool_leave(p);
        return NULL;
}

static void free_pool(struct disk_pool *p)
{
        free(p);
}

int disk_threads_start(
        int fd, int event_fd, unsigned depth, void *data, struct disk_engine **ret_engine)
{
        static const struct disk_engine_ops ops = {
                "threads", disk_pool_submit, disk_pool_reap, disk_pool_close};
        struct disk_pool *p = calloc(1, sizeof(*p));

        if (!p)
                return -ENOMEM;
        disk_pool_init(p, &ops, fd, event_fd);
        p->release = free_pool;
        *ret_engine = &p->engine;
        return disk_pool_start(p, DISK_THREADS, run_thread);
}
