#include "gpu/queue.h"

#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/thread.h"
#include "gpu/queue-work.h"

/* Interval of polling a batch: short compared to the milliseconds of a batch worth its overhead.
 * Not tuned. */
#define POLL_NSEC (50 * NSEC_PER_USEC)

static struct task *task_of(struct job *job)
{
        return container_of(job, struct task, job);
}

/* ---- jobs ------------------------------------------------------------------------------------ */

static bool carries_extents(enum job_kind kind)
{
        return kind == JOB_CREATE || kind == JOB_DESTROY || kind == JOB_CANARY;
}

/* Jobs that free memory copies may use: never run before them, and never refused. */
static bool gives_back(enum job_kind kind)
{
        return kind == JOB_DESTROY || kind == JOB_UNREGISTER;
}

struct job *job_new(enum job_kind kind, size_t n)
{
        bool has_extents = carries_extents(kind);
        size_t bytes = has_extents ? n * sizeof(struct job_extent) : 0;
        _cleanup_free_ struct task *t = calloc(1, sizeof(*t) + bytes);
        _cleanup_free_ struct work *w = calloc(1, sizeof(*w) + bytes);
        bool has_copies = n > 0 && !has_extents;

        if (!t || !w)
                return NULL;
        if (has_copies) {
                t->job.copies = calloc(n, sizeof(*t->job.copies));
                if (!t->job.copies)
                        return NULL;
        }
        list_init(&t->link);
        list_init(&w->link);
        t->job.kind = kind;
        t->job.n = n;
        for (size_t i = 0; has_extents && i < n; i++)
                t->job.extents[i].handle.fd = w->extents[i].handle.fd = -1;
        t->work = TAKE(w);
        return &TAKE(t)->job;
}

static void work_free(struct work *w)
{
        if (w)
                free(w->copies);
        free(w);
}

void job_free(struct job *job)
{
        if (!job)
                return;
        work_free(task_of(job)->work);
        free(job->copies);
        free(task_of(job));
}

/* ---- between loop and thread; the lock is held ----------------------------------------------- */

static void ring_owner(struct queue *q)
{
        const uint64_t one = 1;

        if (q->event_fd >= 0 && write(q->event_fd, &one, sizeof(one)) < 0)
                assert(errno == EAGAIN); /* rung 2^64 - 2 times */
}

static struct list_link *list_of(struct queue *q, const struct work *w)
{
        if (w->kind == JOB_COPY_OUT)
                return &q->copies[DEVICE_TO_HOST];
        return w->kind == JOB_COPY_IN ? &q->copies[DEVICE_FROM_HOST] : &q->others;
}

static bool has_waiting(const struct queue *q)
{
        return !list_is_empty(&q->others) || !list_is_empty(&q->copies[0]) ||
               !list_is_empty(&q->copies[1]);
}

static bool is_idle(const struct queue *q)
{
        return !q->running && list_is_empty(&q->flights) && !has_waiting(q);
}

/* The callback can have it. */
static void deliver(struct queue *q, struct task *t, int result, const char *why)
{
        t->result = result;
        snprintf(t->job.why, sizeof(t->job.why), "%s", why);
        list_append(&q->done, &t->link);
        ring_owner(q);
}

/* Ends a work that won't run; the thread doesn't have it. */
static void refuse_work(struct queue *q, struct work *w, int result, const char *why)
{
        struct task *t = w->task;

        list_remove(&w->link);
        t->job.copies = TAKE(w->copies);
        work_free(w);
        deliver(q, t, result, why);
}

#define DURATION_TEXT 32
static const char *format_deadline(const struct queue *q, char buf[DURATION_TEXT])
{
        uint64_t msec = q->deadline_nsec / NSEC_PER_MSEC;
        bool is_even = msec % 1000 == 0;

        snprintf(buf, DURATION_TEXT, "%llu %s", (unsigned long long)(is_even ? msec / 1000 : msec),
                is_even ? "s" : "ms");
        return buf;
}

