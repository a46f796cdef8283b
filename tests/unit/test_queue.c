#include "gpu/queue.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>
#include <fcntl.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/fd.h"
#include "tests/unit/alloc-fail.h"
#include "tests/unit/queue-fixture.h"

QUEUE_SCENE(test_callbacks_run_in_reap_alone, PATIENT_MSEC, false, false)
{
        struct outcome made = {0}, other = {0};
        struct pollfd p;

        fake_device_block(&t->device, "create");
        submit(t, JOB_CREATE, 1, &made);
        fake_device_wait_inside(&t->device);
        assert_int_equal(queue_reap(t->queue), 0);
        assert_true(
                queue_deadline_nsec(t->queue) <= clock_now_nsec() + PATIENT_MSEC * NSEC_PER_MSEC);
        fake_device_unblock(&t->device);
        p = (struct pollfd){.fd = queue_fd(t->queue), .events = POLLIN};
        assert_int_equal(poll(&p, 1, PATIENCE_MSEC), 1);
        assert_int_equal(made.n, 0);
        assert_int_equal(queue_reap(t->queue), 1);
        assert_int_equal(made.n, 1);
        /* Nothing to do: the descriptor says so. */
        assert_int_equal(poll(&p, 1, 0), 0);
        destroy(t, &made, 1);
        create(t, 1, &other);
        destroy(t, &other, 1);
}

QUEUE_SCENE(test_destroy_waits_for_a_stuck_driver, HASTY_MSEC, true, false)
{
        struct outcome a = {0}, b = {0}, late = {0}, before = {0}, during = {0};

        create(t, 1, &a);
        create(t, 1, &b);
        fake_device_block(&t->device, "create");
        submit(t, JOB_CREATE, 1, &late);
        submit_destroy(t, &a, 1, &before);
        reap_until(t, &late);
        assert_true(queue_is_stuck(t->queue));
        submit_destroy(t, &b, 1, &during);
        queue_reap(t->queue);
        assert_int_equal(before.n + during.n, 0);
        assert_int_equal(fake_device_count(&t->device), 2);
        fake_device_unblock(&t->device);
        reap_until(t, &during);
        assert_int_equal(before.n, 1);
        assert_int_equal(before.result, 0);
        assert_int_equal(fake_device_count(&t->device), 0);
}

QUEUE_SCENE(test_late_destroy_goes_on, HASTY_MSEC, true, false)
{
        struct outcome a = {0}, late = {0}, again = {0};

        create(t, 3, &a);
        fake_device_block(&t->device, "destroy");
        submit_destroy(t, &a, 3, &late);
        reap_until(t, &late);
        assert_int_equal(late.result, -ETIMEDOUT);
        fake_device_unblock(&t->device);
        while (queue_is_stuck(t->queue))
                poll(&(struct pollfd){.fd = queue_fd(t->queue), .events = POLLIN}, 1, 1000);
        assert_int_equal(fake_device_count(&t->device), 0);
        create(t, 1, &again);
        destroy(t, &again, 1);
}

TEST(test_broken_device)
{
        struct outcome a = {0}, first = {0}, second = {0};
        struct test t;

        start(&t, PATIENT_MSEC, true, false);
        create(&t, 1, &a);
        fake_device_fail(&t.device, "zero", 1, -ENXIO);
        submit_copy(&t, JOB_ZERO, a.extents[0].extent, NULL, &first);
        reap_until(&t, &first);
        assert_int_equal(first.result, -ENXIO);
        assert_true(queue_is_broken(t.queue));
        fake_device_take_log(&t.device, t.log);
        submit(&t, JOB_CREATE, 1, &second);
        reap_until(&t, &second);
        assert_int_equal(second.result, -ENXIO);
        assert_string_equal(second.why, "zero fails by order");
        expect_log(&t, ""); /* it isn't asked any more */
        destroy(&t, &a, 1);
        end(&t);
}

QUEUE_SCENE(test_copies_one_by_one, PATIENT_MSEC, false, false)
{
        struct outcome a = {0}, out = {0}, in = {0};
        char host[16];

        create(t, 1, &a);
        fake_device_take_log(&t->device, t->log);
        submit_copy(t, JOB_COPY_OUT, a.extents[0].extent, host, &out);
        reap_until(t, &out);
        fake_device_fail(&t->device, "write", 1, -EIO);
        submit_copy(t, JOB_COPY_IN, a.extents[0].extent, host, &in);
        reap_until(t, &in);
        expect_log(t, "read write ");
        assert_int_equal(out.result, 0);
        assert_int_equal(in.result, -EIO);
        destroy(t, &a, 1);
}

