#include "gpu/queue.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "tests/unit/alloc-fail.h"
#include "tests/unit/queue-fixture.h"

QUEUE_SCENE(test_create_and_destroy, PATIENT_MSEC, true, false)
{
        struct outcome made = {0};

        assert_string_equal(queue_props(t->queue)->name, "slow");
        create(t, 3, &made);
        expect_log(t, "create export create export create export ");
        for (int i = 0; i < 3; i++) {
                assert_int_equal(made.extents[i].extent->bytes, EXTENT_BYTES);
                assert_true(made.extents[i].handle.fd >= 0);
        }
        assert_int_equal(queue_deadline_nsec(t->queue), UINT64_MAX);
        destroy(t, &made, 3);
        expect_log(t, "destroy destroy destroy ");
}

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

TEST(test_create_is_all_or_nothing)
{
        static const char *const calls[] = {"create", "export"};

        for (size_t i = 0; i < ARRAY_SIZE(calls); i++) {
                struct outcome o = {0}, made = {0};
                char why[64];
                struct test t;

                start(&t, PATIENT_MSEC, true, false);
                fake_device_fail(&t.device, calls[i], 3, -ENOMEM);
                submit(&t, JOB_CREATE, 4, &o);
                reap_until(&t, &o);
                assert_int_equal(o.result, -ENOMEM);
                snprintf(why, sizeof(why), "%s fails by order", calls[i]);
                assert_string_equal(o.why, why);
                assert_int_equal(fake_device_count(&t.device), 0);
                assert_false(queue_is_broken(t.queue));
                fake_device_fail(&t.device, calls[i], 1, 0);
                create(&t, 4, &made);
                assert_string_equal(made.why, "");
                destroy(&t, &made, 4);
                end(&t);
        }
}

QUEUE_SCENE(test_jobs_run_in_order, PATIENT_MSEC, false, false)
{
        struct outcome a = {0}, b = {0}, zero = {0}, gone = {0};
        unsigned order = 0;

        create(t, 1, &a);
        fake_device_take_log(&t->device, t->log);
        fake_device_block(&t->device, "zero");
        zero.counter = gone.counter = b.counter = &order;
        submit_copy(t, JOB_ZERO, a.extents[0].extent, NULL, &zero);
        fake_device_wait_inside(&t->device);
        submit_destroy(t, &a, 1, &gone);
        submit(t, JOB_CREATE, 1, &b);
        fake_device_unblock(&t->device);
        reap_until(t, &b);
        expect_log(t, "zero destroy create export ");
        assert_int_equal(zero.order, 1);
        assert_int_equal(gone.order, 2);
        assert_int_equal(b.order, 3);
        destroy(t, &b, 1);
}