/* Ends a late job for its caller; the driver still has the work. */
static void give_up(struct queue *q, struct work *w, const char *what)
{
        char after[DURATION_TEXT];

        snprintf(q->late_why, sizeof(q->late_why), "the driver hasn't answered %s for %s", what,
                format_deadline(q, after));
        deliver(q, TAKE(w->task), -ETIMEDOUT, q->late_why);
        q->n_late++;
}

static void refuse_waiting(struct queue *q)
{
        struct list_link *const lists[] = {&q->others, &q->copies[0], &q->copies[1]};

        for (size_t i = 0; i < ARRAY_SIZE(lists); i++)
                list_for_each_safe (w, lists[i], struct work, link)
                        if (!gives_back(w->kind))
                                refuse_work(q, w, -ETIMEDOUT, q->late_why);
}

static void find_late(struct queue *q)
{
        uint64_t now = clock_now_nsec();

        if (q->n_late > 0)
                return;
        if (q->call && q->running && now - q->since_nsec >= q->deadline_nsec)
                give_up(q, q->running, q->call);
        list_for_each (w, &q->flights, struct work, link)
                if (w->task && now - w->since_nsec >= q->deadline_nsec)
                        give_up(q, w, "a batch of copies");
        if (q->n_late > 0)
                refuse_waiting(q);
        else if (!q->call && now - q->since_nsec >= q->deadline_nsec)
                q->since_nsec = now; /* the thread has yet to run */
}

/* ---- the thread ------------------------------------------------------------------------------ */

/* With the lock: ends a work. Results of a late one were destroyed. */
static void finish_work(struct queue *q, struct work *w, int result)
{
        struct task *t = w->task;

        list_remove(&w->link);
        q->since_nsec = clock_now_nsec();
        if (t) {
                if (w->kind == JOB_CREATE && result == 0)
                        memcpy(t->job.extents, w->extents, w->n * sizeof(w->extents[0]));
                t->job.copies = TAKE(w->copies);
                deliver(q, t, result, w->why);
        } else if (--q->n_late == 0) {
                ring_owner(q); /* it works again: waiting jobs have a deadline from now on */
        }
        work_free(w);
        pthread_cond_signal(&q->news);
}

/* With the lock, which is given up meanwhile. */
static void start_work(struct queue *q, struct work *w)
{
        int r;

        q->running = w;
        list_remove(&w->link);
        if (w->kind == JOB_CREATE && q->broken) {
                memcpy(w->why, q->broken_why, sizeof(w->why));
                r = -ENXIO;
        } else {
                pthread_mutex_unlock(&q->lock);
                r = run_work(q, w);
                pthread_mutex_lock(&q->lock);
        }
        q->running = NULL;
        if (r == -EINPROGRESS) {
                w->since_nsec = clock_now_nsec();
                list_append(&q->flights, &w->link);
        } else {
                finish_work(q, w, r);
        }
}

static void poll_flights(struct queue *q)
{
        list_for_each_safe (w, &q->flights, struct work, link) {
                int r;

                q->running = w;
                pthread_mutex_unlock(&q->lock);
                call_begin(q, "batch_poll");
                r = q->device->ops->batch_poll(w->batch);
                (void)call_end(q, w, r);
                pthread_mutex_lock(&q->lock);
                q->running = NULL;
                if (r != -EBUSY)
                        finish_work(q, w, r);
        }
}

static bool flies(const struct queue *q, enum job_kind kind)
{
        list_for_each (w, &q->flights, struct work, link)
                if (w->kind == kind)
                        return true;
        return false;
}

static bool has_before(const struct list_link *works, uint64_t seq)
{
        list_for_each (w, works, struct work, link)
                if (w->seq < seq)
                        return true;
        return false;
}

/* The oldest work that may run beside batches in flight: one batch a direction, and no release of
 * memory that older copies may use. NULL: none. */
static struct work *next_work(struct queue *q)
{
        struct work *best = list_first(&q->others, struct work, link);

