/*
 * The engine over io_uring: one thread has the ring. It sleeps in the kernel until an operation is
 * done or disk_pool_submit() rings, for which a read of `wake_fd` is always under way.
 */
#include <errno.h>
#include <fcntl.h>
#include <liburing.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <time.h>

#include "base/clock.h"
#include "base/fd.h"
#include "daemon/tier/disk-engine.h"

struct uring {
        struct disk_pool pool; /* of one thread, woken by pool.wake_fd */

        /* The thread's. */
        struct io_uring ring;
        struct list_link mine; /* taken, to be started */
        unsigned depth, n_flight;
        uint64_t woken; /* buffer for reads of wake_fd */
        bool is_listening, is_ending;
};

/* Room for `depth` operations and the read of wake_fd: the ring has it. */
static struct io_uring_sqe *next_sqe(struct uring *u)
{
        struct io_uring_sqe *sqe = io_uring_get_sqe(&u->ring);

        assert(sqe);
        return sqe;
}

static void listen_for_wake(struct uring *u)
{
        struct io_uring_sqe *sqe = next_sqe(u);

        io_uring_prep_read(sqe, u->pool.wake_fd, &u->woken, sizeof(u->woken), 0);
        io_uring_sqe_set_data(sqe, NULL);
        u->is_listening = true;
}

static void uring_start(struct uring *u, struct disk_op *op)
{
        struct io_uring_sqe *sqe;

        if (op->kind == DISK_OP_DISCARD) { /* the last of all: nothing is held up */
                disk_op_run(u->pool.fd, op);
                disk_pool_finish(&u->pool, op);
                return;
        }
        sqe = next_sqe(u);
        if (op->kind == DISK_OP_READ)
                io_uring_prep_readv(sqe, u->pool.fd, op->iov, op->n_iov, op->offset);
        else if (op->kind == DISK_OP_WRITE)
                io_uring_prep_writev(sqe, u->pool.fd, op->iov, op->n_iov, op->offset);
        else if (op->kind == DISK_OP_FLUSH)
                io_uring_prep_fsync(sqe, u->pool.fd, IORING_FSYNC_DATASYNC);
        else
                io_uring_prep_fallocate(sqe, u->pool.fd, FALLOC_FL_ZERO_RANGE | FALLOC_FL_KEEP_SIZE,
                        (off_t)op->offset, (off_t)op->bytes);
        io_uring_sqe_set_data(sqe, op);
        u->n_flight++;
}

static void complete(struct uring *u, struct disk_op *op, int r)
{
        bool is_over = true;

        u->n_flight--;
        if (op->kind == DISK_OP_READ || op->kind == DISK_OP_WRITE)
                is_over = disk_op_moved(op, r);
        else if (op->kind == DISK_OP_FLUSH)
                op->result = r < 0 ? r : disk_file_is_whole(u->pool.fd, op->bytes);
        else
                op->result = r == -EOPNOTSUPP
                                     ? disk_zero_otherwise(u->pool.fd, op->offset, op->bytes)
                                     : r;
        if (is_over)
                disk_pool_finish(&u->pool, op);
        else
                list_append(&u->mine, &op->link);
}

static void reap_ring(struct uring *u)
{
        struct io_uring_cqe *cqe;

        while (io_uring_peek_cqe(&u->ring, &cqe) == 0) {
                struct disk_op *op = io_uring_cqe_get_data(cqe);
                int r = cqe->res;

                io_uring_cqe_seen(&u->ring, cqe);
                if (op)
                        complete(u, op, r);
                else
                        u->is_listening = false;
        }
}

/* Takes new operations. Returns false at the end, when none runs; disk_pool_close() has rung
 * for that. */
static bool take_new(struct uring *u)
{
        struct list_link taken;

        pthread_mutex_lock(&u->pool.lock);
        list_take_all(&u->pool.todo, &taken);
        u->is_ending = u->pool.is_stopping;
        pthread_mutex_unlock(&u->pool.lock);
        list_for_each_safe (op, &taken, struct disk_op, link) {
                list_remove(&op->link);
                list_append(&u->mine, &op->link);
        }
        return !u->is_ending || u->is_listening || u->n_flight > 0 || !list_is_empty(&u->mine);
}

static void *uring_run(void *data)
{
        /* Pause until the kernel has memory again, or completions were taken. Not tuned. */
        const struct timespec pause = {0, (long)NSEC_PER_MSEC};
        struct uring *u = data;

        while (take_new(u)) {
                struct disk_op *op;
                int r;

                if (!u->is_listening && !u->is_ending)
                        listen_for_wake(u);
                while (u->n_flight < u->depth &&
                        (op = list_first(&u->mine, struct disk_op, link))) {
                        list_remove(&op->link);
                        uring_start(u, op);
                }
                /* Entries left in the ring are submitted with the next call. */
                r = io_uring_submit_and_wait(&u->ring, 1);
                if (r < 0 && r != -EINTR)
                        (void)nanosleep(&pause, NULL);
                reap_ring(u);
        }
        disk_pool_leave(&u->pool);
        return NULL;
}

static void uring_free(struct disk_pool *p)
{
        struct uring *u = container_of(p, struct uring, pool);

        io_uring_queue_exit(&u->ring);
        fd_close(u->pool.wake_fd);
        free(u);
}

int disk_uring_start(
        int fd, int event_fd, unsigned depth, void *data, struct disk_engine **ret_engine)
{
        static const struct disk_engine_ops ops = {
                "io_uring", disk_pool_submit, disk_pool_reap, disk_pool_close};
        struct uring *u = calloc(1, sizeof(*u));
        int r;

        if (!u)
                return -ENOMEM;
        r = io_uring_queue_init(depth + 1, &u->ring, 0);
        if (r < 0) {
                free(u);
                return r;
        }
        disk_pool_init(&u->pool, &ops, fd, event_fd);
        u->pool.release = uring_free;
        u->depth = depth;
        list_init(&u->mine);
        u->pool.wake_fd = eventfd(0, EFD_CLOEXEC);
        *ret_engine = &u->pool.engine;
        if (u->pool.wake_fd >= 0)
                return disk_pool_start(&u->pool, 1, uring_run);
        r = -errno;
        (void)disk_pool_close(&u->pool.engine, 0);
        return r;
}
