/* How long turns of a loop take: what counts and what doesn't. */
#include <sys/timerfd.h>
#include <time.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/macros.h"
#include "daemon/server/base/turn-watch.h"
#include "tests/unit/test-support.h"

#define LONG_MSEC 60u /* long against what the loop itself does, and a scheduler's slice */

struct world {
        uv_loop_t loop;
        struct turn_watch watch;
        uv_timer_t timer;
        uv_poll_t poll; /* of a timer's descriptor, if `timer` isn't used */
        void (*work)(void);
        bool wakes; /* the descriptor's callback calls turn_watch_wake() */
        unsigned n;
};

/* Twice: the first turn is counted when the loop is about to wait for the second. */
static void on_timer(uv_timer_t *timer)
{
        struct world *w = container_of(timer, struct world, timer);

        if (w->n++ == 0)
                w->work();
        else
                uv_timer_stop(timer);
}

static void begin(struct world *w, void (*work)(void))
{
        *w = (struct world){.work = work};
        assert_int_equal(uv_loop_init(&w->loop), 0);
        turn_watch_init(&w->watch, &w->loop);
        turn_watch_start(&w->watch);
}

/* Runs the loop until `handle`, its only one, has stopped. */
static void run_to_end(struct world *w, uv_handle_t *handle)
{
        assert_int_equal(uv_run(&w->loop, UV_RUN_DEFAULT), 0);
        turn_watch_stop(&w->watch);
        uv_close(handle, NULL);
        uv_close((uv_handle_t *)&w->watch.prepare, NULL);
        uv_close((uv_handle_t *)&w->watch.check, NULL);
        assert_int_equal(uv_run(&w->loop, UV_RUN_DEFAULT), 0);
        assert_int_equal(uv_loop_close(&w->loop), 0);
        assert_int_equal(w->n, 2);
}

static void run(struct world *w, void (*work)(void))
{
        begin(w, work);
        uv_timer_init(&w->loop, &w->timer);
        uv_timer_start(&w->timer, on_timer, LONG_MSEC, LONG_MSEC);
        run_to_end(w, (uv_handle_t *)&w->timer);
}

static void on_descriptor(uv_poll_t *poll, int status, int events)
{
        struct world *w = container_of(poll, struct world, poll);

        if (w->wakes)
                turn_watch_wake(&w->watch);
        if (w->n++ == 0)
                w->work();
        else
                uv_poll_stop(poll);
}

/* The descriptor is ready after LONG_MSEC, and stays so. */
static void run_descriptor(struct world *w, bool wakes, void (*work)(void))
{
        const struct itimerspec once = {.it_value.tv_nsec = LONG_MSEC * NSEC_PER_MSEC};
        int fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC);

        assert_true(fd >= 0);
        assert_int_equal(timerfd_settime(fd, 0, &once, NULL), 0);
        begin(w, work);
        w->wakes = wakes;
        assert_int_equal(uv_poll_init(&w->loop, &w->poll, fd), 0);
        assert_int_equal(uv_poll_start(&w->poll, UV_READABLE, on_descriptor), 0);
        run_to_end(w, (uv_handle_t *)&w->poll);
        fd_close(fd);
}

static void nothing(void)
{
}

static void sleeps(void)
{
        struct timespec t = {.tv_nsec = LONG_MSEC * NSEC_PER_MSEC};

        nanosleep(&t, NULL);
}

static void computes(void)
{
        struct timespec t;
        uint64_t end, now;

        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
        end = (uint64_t)t.tv_sec * NSEC_PER_SEC + (uint64_t)t.tv_nsec + LONG_MSEC * NSEC_PER_MSEC;
        do {
                clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
                now = (uint64_t)t.tv_sec * NSEC_PER_SEC + (uint64_t)t.tv_nsec;
        } while (now < end);
}

/* A blocking system call is a turn like any other, during which no client is served. Half of its
 * time is enough: some of it counts as waiting for a processor. */