TEST(test_batches_fly_beside_jobs)
{
        struct outcome a = {0}, b = {0}, out = {0}, out2 = {0}, in = {0}, gone = {0};
        char host[16];
        struct test t;

        start(&t, PATIENT_MSEC, false, true);
        create(&t, 1, &a);
        fake_device_take_log(&t.device, t.log);
        submit_copy(&t, JOB_COPY_OUT, a.extents[0].extent, host, &out);
        submit_copy(&t, JOB_COPY_OUT, a.extents[0].extent, host, &out2);
        submit_copy(&t, JOB_COPY_IN, a.extents[0].extent, host, &in);
        create(&t, 1, &b);
        /* Both directions fly; the second of one waits for the first. */
        assert_int_equal(out.n + out2.n + in.n, 0);
        expect_log(&t, "start-out start-in create export ");
        /* Extents aren't destroyed while copies read or write them. */
        submit_destroy(&t, &a, 1, &gone);
        fake_device_end_batch(&t.device, DEVICE_FROM_HOST);
        reap_until(&t, &in);
        assert_int_equal(out.n + gone.n, 0);
        fake_device_end_batch(&t.device, DEVICE_TO_HOST);
        reap_until(&t, &out);
        assert_int_equal(out2.n + gone.n, 0);
        fake_device_block(&t.device, "poll"); /* the second has been started */
        fake_device_wait_inside(&t.device);
        fake_device_end_batch(&t.device, DEVICE_TO_HOST);
        fake_device_unblock(&t.device);
        reap_until(&t, &gone);
        assert_int_equal(out2.n, 1);
        expect_log(&t, "start-out destroy ");
        destroy(&t, &b, 1);
        end(&t);
}

TEST(test_late_batch)
{
        struct outcome a = {0}, out = {0}, gone = {0};
        char host[16];
        struct test t;

        start(&t, HASTY_MSEC, false, true);
        create(&t, 1, &a);
        submit_copy(&t, JOB_COPY_OUT, a.extents[0].extent, host, &out);
        reap_until(&t, &out);
        assert_int_equal(out.result, -ETIMEDOUT);
        assert_string_equal(out.why, "the driver hasn't answered a batch of copies for 1 s");
        assert_true(queue_is_stuck(t.queue));
        submit_destroy(&t, &a, 1, &gone);
        fake_device_block(&t.device, "poll");
        fake_device_wait_inside(&t.device); /* the thread has seen the job */
        fake_device_unblock(&t.device);
        assert_int_equal(fake_device_count(&t.device), 1);
        fake_device_end_batch(&t.device, DEVICE_TO_HOST);
        reap_until(&t, &gone);
        assert_false(queue_is_stuck(t.queue));
        end(&t);
}

/* ---- registrations of host memory ------------------------------------------------------------ */

static void submit_host(struct test *t, enum job_kind kind, void *host, struct outcome *o)
{
        submit_copy(t, kind, NULL, host, o);
}

/* While the driver hangs nothing is registered, and what is to be given back waits. */
QUEUE_SCENE(test_unregister_is_never_refused, HASTY_MSEC, false, true)
{
        struct outcome late = {0}, refused = {0}, out = {0};
        char host[16];

        fake_device_block(&t->device, "register");
        submit_host(t, JOB_REGISTER, host, &late);
        fake_device_wait_inside(&t->device);
        reap_until(t, &late);
        assert_int_equal(late.result, -ETIMEDOUT);
        submit_host(t, JOB_REGISTER, host, &refused);
        submit_host(t, JOB_UNREGISTER, host, &out);
        reap_until(t, &refused);
        assert_int_equal(refused.result, -ETIMEDOUT);
        assert_int_equal(out.n, 0);
        fake_device_unblock(&t->device);
        reap_until(t, &out);
        assert_int_equal(out.result, 0);
        assert_int_equal(t->device.registered_bytes, 0); /* the late one was undone */
        expect_log(t, "register unregister ");
}

