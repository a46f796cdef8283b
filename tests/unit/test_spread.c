/* Work in several threads at once: base/thread.h. */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <string.h>

#include "base/thread.h"
#include "tests/unit/test-support.h"

#define PIECES 1000

struct work {
        uint8_t done[PIECES]; /* each by one thread */
        pthread_t of[2];
        _Atomic unsigned n_here; /* threads that met at pieces 0 and 1 */
        unsigned n_meet;
};

/* The first pieces wait for each other: they are done by two threads. */
static void do_piece(void *data, uint32_t piece)
{
        struct work *w = data;

        assert_true(piece < PIECES);
        w->done[piece]++;
        if (piece >= w->n_meet)
                return;
        w->of[piece] = pthread_self();
        atomic_fetch_add(&w->n_here, 1);
        while (atomic_load(&w->n_here) < w->n_meet)
                sched_yield();
}

static void check_done(const struct work *w, uint32_t n)
{
        for (uint32_t i = 0; i < PIECES; i++)
                assert_int_equal(w->done[i], i < n);
}

TEST_BARE(test_each_piece_once)
{
        static const uint32_t counts[] = {0, 1, 2, PIECES};

        for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
                struct work w = {.n_meet = 0};

                spread(counts[i], do_piece, &w);
                check_done(&w, counts[i]);
        }
}

TEST_BARE(test_at_once)
{
        struct work w = {.n_meet = 2};
        cpu_set_t all;

        assert_int_equal(sched_getaffinity(0, sizeof(all), &all), 0);
        if (CPU_COUNT(&all) < 2)
                skip();
        spread(PIECES, do_piece, &w);
        check_done(&w, PIECES);
        assert_false(pthread_equal(w.of[0], w.of[1]));
}

TEST_BARE(test_one_processor)
{
        struct work w = {.n_meet = 1};
        cpu_set_t all, one;
        int first = 0;

        assert_int_equal(sched_getaffinity(0, sizeof(all), &all), 0);
        while (!CPU_ISSET(first, &all))
                first++;
        CPU_ZERO(&one);
        CPU_SET(first, &one);
        assert_int_equal(sched_setaffinity(0, sizeof(one), &one), 0);
        spread(PIECES, do_piece, &w);
        assert_int_equal(sched_setaffinity(0, sizeof(all), &all), 0);
        check_done(&w, PIECES);
        assert_true(pthread_equal(w.of[0], pthread_self()));
}