TEST(test_sleep)
{
        struct world w;
        unsigned n = 0;

        /* On a busy machine all of it may count so. */
        do
                run(&w, sleeps);
        while (w.watch.longest_nsec < LONG_MSEC / 2 * NSEC_PER_MSEC && ++n < 20);
        assert_true(n < 20);
        assert_true(w.watch.turns.sum_nsec >= LONG_MSEC / 2 * NSEC_PER_MSEC);
}

TEST(test_compute)
{
        struct world w;

        run(&w, computes);
        assert_true(w.watch.longest_nsec >= LONG_MSEC / 2 * NSEC_PER_MSEC);
}

/* Waits for events are no turns. */
TEST(test_wait)
{
        struct world w;

        run(&w, nothing);
        assert_true(w.watch.turns.sum_nsec < LONG_MSEC / 2 * NSEC_PER_MSEC);
}

/* A descriptor's callback begins the turn, with and without turn_watch_wake(). */
TEST(test_descriptor)
{
        struct world w;

        for (unsigned wakes = 0; wakes <= 1; wakes++) {
                unsigned n = 0;

                do
                        run_descriptor(&w, wakes, computes);
                while (w.watch.longest_nsec < LONG_MSEC / 2 * NSEC_PER_MSEC && ++n < 20);
                assert_true(n < 20);
                do
                        run_descriptor(&w, wakes, nothing);
                while (w.watch.turns.sum_nsec >= LONG_MSEC / 2 * NSEC_PER_MSEC && ++n < 20);
                assert_true(n < 20);
        }
}

/* ---- what they did --------------------------------------------------------------------------- */

#define MINUTE (60 * NSEC_PER_SEC)

/* A turn of so many milliseconds, which was all of one part. */
static void note(struct turn_watch *w, uint64_t now, unsigned msec, const char *what)
{
        turn_watch_part(w, what, NULL, msec * NSEC_PER_MSEC);
        turn_watch_note(w, now, msec * NSEC_PER_MSEC, 0);
}

TEST(test_longest)
{
        static const unsigned turns[] = {5, 9, 1, 7, 8, 3, 6};
        struct turn_watch w = {0};

        turn_watch_note(&w, 1, TURN_RECORD_NSEC - 1, 0);
        assert_int_equal(w.longest[0].at_nsec, 0);
        for (size_t i = 0; i < ARRAY_SIZE(turns); i++)
                note(&w, 1, turns[i], "x");
        for (unsigned i = 0; i < TURNS_LONGEST; i++)
                assert_int_equal(w.longest[i].nsec, (9 - i) * NSEC_PER_MSEC);
}

TEST(test_recent)
{
        struct turn_watch w = {0};
        uint64_t at = 30 * MINUTE;

        assert_null(turn_watch_recent(&w, 0, at));
        note(&w, at, 50, "a");
        note(&w, at + MINUTE, 60, "b");
        note(&w, at + 2 * MINUTE, 40, "c");
        note(&w, at + 20 * MINUTE, 2, "d");
        assert_string_equal(turn_watch_recent(&w, 0, at + 20 * MINUTE)->what, "b");
        assert_string_equal(turn_watch_recent(&w, 1, at + 20 * MINUTE)->what, "d");
        assert_null(turn_watch_recent(&w, 2, at + 20 * MINUTE));
        assert_string_equal(turn_watch_recent(&w, 0, at + 62 * MINUTE)->what, "d");
        /* In the place of those of an hour ago, however long they were. */
        note(&w, at + 61 * MINUTE, 3, "e");
        assert_string_equal(turn_watch_recent(&w, 1, at + 62 * MINUTE)->what, "e");
        assert_null(turn_watch_recent(&w, 0, at + 200 * MINUTE));
        assert_string_equal(w.longest[0].what, "b");
}

int main(void)
{
        uv_loop_t loop;

        /* The first loop of a process opens a pipe that libuv keeps. */
        if (uv_loop_init(&loop) < 0 || uv_loop_close(&loop) < 0)
                return 1;
        return test_run_all(NULL, NULL);
}