static void submit_within(struct test *t, struct extent *to, struct extent *from, struct outcome *o)
{
        struct job *job = new_job(JOB_COPY_WITHIN, 4, o);

        job->copies[0] = (struct device_copy){.extent = to, .offset = 256, .len = 128};
        job->copies[1] = (struct device_copy){.extent = from, .offset = 512};
        job->copies[2] = (struct device_copy){.extent = to, .offset = 0, .len = 16};
        job->copies[3] = (struct device_copy){.extent = from, .offset = 1000};
        queue_submit(t->queue, job);
}

TEST(test_late_copy_within)
{
        struct outcome a = {0}, late = {0}, refused = {0}, failed = {0};
        struct test t;

        start(&t, HASTY_MSEC, false, false);
        create(&t, 2, &a);
        fake_device_block(&t.device, "copy");
        submit_within(&t, a.extents[0].extent, a.extents[1].extent, &late);
        reap_until(&t, &late);
        assert_int_equal(late.result, -ETIMEDOUT);
        assert_string_equal(late.why, "the driver hasn't answered extent_copy for 1 s");
        submit_within(&t, a.extents[0].extent, a.extents[1].extent, &refused);
        reap_until(&t, &refused);
        assert_int_equal(refused.result, -ETIMEDOUT);
        fake_device_take_log(&t.device, t.log);
        fake_device_unblock(&t.device);
        while (queue_is_stuck(t.queue))
                poll(&(struct pollfd){.fd = queue_fd(t.queue), .events = POLLIN}, 1, 10);
        fake_device_fail(&t.device, "copy", 2, -EIO);
        submit_within(&t, a.extents[0].extent, a.extents[1].extent, &failed);
        reap_until(&t, &failed);
        assert_int_equal(failed.result, -EIO);
        expect_log(&t, "copy copy "); /* the late one made no second call */
        destroy(&t, &a, 2);
        end(&t);
}

/* Nothing is lost of what is submitted, done and not fetched, or not begun. */
TEST(test_close_takes_everything_down)
{
        struct outcome a = {0}, done = {0}, waiting = {0}, gone = {0};
        struct test t;

        start(&t, PATIENT_MSEC, true, false);
        create(&t, 2, &a);
        submit(&t, JOB_CREATE, 2, &done);
        fake_device_block(&t.device, "zero");
        submit_copy(&t, JOB_ZERO, a.extents[0].extent, NULL, NULL);
        fake_device_wait_inside(&t.device);
        submit(&t, JOB_CREATE, 2, &waiting);
        submit_destroy(&t, &a, 2, &gone);
        fake_device_unblock(&t.device);
        end(&t);
        assert_int_equal(done.n + waiting.n + gone.n, 0);
        assert_int_equal(t.device.n_extents, 0);
}

static void leave_behind(const char *call, bool reaps)
{
        struct outcome late = {0}, gone = {0}, a = {0};
        struct test t;

        start(&t, HASTY_MSEC, true, false);
        create(&t, 1, &a);
        fake_device_block(&t.device, call);
        if (strcmp(call, "create") == 0) {
                submit(&t, JOB_CREATE, 1, &late);
                fake_device_wait_inside(&t.device);
        }
        submit_destroy(&t, &a, 1, &gone);
        if (reaps)
                reap_until(&t, &late);
        assert_false(queue_close(t.queue));
        /* When the driver answers after all nothing is left. */
        fake_device_unblock(&t.device);
        fake_device_wait_closed(&t.device);
        assert_int_equal(fake_device_count(&t.device), 0);
}

/* Each call takes its time, none is late. */
#define SLOW_CALLS 6
static void *drag(void *data)
{
        struct fake_device *device = data;

        for (unsigned i = 1; i <= SLOW_CALLS; i++) {
                fake_device_wait_inside(device);
                usleep(2 * HASTY_MSEC / 5 * 1000);
                fake_device_block(device, i % 2 ? "zero" : "destroy");
        }
        fake_device_unblock(device);
        return NULL;
}

