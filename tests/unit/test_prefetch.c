#include "base/clock.h"
#include "policy/prefetch.h"
#include "tests/unit/test-random.h"
#include "tests/unit/test-support.h"

/* A second of traffic that asks for as much as it may, of which a part is used. */
static void run(struct prefetch *p, unsigned percent, uint32_t most, uint64_t now)
{
        uint32_t n = prefetch_may(p, most, now);

        assert_in_range(n, 0, most);
        prefetch_begin(p, n, now);
        assert_in_range(p->n_stake, 0, PREFETCH_MOST);
        for (; p->n_stake > 0;)
                if (random_below(100) < percent)
                        prefetch_useful(p);
                else
                        prefetch_wasted(p, now);
        assert_int_equal(p->n_begun, p->n_useful + p->n_wasted + p->n_given_up);
}

static uint64_t run_for(struct prefetch *p, unsigned percent, unsigned seconds, uint64_t now)
{
        for (; seconds > 0; seconds--, now += NSEC_PER_SEC)
                run(p, percent, 1000, now);
        return now;
}

/* On after a pause when traffic changes, and the pauses are short again. */
TEST(test_change_of_phase)
{
        struct prefetch p;
        uint64_t now;

        prefetch_init(&p, PREFETCH_STREAM);
        now = run_for(&p, 0, 3600, 0);
        assert_int_equal(p.window, 0);
        assert_int_equal(p.pause_nsec, PREFETCH_PAUSE_MOST_NSEC);
        now = run_for(&p, 100, PREFETCH_PAUSE_MOST_NSEC / NSEC_PER_SEC + 9, now);
        assert_int_equal(p.window, PREFETCH_MOST);
        assert_int_equal(p.pause_nsec, PREFETCH_PAUSE_NSEC);
        now = run_for(&p, 0, 9, now);
        assert_int_equal(p.window, 0);
        now = run_for(&p, 100, 9 + 10, now);
        assert_int_equal(p.window, PREFETCH_MOST);
}

/* Results after it went off change nothing. */
TEST(test_late_news)
{
        struct prefetch p;

        prefetch_init(&p, PREFETCH_STREAM);
        prefetch_begin(&p, 20, 0);
        for (int i = 0; i < 10; i++)
                prefetch_useful(&p);
        for (int i = 0; i < 10; i++)
                prefetch_wasted(&p, 0);
        assert_int_equal(p.window, PREFETCH_START);
        p.window = 2;
        prefetch_begin(&p, 2, NSEC_PER_SEC);
        p.n_stake += 2; /* begun when the window was wider */
        for (int i = 0; i < 3; i++)
                prefetch_wasted(&p, NSEC_PER_SEC);
        prefetch_useful(&p);
        assert_int_equal(p.window, 0);
        assert_int_equal(p.on_again_nsec, NSEC_PER_SEC + PREFETCH_PAUSE_NSEC);
}

TEST(test_steps)
{
        assert_int_equal(prefetch_steps(0, 0, 100, 4), 4);
        assert_int_equal(prefetch_steps(0, 5, 100, 4), 0); /* 1..4 were asked for */
        assert_int_equal(prefetch_steps(1, 5, 100, 4), 1);
        assert_int_equal(prefetch_steps(10, 5, 100, 4), 4); /* the reader is ahead */
        assert_int_equal(prefetch_steps(97, 0, 100, 4), 2);
        assert_int_equal(prefetch_steps(99, 0, 100, 4), 0);
        assert_int_equal(prefetch_steps(UINT32_MAX - 1, 0, UINT32_MAX, UINT32_MAX), 0);
        assert_int_equal(prefetch_steps(3, 0, 100, 0), 0);
        assert_true(prefetch_expects(0.5) && !prefetch_expects(0.49));
}
