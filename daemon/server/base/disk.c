#include "daemon/server/base/disk.h"

#include <assert.h>
#include <pthread.h>
#include <stdlib.h>

#include "base/macros.h"

static void start_next(struct disk *d);

static void on_run(uv_work_t *work)
{
        const struct disk *d = container_of(work, struct disk, work);

        d->running->run(d->running);
}

static void on_done(uv_work_t *work, int status)
{
        struct disk *d = container_of(work, struct disk, work);
        struct disk_job *job = d->running;

        d->running = NULL;
        list_remove(&job->link);
        job->done(job);
        start_next(d);
}

static void start_next(struct disk *d)
{
        int r;

        if (d->running || list_is_empty(&d->jobs))
                return;
        d->running = list_first(&d->jobs, struct disk_job, link);
        r = uv_queue_work(d->loop, &d->work, on_run, on_done);
        assert(r == 0); /* fails without on_run alone */
        (void)r;
}

static void *end_at_once(void *data)
{
        return data;
}

static void do_nothing(uv_work_t *work)
{
        (void)work;
}

/* libuv aborts if it can't make a thread: try it first. */
static int try_thread(void)
{
        pthread_t thread;
        int r = pthread_create(&thread, NULL, end_at_once, NULL);

        if (r == 0)
                pthread_join(thread, NULL);
        return -r;
}

int disk_start(void)
{
        uv_work_t work;
        uv_loop_t loop;
        int r = try_thread();

        if (r < 0)
                return r;
        setenv("UV_THREADPOOL_SIZE", "1", 1); /* jobs run one after another */
        r = uv_loop_init(&loop);
        if (r < 0)
                return r;
        r = uv_queue_work(&loop, &work, do_nothing, NULL);
        assert(r == 0);
        uv_run(&loop, UV_RUN_DEFAULT);
        return uv_loop_close(&loop);
}

void disk_init(struct disk *d, uv_loop_t *loop)
{
        *d = (struct disk){.loop = loop};
        list_init(&d->jobs);
}

void disk_do(struct disk *d, struct disk_job *job)
{
        list_append(&d->jobs, &job->link);
        start_next(d);
}
