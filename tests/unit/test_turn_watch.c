/* How long turns of a loop take: what counts and what doesn't. */
#include <time.h>

#include "base/clock.h"
#include "base/macros.h"
#include "daemon/server/system/turn-watch.h"
#include "tests/unit/test-support.h"

#define LONG_MSEC 60u /* long against what the loop itself does, and a scheduler's slice */

struct world {
        uv_loop_t loop;
        struct turn_watch watch;
        uv_timer_t timer;
        void (*work)(void);
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

static void run(struct world *w, void (*work)(void))
{
        *w = (struct world){.work = work};
        assert_int_equal(uv_loop_init(&w->loop), 0);
        turn_watch_init(&w->watch, &w->loop);
        turn_watch_start(&w->watch);
        uv_timer_init(&w->loop, &w->timer);
        uv_timer_start(&w->timer, on_timer, LONG_MSEC, LONG_MSEC);
        assert_int_equal(uv_run(&w->loop, UV_RUN_DEFAULT), 0);
        turn_watch_stop(&w->watch);
        uv_close((uv_handle_t *)&w->timer, NULL);
        uv_close((uv_handle_t *)&w->watch.prepare, NULL);
        assert_int_equal(uv_run(&w->loop, UV_RUN_DEFAULT), 0);
        assert_int_equal(uv_loop_close(&w->loop), 0);
        assert_int_equal(w->n, 2);
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

/* A system call that blocks is a turn like any: nobody is served meanwhile. Half of it will do:
 * what the thread waited for a processor right before is taken for part of it. */
static void test_sleep(void **state)
{
        struct world w;

        run(&w, sleeps);
        assert_true(w.watch.longest_nsec >= LONG_MSEC / 2 * NSEC_PER_MSEC);
        assert_true(w.watch.turns.sum_nsec >= LONG_MSEC / 2 * NSEC_PER_MSEC);
}

static void test_compute(void **state)
{
        struct world w;

        run(&w, computes);
        assert_true(w.watch.longest_nsec >= LONG_MSEC / 2 * NSEC_PER_MSEC);
}

/* Waits for events are no turns. */
static void test_wait(void **state)
{
        struct world w;

        run(&w, nothing);
        assert_true(w.watch.turns.sum_nsec < LONG_MSEC / 2 * NSEC_PER_MSEC);
}

/* Another program had the processor. */
static void test_processor(void **state)
{
        struct turn_watch w = {0};

        turn_watch_note(&w, 100, 60);
        assert_int_equal(w.longest_nsec, 40);
        turn_watch_note(&w, 100, 1000);
        assert_int_equal(w.longest_nsec, 40);
        turn_watch_note(&w, 50, 0);
        assert_int_equal(w.longest_nsec, 50);
        assert_int_equal(w.turns.sum_nsec, 90);
        assert_int_equal(w.turns.counts[0], 3);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                TEST(test_sleep),
                TEST(test_compute),
                TEST(test_wait),
                TEST(test_processor),
        };
        uv_loop_t loop;

        /* The first loop of a process opens a pipe that libuv keeps. */
        if (uv_loop_init(&loop) < 0 || uv_loop_close(&loop) < 0)
                return 1;
        return RUN_TESTS(tests);
}