/* However much is left to do, the end comes within the deadline. */
TEST(test_close_of_a_slow_queue)
{
        struct outcome a[SLOW_CALLS / 2] = {0}, kept = {0}, o = {0};
        pthread_t thread;
        struct test t;

        start(&t, HASTY_MSEC, true, false);
        create(&t, 1, &kept);
        for (unsigned i = 0; i < ARRAY_SIZE(a); i++)
                create(&t, 1, &a[i]);
        fake_device_block(&t.device, "destroy");
        for (unsigned i = 0; i < ARRAY_SIZE(a); i++) {
                submit_destroy(&t, &a[i], 1, &o);
                submit_copy(&t, JOB_ZERO, kept.extents[0].extent, NULL, NULL);
        }
        submit_destroy(&t, &kept, 1, &o);
        assert_int_equal(pthread_create(&thread, NULL, drag, &t.device), 0);
        assert_false(queue_close(t.queue));
        pthread_join(thread, NULL);
        fake_device_wait_closed(&t.device);
        assert_int_equal(fake_device_count(&t.device), 0);
}

TEST(test_close_of_a_stuck_queue)
{
        leave_behind("create", true);
        leave_behind("create", false);
        leave_behind("destroy", false);
        leave_behind("close", false);
}

TEST(test_open_by_name)
{
        struct device_options options = {.side = DEVICE_OWNER};
        char why[DEVICE_WHY_BYTES];
        struct outcome made = {0};
        struct test t;

        assert_int_equal(
                queue_open("no-such-device", &options, PATIENT_MSEC, &t.queue, why), -ENODEV);
        options.transport = TRANSPORT_CUDAIPC;
        assert_int_equal(queue_open("host", &options, PATIENT_MSEC, &t.queue, why), -EOPNOTSUPP);
        assert_string_not_equal(why, "");
        options.transport = 0;
        assert_int_equal(queue_open("host", &options, PATIENT_MSEC, &t.queue, why), 0);
        assert_string_equal(queue_props(t.queue)->name, "host");
        {
                struct job *job = new_job(JOB_CREATE, 1, &made);

                job->bytes = queue_props(t.queue)->granularity_bytes;
                queue_submit(t.queue, job);
        }
        reap_until(&t, &made);
        assert_int_equal(made.result, 0);
        destroy(&t, &made, 1);
        assert_true(queue_close(t.queue));
}

/* Extents that are kept for the process that comes after. */

#define PARKED_MAX 4

/* A store of extents, examined between jobs. */
struct parker {
        struct fake_device *device; /* NULL: another kind */
        unsigned n_parked, n_waits, n_dropped;
        uint32_t parked[PARKED_MAX], dropped[PARKED_MAX];
        unsigned alive[PARKED_MAX]; /* extents of the device at each drop */
        unsigned fail_at;           /* the n-th park() fails; 0: none */
        int wait_result;
        int canary_fd; /* owned; 0: none */
};

static int parker_park(
        void *data, enum queue_parked what, uint32_t number, int fd, char why[DEVICE_WHY_BYTES])
{
        struct parker *p = data;

        assert_true(fcntl(fd, F_GETFD) >= 0);
        if (p->n_parked + 1 == p->fail_at) {
                strcpy(why, "the store is full");
                return -EMFILE;
        }
        p->parked[p->n_parked++] = number;
        if (what == PARKED_CANARY)
                p->canary_fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
        return 0;
}

static int parker_wait(void *data, char why[DEVICE_WHY_BYTES])
{
        struct parker *p = data;

        p->n_waits++;
        if (p->wait_result < 0)
                strcpy(why, "nobody answers");
        return p->wait_result;
}

static void parker_drop(void *data, uint32_t number)
{
        struct parker *p = data;

        if (p->device)
                p->alive[p->n_dropped] = fake_device_count(p->device);
        p->dropped[p->n_dropped++] = number;
}

static void start_parking(struct test *t, struct parker *p, bool by_fd)
{
        start(t, PATIENT_MSEC, by_fd, false);
        p->device = &t->device;
        queue_set_park(t->queue, &(struct queue_park){parker_park, parker_wait, parker_drop, p});
}

/* Extents 7, 0 (none), 9. */
static void create_numbered(struct test *t, struct outcome *o)
{
        struct job *job = new_job(JOB_CREATE, 3, o);

        job->extents[0].number = 7;
        job->extents[2].number = 9;
        queue_submit(t->queue, job);
        reap_until(t, o);
}

