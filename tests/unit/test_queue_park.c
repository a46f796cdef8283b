/* Extents that are kept for the process that comes after. */
#include "gpu/queue.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "tests/unit/queue-fixture.h"

#define PARKED_MAX 4

/* Who keeps them; looked at between jobs. */
struct parker {
        struct fake_device *device;
        unsigned n_parked, n_waits, n_dropped;
        uint32_t parked[PARKED_MAX], dropped[PARKED_MAX];
        unsigned alive[PARKED_MAX]; /* extents of the device at each drop */
        unsigned fail_at;           /* the n-th park() fails; 0: none */
        int wait_result;
};

static int parker_park(void *data, uint32_t number, int fd, char why[DEVICE_WHY_BYTES])
{
        struct parker *p = data;

        assert_true(fcntl(fd, F_GETFD) >= 0);
        if (p->n_parked + 1 == p->fail_at) {
                strcpy(why, "the store is full");
                return -EMFILE;
        }
        p->parked[p->n_parked++] = number;
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

static void test_parks_what_is_made(void **state)
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

/* Nothing that isn't kept is ever used. */
static void test_what_cannot_be_parked_fails(void **state)
{
        static const struct {
                unsigned fail_at;
                int wait_result, result;
                const char *why;
        } cases[] = {
                {2, 0, -EMFILE, "the store is full"},
                {0, -ETIMEDOUT, -ETIMEDOUT, "nobody answers"},
        };

        for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
                struct parker p = {
                        .fail_at = cases[i].fail_at, .wait_result = cases[i].wait_result};
                struct outcome made = {0};
                struct test t;

                start_parking(&t, &p, true);
                create_numbered(&t, &made);
                assert_int_equal(made.result, cases[i].result);
                assert_string_equal(made.why, cases[i].why);
                assert_int_equal(fake_device_count(&t.device), 0);
                assert_int_equal(p.n_dropped, 2);
                assert_false(queue_is_stuck(t.queue));
                end(&t);
        }
}

/* What has no descriptor (cudaipc) can't be kept, and is made all the same. */
static void test_nothing_to_park(void **state)
{
        struct outcome made = {0};
        struct parker p = {.fail_at = 1};
        struct test t;

        start_parking(&t, &p, false);
        create_numbered(&t, &made);
        assert_int_equal(made.result, 0);
        assert_int_equal(p.n_parked + p.n_waits, 0);
        destroy(&t, &made, 3);
        end(&t);
}

/* Nobody waits for it any more: what it made goes, and nothing of it was kept. */
static void test_late_extents_are_not_parked(void **state)
{
        struct outcome late = {0};
        struct parker p = {0};
        struct job *job;
        struct test t;

        start(&t, HASTY_MSEC, true, false);
        p.device = &t.device;
        queue_set_park(t.queue, &(struct queue_park){parker_park, parker_wait, parker_drop, &p});
        fake_device_block(&t.device, "export");
        job = new_job(JOB_CREATE, 1, &late);
        job->extents[0].number = 7;
        queue_submit(t.queue, job);
        reap_until(&t, &late);
        assert_int_equal(late.result, -ETIMEDOUT);
        fake_device_unblock(&t.device);
        while (queue_is_stuck(t.queue))
                usleep(200);
        assert_int_equal(p.n_parked, 0);
        assert_int_equal(fake_device_count(&t.device), 0);
        end(&t);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                TEST(test_parks_what_is_made),
                TEST(test_what_cannot_be_parked_fails),
                TEST(test_nothing_to_park),
                TEST(test_late_extents_are_not_parked),
        };

        return RUN_TESTS(tests);
}