        if (best && gives_back(best->kind) && has_before(&q->flights, best->seq))
                best = NULL; /* copies that wait are older, and picked below */
        for (size_t i = 0; i < ARRAY_SIZE(q->copies); i++) {
                struct work *w = list_first(&q->copies[i], struct work, link);

                if (w && !flies(q, w->kind) && (!best || w->seq < best->seq))
                        best = w;
        }
        return best;
}

/* Runs until the end is requested and no work is left. */
static void work_on(struct queue *q)
{
        for (;;) {
                struct work *w;

                poll_flights(q);
                w = next_work(q);
                if (w) {
                        start_work(q, w);
                        continue;
                }
                if (q->stopping && list_is_empty(&q->flights) && !has_waiting(q))
                        return;
                (void)thread_cond_wait(&q->wake, &q->lock,
                        list_is_empty(&q->flights) ? UINT64_MAX : clock_now_nsec() + POLL_NSEC);
        }
}

/* Frees results that will never be fetched. */
static void drop_done(struct queue *q)
{
        struct task *t;

        while ((t = list_first(&q->done, struct task, link))) {
                list_remove(&t->link);
                pthread_mutex_unlock(&q->lock);
                if (t->job.kind == JOB_CREATE && t->result == 0)
                        destroy_extents(q, t->job.extents, t->job.n, !t->job.is_import);
                job_free(&t->job);
                pthread_mutex_lock(&q->lock);
        }
}

static int open_device(struct queue *q)
{
        int r = 0;

        q->call = "open";
        pthread_mutex_unlock(&q->lock);
        if (!q->device)
                r = device_open(q->name, &q->options, &q->device, q->open_why);
        if (r == 0)
                q->props = q->device->props;
        pthread_mutex_lock(&q->lock);
        q->call = NULL;
        q->open_result = r;
        q->opened = true;
        q->since_nsec = clock_now_nsec();
        pthread_cond_signal(&q->news);
        return r;
}

/* The last one frees it. Unlocks. */
static void unref(struct queue *q)
{
        bool is_last = --q->refs == 0;

        pthread_mutex_unlock(&q->lock);
        if (!is_last)
                return;
        fd_close(q->event_fd);
        pthread_mutex_destroy(&q->lock);
        pthread_cond_destroy(&q->wake);
        pthread_cond_destroy(&q->news);
        free(q);
}

static void *thread_main(void *data)
{
        struct queue *q = data;

        pthread_mutex_lock(&q->lock);
        if (open_device(q) == 0) {
                work_on(q);
                drop_done(q);
                pthread_mutex_unlock(&q->lock);
                device_close(call_begin(q, "close"));
                pthread_mutex_lock(&q->lock);
        }
        q->call = NULL;
        q->ended = true;
        pthread_cond_signal(&q->news);
        unref(q);
        return NULL;
}

/* ---- the loop -------------------------------------------------------------------------------- */

static struct queue *queue_alloc(unsigned deadline_msec)
{
        struct queue *q = calloc(1, sizeof(*q));

        if (!q)
                return NULL;
        pthread_mutex_init(&q->lock, NULL);
        thread_cond_init(&q->wake);
        thread_cond_init(&q->news);
        list_init(&q->others);
        list_init(&q->copies[0]);
        list_init(&q->copies[1]);
        list_init(&q->flights);
        list_init(&q->done);
        q->refs = 1;
        q->deadline_nsec = MAX(deadline_msec, 1u) * NSEC_PER_MSEC;
        q->since_nsec = clock_now_nsec();
        q->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        return q;
}

static int start_thread(struct queue *q)
{
        int r;

        q->refs++;
        r = thread_start(&q->thread, NULL, thread_main, q);
        if (r < 0)
                q->refs--;
        return r;
}

/* The thread has ended, or is about to. */
static void join_thread(struct queue *q)
{
        pthread_join(q->thread, NULL);
        pthread_mutex_lock(&q->lock);
        unref(q);
}

/* Locked. The owner leaves; the thread ends by itself, if ever. */
static void leave_behind(struct queue *q)
{
        q->stopping = true;
        q->event_fd = fd_close(q->event_fd);
        pthread_detach(q->thread);
        unref(q);
}

