/*
 * The engine over io_uring: one thread has the ring. It sleeps in the kernel until an operation is
 * done or uring_submit() rings, for which a read of `wake_fd` is always under way.
 */
#include <errno.h>
#include <fcntl.h>
#include <liburing.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/thread.h"
#include "daemon/tier/disk-engine.h"

struct uring {
        struct disk_engine engine;
        int fd, event_fd; /* borrowed */
        int wake_fd;
        pthread_t thread;
        pthread_mutex_t lock; /* of what follows */
        pthread_cond_t news;  /* for close(): the thread has ended */
        struct list_link todo, done;
        bool is_stopping, has_ended;

        /* The thread's. */
        struct io_uring ring;
        struct list_link mine; /* taken, to be started */
        unsigned depth, n_flight;
        uint64_t woken; /* buffer for reads of wake_fd */
        bool is_listening, is_ending;
};

static struct uring *uring_of(struct disk_engine *e)
{
        return container_of(e, struct uring, engine);
}

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

        io_uring_prep_read(sqe, u->wake_fd, &u->woken, sizeof(u->woken), 0);
        io_uring_sqe_set_data(sqe, NULL);
        u->is_listening = true;
}

/* The reaper drains the whole list, so only the first completion wakes it. */
static void uring_finish(struct uring *u, struct disk_op *op)
{
        bool is_first;

        pthread_mutex_lock(&u->lock);
        is_first = list_is_empty(&u->done);
        list_append(&u->done, &op->link);
        pthread_mutex_unlock(&u->lock);
        if (is_first)
                disk_ring(u->event_fd);
}

static void uring_start(struct uring *u, struct disk_op *op)
{
        struct io_uring_sqe *sqe;

        if (op->kind == DISK_OP_DISCARD) { /* the last of all: nothing is held up */
                disk_op_run(u->fd, op);
                uring_finish(u, op);
                return;
        }
        sqe = next_sqe(u);
        if (op->kind == DISK_OP_READ)
                io_uring_prep_readv(sqe, u->fd, op->iov, op->n_iov, op->offset);
        else if (op->kind == DISK_OP_WRITE)
                io_uring_prep_writev(sqe, u->fd, op->iov, op->n_iov, op->offset);
        else if (op->kind == DISK_OP_FLUSH)
                io_uring_prep_fsync(sqe, u->fd, IORING_FSYNC_DATASYNC);
        else
                io_uring_prep_fallocate(sqe, u->fd, FALLOC_FL_ZERO_RANGE | FALLOC_FL_KEEP_SIZE,
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
                op->result = r < 0 ? r : disk_file_is_whole(u->fd, op->bytes);
        else
                op->result =
                        r == -EOPNOTSUPP ? disk_zero_otherwise(u->fd, op->offset, op->bytes) : r;
        if (is_over)
                uring_finish(u, op);
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

/* Takes new operations. Returns false at the end, when none runs; close_uring() has rung for
 * that. */
static bool take_new(struct uring *u)
{
        struct list_link taken;

        pthread_mutex_lock(&u->lock);
        list_take_all(&u->todo, &taken);
        u->is_ending = u->is_stopping;
        pthread_mutex_unlock(&u->lock);
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
        pthread_mutex_lock(&u->lock);
        u->has_ended = true;
        pthread_cond_signal(&u->news);
        pthread_mutex_unlock(&u->lock);
        return NULL;
}

static void uring_submit(struct disk_engine *e, struct disk_op *op)
{
        struct uring *u = uring_of(e);
        bool is_first;

        pthread_mutex_lock(&u->lock);
        is_first = list_is_empty(&u->todo); /* the thread takes all */
        list_append(&u->todo, &op->link);
        pthread_mutex_unlock(&u->lock);
        if (is_first)
                disk_ring(u->wake_fd);
}

static void uring_reap(struct disk_engine *e, struct list_link *ret_done)
{
        struct uring *u = uring_of(e);

        pthread_mutex_lock(&u->lock);
        list_take_all(&u->done, ret_done);
        pthread_mutex_unlock(&u->lock);
}

static void uring_free(struct uring *u)
{
        io_uring_queue_exit(&u->ring);
        pthread_mutex_destroy(&u->lock);
        pthread_cond_destroy(&u->news);
        fd_close(u->wake_fd);
        free(u);
}

static bool close_uring(struct disk_engine *e, unsigned msec)
{
        struct uring *u = uring_of(e);
        uint64_t until = clock_now_nsec() + msec * NSEC_PER_MSEC;
        struct timespec at = {(time_t)(until / NSEC_PER_SEC), (long)(until % NSEC_PER_SEC)};
        bool is_over;

        pthread_mutex_lock(&u->lock);
        u->is_stopping = true;
        disk_ring(u->wake_fd);
        while (!u->has_ended && pthread_cond_timedwait(&u->news, &u->lock, &at) == 0)
                ;
        is_over = u->has_ended;
        pthread_mutex_unlock(&u->lock);
        if (is_over) {
                pthread_join(u->thread, NULL);
                uring_free(u);
        } else {
                pthread_detach(u->thread);
        }
        return is_over;
}

static const struct disk_engine_ops ops = {"io_uring", uring_submit, uring_reap, close_uring};

static void uring_init(struct uring *u, int fd, int event_fd, unsigned depth)
{
        pthread_condattr_t attr;

        u->engine.ops = &ops;
        u->fd = fd;
        u->event_fd = event_fd;
        u->depth = depth;
        list_init(&u->todo);
        list_init(&u->done);
        list_init(&u->mine);
        disk_lock_init(&u->lock);
        pthread_condattr_init(&attr);
        pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
        pthread_cond_init(&u->news, &attr);
        pthread_condattr_destroy(&attr);
        u->wake_fd = eventfd(0, EFD_CLOEXEC);
}

int disk_uring_start(
        int fd, int event_fd, unsigned depth, void *data, struct disk_engine **ret_engine)
{
        struct uring *u = calloc(1, sizeof(*u));
        int r;

        if (!u)
                return -ENOMEM;
        r = io_uring_queue_init(depth + 1, &u->ring, 0);
        if (r < 0) {
                free(u);
                return r;
        }
        uring_init(u, fd, event_fd, depth);
        r = u->wake_fd < 0 ? -errno : thread_start(&u->thread, NULL, uring_run, u);
        if (r < 0) {
                uring_free(u);
                return r;
        }
        *ret_engine = &u->engine;
        return 0;
}
