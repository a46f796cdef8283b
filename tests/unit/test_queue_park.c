/* Extents that are kept for the process that comes after. */
#include "gpu/queue.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"

#include "tests/unit/queue-fixture.h"

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

/* Nothing that isn't kept is ever used. */
TEST(test_what_cannot_be_parked_fails)
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

/* Extents without a descriptor (cudaipc) can't be parked, and are made all the same. */
TEST(test_nothing_to_park)
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

/* Nothing is kept without it; the next one tries again. */
TEST(test_canary_fails)
{
        static const struct {
                const char *call;
                unsigned n, fail_at;
                const char *log;
        } cases[] = {
                /* The extent's own calls come first. */
                {"create", 2, 0, "create export create destroy "},
                {"write", 1, 0, "create export create write let-go destroy "},
                {"export", 2, 0, "create export create write write export let-go destroy "},
                {NULL, 0, 1, "create export create write write export let-go destroy "},
        };

        for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
                struct parker p = {.fail_at = cases[i].fail_at};
                struct outcome made = {0}, again = {0};
                struct job *job;
                struct test t;

                start_parking(&t, &p, true);
                queue_set_canary(t.queue, 0, &canary);
                if (cases[i].call)
                        fake_device_fail(&t.device, cases[i].call, cases[i].n, -EIO);
                job = new_job(JOB_CREATE, 1, &made);
                job->extents[0].number = 7;
                queue_submit(t.queue, job);
                reap_until(&t, &made);
                assert_int_equal(made.result, cases[i].call ? -EIO : -EMFILE);
                assert_int_equal(p.n_parked, 0);
                expect_log(&t, cases[i].log);
                if (cases[i].call)
                        fake_device_fail(&t.device, cases[i].call, 1, 0);
                p.fail_at = 0;
                job = new_job(JOB_CREATE, 1, &again);
                job->extents[0].number = 7;
                queue_submit(t.queue, job);
                reap_until(&t, &again);
                assert_int_equal(again.result, 0);
                assert_int_equal(p.parked[0], 3);
                assert_int_equal(p.parked[1], 7);
                destroy(&t, &again, 1);
                assert_int_equal(fake_device_count(&t.device), 0);
                fd_close(p.canary_fd);
                end(&t);
        }
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