TEST(test_late_job_is_over_at_its_deadline)
{
        struct outcome late = {0}, waiting = {0}, during = {0}, after = {0};
        struct pollfd p;
        struct test t;

        start(&t, HASTY_MSEC, true, false);
        fake_device_block(&t.device, "export");
        submit(&t, JOB_CREATE, 2, &late);
        submit(&t, JOB_CREATE, 1, &waiting);
        fake_device_wait_inside(&t.device);
        reap_until(&t, &late);
        assert_int_equal(late.result, -ETIMEDOUT);
        assert_string_equal(late.why, "the driver hasn't answered extent_export for 1 s");
        assert_true(queue_is_stuck(t.queue));
        assert_int_equal(waiting.n, 1);
        assert_int_equal(waiting.result, -ETIMEDOUT);
        assert_int_equal(queue_deadline_nsec(t.queue), UINT64_MAX);
        /* At once, and still not before it is asked for. */
        submit(&t, JOB_CREATE, 1, &during);
        assert_int_equal(during.n, 0);
        assert_int_equal(queue_reap(t.queue), 1);
        assert_int_equal(during.result, -ETIMEDOUT);
        fake_device_unblock(&t.device);
        /* The queue reports that it works again. Extents without a receiver are freed by then. */
        p = (struct pollfd){.fd = queue_fd(t.queue), .events = POLLIN};
        assert_int_equal(poll(&p, 1, PATIENCE_MSEC), 1);
        assert_false(queue_is_stuck(t.queue));
        assert_int_equal(fake_device_count(&t.device), 0);
        create(&t, 2, &after);
        assert_int_equal(fake_device_count(&t.device), 2);
        expect_log(&t, "create export destroy create export create export ");
        destroy(&t, &after, 2);
        assert_int_equal(late.n, 1);
        end(&t);
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

/* Each call has the whole deadline: a job of many is not late because it is long. */
QUEUE_SCENE(test_deadline_is_of_each_call, PATIENT_MSEC, false, false)
{
        struct outcome made = {0};
        uint64_t first, second;

        fake_device_block(&t->device, "create");
        submit(t, JOB_CREATE, 1, &made);
        fake_device_wait_inside(&t->device);
        first = queue_deadline_nsec(t->queue);
        fake_device_block(&t->device, "export"); /* and no longer in "create" */
        fake_device_wait_inside(&t->device);
        second = queue_deadline_nsec(t->queue);
        assert_true(second > first);
        fake_device_unblock(&t->device);
        reap_until(t, &made);
        assert_int_equal(made.result, 0);
        destroy(t, &made, 1);
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

QUEUE_SCENE(test_failed_batch, PATIENT_MSEC, false, true)
{
        struct outcome a = {0}, out = {0};
        char host[16];

        create(t, 1, &a);
        fake_device_fail(&t->device, "poll", 1, -ENXIO);
        submit_copy(t, JOB_COPY_OUT, a.extents[0].extent, host, &out);
        reap_until(t, &out);
        assert_int_equal(out.result, -ENXIO);
        assert_string_equal(out.why, "poll fails by order");
        assert_true(queue_is_broken(t->queue));
        destroy(t, &a, 1);
}

/* ---- registrations of host memory ------------------------------------------------------------ */

static void submit_host(struct test *t, enum job_kind kind, void *host, struct outcome *o)
{
        submit_copy(t, kind, NULL, host, o);
}

QUEUE_SCENE(test_registers, PATIENT_MSEC, false, true)
{
        struct outcome in = {0}, fails = {0}, out = {0};
        char host[16];

        submit_host(t, JOB_REGISTER, host, &in);
        reap_until(t, &in);
        assert_int_equal(in.result, 0);
        assert_int_equal(t->device.registered_bytes, sizeof(host));
        fake_device_fail(&t->device, "register", 1, -ENOMEM);
        submit_host(t, JOB_REGISTER, host, &fails);
        reap_until(t, &fails);
        assert_int_equal(fails.result, -ENOMEM);
        assert_string_equal(fails.why, "register fails by order");
        submit_host(t, JOB_UNREGISTER, host, &out);
        reap_until(t, &out);
        assert_int_equal(out.result, 0);
        assert_int_equal(t->device.registered_bytes, 0);
        expect_log(t, "register register unregister ");
        end(t);
        /* A device without. */
        in = (struct outcome){0};
        start(t, PATIENT_MSEC, false, false);
        submit_host(t, JOB_REGISTER, host, &in);
        reap_until(t, &in);
        assert_int_equal(in.result, -EOPNOTSUPP);
}

QUEUE_SCENE(test_unregister_waits_for_copies, PATIENT_MSEC, false, true)
{
        struct outcome a = {0}, copied = {0}, out = {0};
        char host[16];

        create(t, 1, &a);
        fake_device_take_log(&t->device, t->log);
        submit_copy(t, JOB_COPY_OUT, a.extents[0].extent, host, &copied);
        submit_host(t, JOB_UNREGISTER, host, &out);
        fake_device_block(&t->device, "poll");
        fake_device_wait_inside(&t->device); /* the thread has seen both */
        fake_device_unblock(&t->device);
        assert_int_equal(out.n, 0);
        expect_log(t, "start-out ");
        fake_device_end_batch(&t->device, DEVICE_TO_HOST);
        reap_until(t, &out);
        assert_int_equal(copied.n, 1);
        expect_log(t, "unregister ");
        destroy(t, &a, 1);
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

/* In order with the rest: a source that is destroyed after is there still. */
QUEUE_SCENE(test_copies_within, PATIENT_MSEC, false, true)
{
        struct outcome a = {0}, b = {0}, copied = {0}, gone = {0};
        struct extent *to, *from;

        create(t, 1, &a);
        create(t, 1, &b);
        to = a.extents[0].extent;
        from = b.extents[0].extent;
        for (unsigned i = 0; i < EXTENT_BYTES; i++)
                fake_bytes(from)[i] = (uint8_t)(i * 7);
        fake_device_take_log(&t->device, t->log);
        fake_device_block(&t->device, "copy");
        submit_within(t, to, from, &copied);
        submit_destroy(t, &b, 1, &gone);
        fake_device_wait_inside(&t->device);
        assert_int_equal(fake_device_count(&t->device), 2);
        fake_device_unblock(&t->device);
        reap_until(t, &gone);
        expect_log(t, "copy copy destroy ");
        assert_int_equal(copied.n, 1);
        assert_int_equal(copied.result, 0);
        for (unsigned i = 0; i < EXTENT_BYTES; i++) {
                unsigned at = i < 16 ? 1000 + i : i + 256;
                bool is_copied = i < 16 || (i >= 256 && i < 384);

                assert_int_equal(fake_bytes(to)[i], is_copied ? (uint8_t)(at * 7) : 0);
        }
        destroy(t, &a, 1);
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

TEST(test_without_memory)
{
        alloc_fail_each(n)
        {
                struct job *create_job = job_new(JOB_CREATE, 2);
                struct job *copy_job = job_new(JOB_COPY_IN, 2);

                assert_true(alloc_fail_happened() || (create_job && copy_job));
                job_free(create_job);
                job_free(copy_job);
        }
}