TEST(test_parks_what_is_made)
{
        struct outcome made = {0};
        struct parker p = {0};
        struct test t;

        start_parking(&t, &p, true);
        create_numbered(&t, &made);
        assert_int_equal(made.result, 0);
        assert_int_equal(made.extents[2].number, 9);
        assert_int_equal(p.n_parked, 2);
        assert_int_equal(p.parked[0], 7);
        assert_int_equal(p.parked[1], 9);
        assert_int_equal(p.n_waits, 1); /* for both */
        assert_int_equal(p.n_dropped, 0);
        destroy(&t, &made, 3);
        assert_int_equal(p.n_dropped, 2);
        assert_int_equal(p.dropped[0], 7);
        assert_int_equal(p.alive[0], 3);
        assert_int_equal(p.dropped[1], 9);
        assert_int_equal(p.alive[1], 1);
        end(&t);
}

/* The request was given up: its extents are freed, and none was parked. */
QUEUE_SCENE(test_late_extents_are_not_parked, HASTY_MSEC, true, false)
{
        struct outcome late = {0};
        struct parker p = {0};
        struct job *job;

        p.device = &t->device;
        queue_set_park(t->queue, &(struct queue_park){parker_park, parker_wait, parker_drop, &p});
        fake_device_block(&t->device, "export");
        job = new_job(JOB_CREATE, 1, &late);
        job->extents[0].number = 7;
        queue_submit(t->queue, job);
        reap_until(t, &late);
        assert_int_equal(late.result, -ETIMEDOUT);
        fake_device_unblock(&t->device);
        while (queue_is_stuck(t->queue))
                usleep(200);
        assert_int_equal(p.n_parked, 0);
        assert_int_equal(fake_device_count(&t->device), 0);
}

/* ---- what another process made -------------------------------------------------------------- */

/* On memory that is there. */
static void start_on_host(struct test *t, struct parker *p)
{
        const struct device_options options = {.side = DEVICE_OWNER};
        char why[DEVICE_WHY_BYTES];

        assert_int_equal(queue_open("host", &options, PATIENT_MSEC, &t->queue, why), 0);
        queue_set_park(t->queue, &(struct queue_park){parker_park, parker_wait, parker_drop, p});
}

/* One of two extents can't be imported. The other is released with its contents, for processes that
 * map it. An imported extent without use is released in the same way. */
TEST(test_import)
{
        struct outcome made = {0}, failed = {0}, imported = {0}, gone = {0};
        struct job_extent extents[2] = {{.handle.fd = -1}, {.handle.fd = -1}};
        struct parker p = {0};
        uint64_t bytes = 77;
        struct job *job;
        struct test t;

        start_on_host(&t, &p);
        job = new_job(JOB_CREATE, 1, &made);
        job->bytes = queue_props(t.queue)->granularity_bytes;
        queue_submit(t.queue, job);
        reap_until(&t, &made);
        extents[0].handle.fd = fcntl(made.extents[0].handle.fd, F_DUPFD_CLOEXEC, 0);
        extents[1].handle.fd = open("/dev/null", O_RDWR | O_CLOEXEC);
        assert_int_equal(pwrite(extents[0].handle.fd, &bytes, sizeof(bytes), 0), sizeof(bytes));
        for (unsigned n = 2; n > 0; n--) {
                job = new_job(JOB_CREATE, n, n == 2 ? &failed : &imported);
                job->bytes = queue_props(t.queue)->granularity_bytes;
                job->is_import = true;
                memcpy(job->extents, extents, n * sizeof(extents[0]));
                queue_submit(t.queue, job);
                reap_until(&t, n == 2 ? &failed : &imported);
        }
        assert_int_equal(failed.result, -EINVAL);
        assert_int_equal(imported.result, 0);
        job = new_job(JOB_DESTROY, 1, &gone);
        memcpy(job->extents, imported.extents, sizeof(extents[0]));
        job->lets_go = true;
        queue_submit(t.queue, job);
        reap_until(&t, &gone);
        bytes = 0;
        assert_int_equal(pread(extents[0].handle.fd, &bytes, sizeof(bytes), 0), sizeof(bytes));
        assert_int_equal(bytes, 77);
        destroy(&t, &made, 1);
        assert_int_equal(pread(extents[0].handle.fd, &bytes, sizeof(bytes), 0), sizeof(bytes));
        assert_int_equal(bytes, 0);
        assert_int_equal(p.n_parked, 0);
        assert_true(queue_close(t.queue));
        fd_close(extents[0].handle.fd);
        fd_close(extents[1].handle.fd);
}