static int wait_for_open(struct queue *q, char why[DEVICE_WHY_BYTES])
{
        uint64_t until = clock_now_nsec() + q->deadline_nsec;
        int r;

        pthread_mutex_lock(&q->lock);
        while (!q->opened && clock_now_nsec() < until)
                (void)thread_cond_wait(&q->news, &q->lock, until);
        if (!q->opened) {
                char after[DURATION_TEXT];

                snprintf(why, DEVICE_WHY_BYTES, "the driver hasn't answered open for %s",
                        format_deadline(q, after));
                leave_behind(q);
                return -ETIMEDOUT;
        }
        memcpy(why, q->open_why, DEVICE_WHY_BYTES);
        r = q->open_result;
        pthread_mutex_unlock(&q->lock);
        if (r < 0)
                join_thread(q);
        return r;
}

static int queue_start(struct queue *q, struct queue **ret_queue, char why[DEVICE_WHY_BYTES])
{
        int r = q->event_fd < 0 ? -errno : start_thread(q);

        if (r < 0) {
                pthread_mutex_lock(&q->lock);
                unref(q);
                return r;
        }
        r = wait_for_open(q, why);
        if (r == 0)
                *ret_queue = q;
        return r;
}

int queue_open(const char *name, const struct device_options *options, unsigned deadline_msec,
        struct queue **ret_queue, char why[DEVICE_WHY_BYTES])
{
        struct queue *q;

        why[0] = '\0';
        if (name && strlen(name) > DEVICE_NAME_MAX)
                return -ENODEV;
        q = queue_alloc(deadline_msec);
        if (!q)
                return -ENOMEM;
        if (name)
                strcpy(q->name, name);
        if (options)
                q->options = *options;
        return queue_start(q, ret_queue, why);
}

int queue_open_device(struct device *device, unsigned deadline_msec, struct queue **ret_queue)
{
        struct queue *q = queue_alloc(deadline_msec);
        char why[DEVICE_WHY_BYTES];

        if (!q)
                return -ENOMEM;
        q->device = device;
        return queue_start(q, ret_queue, why);
}

/* Locked. Never earlier than it would be late. */
static uint64_t deadline_of(const struct queue *q)
{
        uint64_t until = q->since_nsec + q->deadline_nsec;

        list_for_each (w, &q->flights, struct work, link)
                until = MIN(until, w->since_nsec + q->deadline_nsec);
        return until;
}

/* Locked. Beside jobs, the thread makes calls when it ends. */
static bool is_late(struct queue *q)
{
        find_late(q);
        return q->n_late > 0 ||
               (q->call && !q->running && clock_now_nsec() - q->since_nsec >= q->deadline_nsec);
}

bool queue_close(struct queue *q)
{
        uint64_t until;

        if (!q)
                return true;
        pthread_mutex_lock(&q->lock);
        until = clock_now_nsec() + q->deadline_nsec;
        q->stopping = true;
        list_for_each_safe (w, &q->others, struct work, link)
                if (w->kind == JOB_CREATE)
                        refuse_work(q, w, -ECANCELED, "");
        pthread_cond_signal(&q->wake);
        while (!q->ended) {
                if (is_late(q) || clock_now_nsec() >= until) {
                        leave_behind(q);
                        return false;
                }
                (void)thread_cond_wait(&q->news, &q->lock, MIN(deadline_of(q), until));
        }
        pthread_mutex_unlock(&q->lock);
        join_thread(q);
        return true;
}

void queue_set_park(struct queue *q, const struct queue_park *park)
{
        pthread_mutex_lock(&q->lock);
        assert(q->last_seq == 0);
        q->park = *park;
        pthread_mutex_unlock(&q->lock);
}

void queue_set_canary(struct queue *q, unsigned member, const struct queue_canary *canary)
{
        assert(canary->number > 0 && canary->value != 0 && member < DEVICE_MEMBERS_MAX);

        pthread_mutex_lock(&q->lock);
        q->canaries[member] = *canary;
        pthread_mutex_unlock(&q->lock);
}

const struct device_props *queue_props(const struct queue *q)
{
        return &q->props;
}

