/* A queue on a fake device, and what its callbacks saw. Everything fails the test where it fails.
 */
#ifndef KVL_TESTS_QUEUE_FIXTURE_H
#define KVL_TESTS_QUEUE_FIXTURE_H

#include <poll.h>
#include <string.h>

#include "base/clock.h"
#include "gpu/queue.h"
#include "tests/unit/fake-device.h"
#include "tests/unit/test-support.h"

#define EXTENT_BYTES  1024
#define PATIENT_MSEC  60000 /* a deadline that no test reaches */
#define HASTY_MSEC    1000  /* one that nothing but a blocked call reaches */
#define PATIENCE_MSEC 10000

struct test {
        struct fake_device device;
        struct queue *queue;
        char log[FAKE_LOG_BYTES];
};

/* Results of callbacks. */
struct outcome {
        unsigned n;
        int result;
        char why[DEVICE_WHY_BYTES];
        struct job_extent extents[8]; /* taken */
        unsigned order;               /* of callbacks: the how manyth */
        unsigned *counter;
};

static inline void start(struct test *t, unsigned deadline_msec, bool by_fd, bool batches)
{
        fake_device_init(&t->device, "slow", 256);
        fake_device_make_slow(&t->device, by_fd);
        if (batches)
                fake_device_add_batches(&t->device);
        assert_int_equal(queue_open_device(&t->device.device, deadline_msec, &t->queue), 0);
}

static inline void end(struct test *t)
{
        assert_true(queue_close(t->queue));
        assert_true(t->device.closed);
        assert_false(t->device.wrong_caller);
        fake_device_deinit(&t->device);
}

static inline void note(struct job *job, int result, void *data)
{
        struct outcome *o = data;

        o->n++;
        o->result = result;
        memcpy(o->why, job->why, sizeof(o->why));
        if (o->counter)
                o->order = ++*o->counter;
        if (job->kind == JOB_CREATE && result == 0)
                memcpy(o->extents, job->extents, job->n * sizeof(job->extents[0]));
}

static inline struct job *new_job(enum job_kind kind, size_t n, struct outcome *o)
{
        struct job *job = job_new(kind, n);

        assert_non_null(job);
        job->done = note;
        job->data = o;
        job->bytes = EXTENT_BYTES;
        return job;
}

static inline void submit(struct test *t, enum job_kind kind, size_t n, struct outcome *o)
{
        queue_submit(t->queue, new_job(kind, n, o));
}

static inline void submit_destroy(struct test *t, struct outcome *from, size_t n, struct outcome *o)
{
        struct job *job = new_job(JOB_DESTROY, n, o);

        memcpy(job->extents, from->extents, n * sizeof(job->extents[0]));
        queue_submit(t->queue, job);
}

static inline void submit_copy(
        struct test *t, enum job_kind kind, struct extent *e, void *host, struct outcome *o)
{
        struct job *job = new_job(kind, 1, o);

        job->zero = e;
        job->copies[0] = (struct device_copy){.extent = e, .host = host, .len = 16};
        queue_submit(t->queue, job);
}

/* Until the descriptor says so, or the deadline passes; nothing is done in between. */
static inline void reap_until(struct test *t, const struct outcome *o)
{
        uint64_t end_nsec = clock_now_nsec() + PATIENCE_MSEC * NSEC_PER_MSEC;

        while (o->n == 0 && clock_now_nsec() < end_nsec) {
                struct pollfd p = {.fd = queue_fd(t->queue), .events = POLLIN};
                uint64_t deadline = queue_deadline_nsec(t->queue), now = clock_now_nsec();
                int msec = PATIENCE_MSEC;

                if (deadline != UINT64_MAX)
                        msec = deadline > now ? (int)MIN((deadline - now) / NSEC_PER_MSEC + 1,
                                                        (uint64_t)PATIENCE_MSEC)
                                              : 0;
                poll(&p, 1, msec);
                queue_reap(t->queue);
        }
        assert_int_equal(o->n, 1);
}

static inline void expect_log(struct test *t, const char *calls)
{
        assert_string_equal(fake_device_take_log(&t->device, t->log), calls);
}

static inline void create(struct test *t, size_t n, struct outcome *o)
{
        submit(t, JOB_CREATE, n, o);
        reap_until(t, o);
        assert_int_equal(o->result, 0);
}

static inline void destroy(struct test *t, struct outcome *from, size_t n)
{
        struct outcome o = {0};

        submit_destroy(t, from, n, &o);
        reap_until(t, &o);
        assert_int_equal(o.result, 0);
}

#define QUEUE_SCENE(fn, ...) TEST_ON(fn, struct test, t, start, end, ##__VA_ARGS__)

#endif