/* ---- the canary ------------------------------------------------------------------------------ */

#define CANARY_VALUE UINT64_C(0x63616e6172790001)

static const struct queue_canary canary = {3, CANARY_VALUE};

static void create_one(struct test *t, uint32_t number)
{
        struct outcome made = {0}, gone = {0};
        struct job *job = new_job(JOB_CREATE, 1, &made);

        job->bytes = queue_props(t->queue)->granularity_bytes;
        job->extents[0].number = number;
        queue_submit(t->queue, job);
        reap_until(t, &made);
        assert_int_equal(made.result, 0);
        submit_destroy(t, &made, 1, &gone);
        reap_until(t, &gone);
}

static int check_canary(struct test *t, int fd, uint64_t value)
{
        struct outcome checked = {0};
        struct job *job = new_job(JOB_CANARY, 1, &checked);

        job->extents[0].handle.fd = fd;
        job->canary = value;
        queue_submit(t->queue, job);
        reap_until(t, &checked);
        assert_true(fcntl(fd, F_GETFD) >= 0);
        return checked.result;
}

/* Parked once, before the first extent; it holds its value when nothing but its descriptor is left,
 * and what doesn't is told from it. */
TEST(test_canary)
{
        struct parker p = {0};
        uint64_t zero = 0;
        struct stat st;
        struct test t;

        start_on_host(&t, &p);
        queue_set_canary(t.queue, 0, &canary);
        create_one(&t, 0); /* isn't kept */
        assert_int_equal(p.n_parked, 0);
        create_one(&t, 7);
        create_one(&t, 8);
        assert_int_equal(p.n_parked, 3);
        assert_int_equal(p.parked[0], 3);
        assert_int_equal(p.parked[1], 7);
        assert_int_equal(p.parked[2], 8);
        assert_int_equal(p.n_waits, 2);
        assert_int_equal(check_canary(&t, p.canary_fd, CANARY_VALUE), 0);
        assert_int_equal(check_canary(&t, p.canary_fd, CANARY_VALUE), 0);
        assert_int_equal(check_canary(&t, p.canary_fd, CANARY_VALUE + 1), -ESTALE);
        assert_int_equal(fstat(p.canary_fd, &st), 0);
        assert_int_equal(st.st_size, queue_props(t.queue)->granularity_bytes);
        assert_int_equal(pwrite(p.canary_fd, &zero, sizeof(zero), st.st_size - 8), sizeof(zero));
        assert_int_equal(check_canary(&t, p.canary_fd, CANARY_VALUE), -ESTALE);
        assert_true(queue_close(t.queue));
        fd_close(p.canary_fd);
}

TEST(test_no_canary)
{
        struct parker p = {0};
        int fd = open("/dev/null", O_RDWR | O_CLOEXEC);
        struct test t;

        start_on_host(&t, &p);
        queue_set_canary(t.queue, 0, &canary);
        assert_true(check_canary(&t, fd, CANARY_VALUE) < 0);
        assert_true(queue_close(t.queue));
        fd_close(fd);
}

/* Late in the canary: the extent goes, and isn't kept. */
QUEUE_SCENE(test_late_in_canary, HASTY_MSEC, true, false)
{
        struct outcome late = {0};
        struct parker p = {0};
        struct job *job;

        p.device = &t->device;
        queue_set_park(t->queue, &(struct queue_park){parker_park, parker_wait, parker_drop, &p});
        queue_set_canary(t->queue, 0, &canary);
        fake_device_block(&t->device, "write");
        job = new_job(JOB_CREATE, 1, &late);
        job->extents[0].number = 7;
        queue_submit(t->queue, job);
        reap_until(t, &late);
        assert_int_equal(late.result, -ETIMEDOUT);
        fake_device_unblock(&t->device);
        while (queue_is_stuck(t->queue))
                usleep(200);
        assert_int_equal(p.n_parked, 1); /* which the next one finds */
        assert_int_equal(p.parked[0], 3);
        assert_int_equal(fake_device_count(&t->device), 0);
        fd_close(p.canary_fd);
}