int queue_fd(const struct queue *q)
{
        return q->event_fd;
}

void queue_submit(struct queue *q, struct job *job)
{
        struct task *t = task_of(job);
        struct work *w = TAKE(t->work);

        assert(w);

        w->task = t;
        w->kind = job->kind;
        w->n = job->n;
        w->bytes = job->bytes;
        w->is_import = job->is_import;
        w->lets_go = job->lets_go;
        w->canary = job->canary;
        w->zero = job->zero;
        w->copies = TAKE(job->copies);
        if (carries_extents(job->kind))
                memcpy(w->extents, job->extents, job->n * sizeof(job->extents[0]));
        pthread_mutex_lock(&q->lock);
        if (is_idle(q))
                q->since_nsec = clock_now_nsec();
        w->seq = ++q->last_seq;
        list_append(list_of(q, w), &w->link);
        if (q->n_late > 0)
                refuse_waiting(q);
        pthread_cond_signal(&q->wake);
        pthread_mutex_unlock(&q->lock);
}

unsigned queue_reap(struct queue *q)
{
        struct list_link turn;
        uint64_t rung;
        struct task *t;
        unsigned n = 0;

        list_init(&turn);
        pthread_mutex_lock(&q->lock);
        if (read(q->event_fd, &rung, sizeof(rung)) < 0)
                assert(errno == EAGAIN);
        find_late(q);
        while ((t = list_first(&q->done, struct task, link))) {
                list_remove(&t->link);
                list_append(&turn, &t->link);
        }
        pthread_mutex_unlock(&q->lock);
        for (; (t = list_first(&turn, struct task, link)); n++) {
                list_remove(&t->link);
                if (t->job.done)
                        t->job.done(&t->job, t->result, t->job.data);
                job_free(&t->job);
        }
        return n;
}

struct run {
        struct job_extent *extents;
        char *why;
        bool is_done;
        int result;
};

static void on_run(struct job *job, int result, void *data)
{
        struct run *run = data;

        run->is_done = true;
        run->result = result;
        if (result < 0)
                memcpy(run->why, job->why, DEVICE_WHY_BYTES);
        else if (run->extents)
                memcpy(run->extents, job->extents, job->n * sizeof(job->extents[0]));
}

int queue_run(struct queue *q, struct job *job, struct job_extent *ret_extents,
        char why[DEVICE_WHY_BYTES])
{
        struct run run = {.extents = ret_extents, .why = why};
        struct pollfd fd = {.fd = q->event_fd, .events = POLLIN};

        job->done = on_run;
        /* The queue has no reference to `run` any more when this returns. */
        /* cppcheck-suppress autoVariables */
        job->data = &run;
        queue_submit(q, job);
        while (!run.is_done) {
                uint64_t deadline = queue_deadline_nsec(q), now = clock_now_nsec();
                uint64_t left = deadline > now ? (deadline - now) / NSEC_PER_MSEC + 1 : 0;

                (void)poll(&fd, 1, (int)MIN(left, UINT64_C(1000)));
                (void)queue_reap(q);
        }
        return run.result;
}

uint64_t queue_deadline_nsec(const struct queue *queue)
{
        struct queue *q = (struct queue *)queue;
        uint64_t until;

        pthread_mutex_lock(&q->lock);
        until = q->n_late > 0 || is_idle(q) ? UINT64_MAX : deadline_of(q);
        pthread_mutex_unlock(&q->lock);
        return until;
}

bool queue_is_stuck(const struct queue *queue)
{
        struct queue *q = (struct queue *)queue;
        bool is_stuck;

        pthread_mutex_lock(&q->lock);
        is_stuck = q->n_late > 0;
        pthread_mutex_unlock(&q->lock);
        return is_stuck;
}

bool queue_is_broken(const struct queue *queue)
{
        struct queue *q = (struct queue *)queue;
        bool is_broken;

        pthread_mutex_lock(&q->lock);
        is_broken = q->broken;
        pthread_mutex_unlock(&q->lock);
        return is_broken;
}
