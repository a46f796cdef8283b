/* The engine for kernels without io_uring: some threads with blocking calls. */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <time.h>

#include "base/clock.h"
#include "base/thread.h"
#include "daemon/tier/disk-engine.h"

struct threads {
        struct disk_engine engine;
        int fd, event_fd;     /* borrowed */
        pthread_mutex_t lock; /* of what follows */
        pthread_cond_t wake;  /* a thread: work, or the end */
        pthread_cond_t news;  /* for close(): a thread has ended */
        struct list_link todo, done;
        unsigned n_running;
        bool is_stopping;

        pthread_t threads[DISK_THREADS];
        unsigned n_threads; /* that were started */
};

static struct threads *threads_of(struct disk_engine *e)
{
        return container_of(e, struct threads, engine);
}

static struct disk_op *threads_take(struct threads *t)
{
        struct disk_op *op;

        while (list_is_empty(&t->todo) && !t->is_stopping)
                pthread_cond_wait(&t->wake, &t->lock);
        op = list_first(&t->todo, struct disk_op, link);
        if (op)
                list_remove(&op->link);
        return op;
}

/* The reaper drains the whole list, so only the first completion wakes it. */
static void threads_finish(struct threads *t, struct disk_op *op)
{
        bool is_first;

        pthread_mutex_lock(&t->lock);
        is_first = list_is_empty(&t->done);
        list_append(&t->done, &op->link);
        pthread_mutex_unlock(&t->lock);
        if (is_first)
                disk_ring(t->event_fd);
}

static void *threads_run(void *data)
{
        struct threads *t = data;
        struct disk_op *op;

        pthread_mutex_lock(&t->lock);
        while ((op = threads_take(t))) {
                pthread_mutex_unlock(&t->lock);
                disk_op_run(t->fd, op);
                threads_finish(t, op);
                pthread_mutex_lock(&t->lock);
        }
        t->n_running--;
        pthread_cond_signal(&t->news);
        pthread_mutex_unlock(&t->lock);
        return NULL;
}

static void threads_submit(struct disk_engine *e, struct disk_op *op)
{
        struct threads *t = threads_of(e);

        pthread_mutex_lock(&t->lock);
        list_append(&t->todo, &op->link);
        pthread_mutex_unlock(&t->lock);
        pthread_cond_signal(&t->wake);
}

static void threads_reap(struct disk_engine *e, struct list_link *ret_done)
{
        struct threads *t = threads_of(e);

        pthread_mutex_lock(&t->lock);
        list_take_all(&t->done, ret_done);
        pthread_mutex_unlock(&t->lock);
}

static void threads_free(struct threads *t)
{
        for (unsigned i = 0; i < t->n_threads; i++)
                pthread_join(t->threads[i], NULL);
        pthread_mutex_destroy(&t->lock);
        pthread_cond_destroy(&t->wake);
        pthread_cond_destroy(&t->news);
        free(t);
}

static bool close_threads(struct disk_engine *e, unsigned msec)
{
        struct threads *t = threads_of(e);
        uint64_t until = clock_now_nsec() + msec * NSEC_PER_MSEC;
        struct timespec at = {(time_t)(until / NSEC_PER_SEC), (long)(until % NSEC_PER_SEC)};
        bool is_over;

        pthread_mutex_lock(&t->lock);
        t->is_stopping = true;
        pthread_cond_broadcast(&t->wake);
        while (t->n_running > 0 && pthread_cond_timedwait(&t->news, &t->lock, &at) == 0)
                ;
        is_over = t->n_running == 0;
        for (unsigned i = 0; !is_over && i < t->n_threads; i++)
                pthread_detach(t->threads[i]);
        pthread_mutex_unlock(&t->lock);
        if (is_over)
                threads_free(t);
        return is_over;
}

static const struct disk_engine_ops ops = {"threads", threads_submit, threads_reap, close_threads};

static void threads_init(struct threads *t, int fd, int event_fd)
{
        pthread_condattr_t attr;

        *t = (struct threads){.engine = {&ops}, .fd = fd, .event_fd = event_fd};
        disk_lock_init(&t->lock);
        pthread_condattr_init(&attr);
        pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
        pthread_cond_init(&t->wake, &attr);
        pthread_cond_init(&t->news, &attr);
        pthread_condattr_destroy(&attr);
        list_init(&t->todo);
        list_init(&t->done);
}

static int start_one(struct threads *t)
{
        int r;

        pthread_mutex_lock(&t->lock);
        r = thread_start(&t->threads[t->n_threads], NULL, threads_run, t);
        if (r == 0) {
                t->n_threads++;
                t->n_running++;
        }
        pthread_mutex_unlock(&t->lock);
        return r;
}

int disk_threads_start(
        int fd, int event_fd, unsigned depth, void *data, struct disk_engine **ret_engine)
{
        struct threads *t = malloc(sizeof(*t));
        int r = 0;

        if (!t)
                return -ENOMEM;
        threads_init(t, fd, event_fd);
        for (unsigned i = 0; i < DISK_THREADS && r == 0; i++)
                r = start_one(t);
        if (r < 0) {
                /* Without work they end at once. */
                (void)close_threads(&t->engine, 10 * 1000);
                return r;
        }
        *ret_engine = &t->engine;
        return 0;
}
