/* A day of demand, compressed into a minute, and the single rules. */
#include <string.h>

#include "base/clock.h"
#include "base/macros.h"
#include "policy/sizer.h"
#include "tests/unit/test-random.h"
#include "tests/unit/test-support.h"

#define MIB           (1ULL << 20)
#define STEP          (64 * MIB)
#define SAMPLE        (5 * NSEC_PER_MSEC)
#define DAY_SEC       60
#define DAY_SAMPLES   (DAY_SEC * NSEC_PER_SEC / SAMPLE)
#define WINDOW        (2 * NSEC_PER_SEC) /* 48 minutes of the day */
#define WINDOW_LEN    (WINDOW / SAMPLE)
#define COOLDOWN      (NSEC_PER_SEC / 4)
#define MAX_STEPS     2000
#define DAYS_PER_SEED 3
#define N_SEEDS       4

static const struct sizer_params params = {.window_nsec = WINDOW,
        .cooldown_nsec = COOLDOWN,
        .step_bytes = STEP,
        .max_bytes = MAX_STEPS * STEP};

/* ---- days ----------------------------------------------------------------------------------- */

/* A straight line of demand, in steps; noise and bursts are parts of it in percent. */
struct phase {
        double sec, from, to;
        unsigned noise, burst,
                burst_every; /* every so many samples, or up to a tenth later; 0: never */
        unsigned burst_len;  /* samples */
};

struct day {
        const char *name;
        struct phase phases[8];
        unsigned n;
};

static const struct day days[] = {
        {"peak and calm",
                {
                        {14, 60, 60, 8, 0, 0, 0},
                        {4, 60, 300, 8, 0, 0, 0},
                        {14, 300, 300, 10, 25, 80, 12},
                        {12, 110, 110, 8, 0, 0, 0},
                        {2, 110, 220, 8, 0, 0, 0},
                        {8, 220, 220, 10, 15, 120, 10},
                        {6, 60, 60, 8, 0, 0, 0},
                },
                7},
        {"steps",
                {
                        {12, 40, 40, 0, 0, 0, 0},
                        {12, 120, 120, 0, 0, 0, 0},
                        {12, 400, 400, 0, 0, 0, 0},
                        {12, 120, 120, 0, 0, 0, 0},
                        {12, 40, 40, 0, 0, 0, 0},
                },
                5},
        {"slow tides",
                {
                        {15, 80, 320, 6, 0, 0, 0},
                        {15, 320, 80, 6, 0, 0, 0},
                        {15, 80, 200, 6, 0, 0, 0},
                        {15, 200, 80, 6, 0, 0, 0},
                },
                4},
        /* One sample in 300 is twice the rest: no peak. */
        {"rare spikes", {{60, 100, 100, 4, 100, 300, 1}}, 1},
        {"few steps",
                {
                        {20, 4, 4, 0, 0, 0, 0},
                        {20, 9, 9, 0, 0, 0, 0},
                        {20, 5, 5, 0, 0, 0, 0},
                },
                3},
};

struct sampler {
        const struct phase *phase;
        unsigned burst_left, next_burst; /* samples */
};

static uint64_t next_demand(struct sampler *s, double part)
{
        const struct phase *p = s->phase;
        double steps = p->from + (p->to - p->from) * part;

        steps *= 1 + ((double)random_below(2001) / 1000 - 1) * p->noise / 200;
        if (p->burst_every && s->next_burst-- == 0) {
                s->burst_left = p->burst_len;
                s->next_burst = p->burst_every - 1 + random_below(p->burst_every / 10 + 1);
        }
        if (s->burst_left > 0) {
                s->burst_left--;
                steps *= 1 + (double)p->burst / 100;
        }
        return (uint64_t)(steps * STEP);
}

static int compare_u64(const void *a, const void *b)
{
        uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

        return (x > y) - (x < y);
}

/* By sorting; nearest rank. */
static uint64_t exact_p99(const uint64_t *samples, size_t n)
{
        uint64_t *sorted = malloc(n * sizeof(*sorted)), p99;

        assert_non_null(sorted);
        memcpy(sorted, samples, n * sizeof(*sorted));
        qsort(sorted, n, sizeof(*sorted), compare_u64);
        p99 = sorted[n - n / 100 - 1];
        free(sorted);
        return p99;
}

struct result {
        uint64_t demand[DAY_SAMPLES];
        unsigned n, n_uncovered, n_turns, most_turns;
        double reserved; /* sum */
};

/* Sizes the reservation after each sample; counts what lay beyond what was reserved before. */
static uint64_t run_phase(struct sizer *s, const struct phase *p, struct result *r,
        uint64_t reserved, uint64_t start_nsec)
{
        struct sampler sampler = {.phase = p, .next_burst = p->burst_every / 2};
        unsigned n = (unsigned)(p->sec * (double)NSEC_PER_SEC / (double)SAMPLE), turns = 0;
        int direction = 0;

        for (unsigned i = 0; i < n; i++) {
                uint64_t now = start_nsec + r->n * SAMPLE, demand;
                struct sizer_decision d;

                demand = next_demand(&sampler, (double)i / n);
                r->demand[r->n++] = demand;
                r->n_uncovered += demand > reserved;
                r->reserved += (double)reserved;
                sizer_sample(s, &params, demand, now);
                d = sizer_decide(s, &params, reserved, now);
                assert_true(d.target_bytes % STEP == 0 && d.target_bytes <= params.max_bytes);
                if (d.target_bytes == reserved)
                        continue;
                if (direction != 0 && (d.target_bytes > reserved) != (direction > 0))
                        turns++;
                direction = d.target_bytes > reserved ? 1 : -1;
                reserved = d.target_bytes;
                sizer_applied(s, &d, now);
        }
        r->most_turns = MAX(r->most_turns, turns);
        return reserved;
}

/* Sum of p99 of one window after another, each as often as it has samples. */
static double sum_p99(const struct result *r)
{
        double sum = 0;

        for (unsigned i = 0; i < r->n; i += WINDOW_LEN) {
                size_t n = MIN(r->n - i, (unsigned)WINDOW_LEN);

                sum += (double)exact_p99(r->demand + i, n) * (double)n;
        }
        return sum;
}

static void run_day(const struct day *day)
{
        struct sizer *s = sizer_new();
        uint64_t reserved = (uint64_t)day->phases[0].from * STEP, start = NSEC_PER_SEC;

        assert_non_null(s);
        for (unsigned i = 0; i < DAYS_PER_SEED; i++) {
                struct result r = {.n = 0};
                double over;

                for (unsigned p = 0; p < day->n; p++)
                        reserved = run_phase(s, &day->phases[p], &r, reserved, start);
                start += r.n * SAMPLE;
                over = r.reserved / sum_p99(&r);
                print_message("%s: %.2f %% covered, %.3f of the p99 reserved, %u turns\n",
                        day->name, 100 - 100.0 * r.n_uncovered / r.n, over, r.most_turns);
                assert_true(r.n_uncovered * 100 <= r.n);
                assert_true(over <= 1.25);
                assert_true(r.most_turns <= 1);
        }
        sizer_free(s);
}

TEST_BARE(test_days)
{
        for (uint64_t seed = 1; seed <= N_SEEDS; seed++)
                for (size_t i = 0; i < ARRAY_SIZE(days); i++) {
                        random_state = seed;
                        run_day(&days[i]);
                }
}

/* ---- rules ---------------------------------------------------------------------------------- */

struct rig {
        struct sizer *sizer;
        struct sizer_params params;
        uint64_t now, reserved;
};

static int rig_start(void **state)
{
        struct rig *rig = calloc(1, sizeof(*rig));

        *rig = (struct rig){.sizer = sizer_new(), .params = params, .now = 5};
        *state = rig;
        return rig->sizer ? 0 : -1;
}

static int rig_end(void **state)
{
        struct rig *rig = *state;

        sizer_free(rig->sizer);
        free(rig);
        return 0;
}

/* One sample, and what it leads to is done. */
static enum sizer_why rig_step(struct rig *rig, uint64_t steps)
{
        struct sizer_decision d;

        rig->now += SAMPLE;
        sizer_sample(rig->sizer, &rig->params, steps * STEP, rig->now);
        d = sizer_decide(rig->sizer, &rig->params, rig->reserved, rig->now);
        if (d.target_bytes != rig->reserved)
                sizer_applied(rig->sizer, &d, rig->now);
        rig->reserved = d.target_bytes;
        return d.why;
}

/* `n` samples, none of which changes anything; the last one's reason. */
static enum sizer_why rig_hold(struct rig *rig, uint64_t steps, unsigned n)
{
        enum sizer_why why = SIZER_NONE;
        uint64_t reserved = rig->reserved;

        while (n-- > 0) {
                why = rig_step(rig, steps);
                assert_int_equal(rig->reserved, reserved);
        }
        return why;
}

TEST_WITH(test_flat_demand_changes_nothing, rig_start, rig_end, NULL)
{
        struct rig *rig = *state;

        for (uint64_t steps = 1; steps <= 1500; steps = steps * 5 / 4 + 1) {
                rig->now += 2 * WINDOW; /* what was before is forgotten */
                assert_int_equal(rig_step(rig, steps), SIZER_GROW);
                assert_true(rig->reserved >= steps * STEP);
                assert_true(rig->reserved <= (steps + steps / 14) * STEP);
                assert_int_equal(rig_hold(rig, steps, 3 * WINDOW_LEN), SIZER_HOLD);
        }
}

/* A window full of little demand, then a peak: three samples of it in a window of 400. */
TEST_WITH(test_grows_at_once, rig_start, rig_end, NULL)
{
        struct rig *rig = *state;

        rig_step(rig, 10);
        rig_hold(rig, 10, 2 * WINDOW_LEN);
        assert_int_equal(rig_hold(rig, 100, 2), SIZER_HOLD);
        assert_int_equal(rig_step(rig, 100), SIZER_GROW);
        assert_int_equal(rig->reserved, 106 * STEP);
        assert_int_equal(sizer_demand(rig->sizer), 100 * STEP);
}

/* Less is reserved than was needed for a while: an administrator took it. */
TEST_WITH(test_grows_to_p99, rig_start, rig_end, NULL)
{
        struct rig *rig = *state;

        rig_step(rig, 100);
        rig_hold(rig, 100, WINDOW_LEN / 2);
        rig->reserved = 10 * STEP;
        assert_int_equal(rig_step(rig, 5), SIZER_GROW);
        assert_int_equal(rig->reserved, 100 * STEP);
}

TEST_WITH(test_shrinks_slowly, rig_start, rig_end, NULL)
{
        struct rig *rig = *state;
        uint64_t before, peak_end;
        unsigned n_cuts = 0;

        rig_step(rig, 160);
        rig_hold(rig, 160, 2 * WINDOW_LEN);
        peak_end = rig->now;
        while (rig_step(rig, 20) != SIZER_SHRINK)
                assert_true(rig->now - peak_end < 2 * WINDOW);
        /* Nothing before all of the peak but one sample in 400 has left the window. */
        assert_true(rig->now - peak_end >= WINDOW - 2 * SAMPLE);
        for (;;) {
                assert_true(rig->reserved > 20 * STEP);
                n_cuts++;
                before = rig->reserved;
                if (before - 20 * STEP <= before / 8)
                        break;
                assert_int_equal(rig_hold(rig, 20, COOLDOWN / SAMPLE - 1), SIZER_COOLDOWN);
                assert_int_equal(rig_step(rig, 20), SIZER_SHRINK);
                /* Half of the way, or one step. */
                assert_true(rig->reserved >= before - (before - 20 * STEP) / 2 - STEP);
        }
        assert_int_equal(n_cuts, 7);
        assert_int_equal(rig_hold(rig, 20, 2 * WINDOW_LEN), SIZER_HOLD);
}

TEST_WITH(test_learns_first, rig_start, rig_end, NULL)
{
        struct rig *rig = *state;

        rig->reserved = 100 * STEP;
        assert_int_equal(rig_hold(rig, 1, WINDOW_LEN), SIZER_LEARNING);
        assert_int_equal(rig_step(rig, 1), SIZER_SHRINK);
}

TEST_WITH(test_limits, rig_start, rig_end, NULL)
{
        struct rig *rig = *state;

        rig->params.min_bytes = 10 * STEP;
        rig->params.max_bytes = 50 * STEP;
        assert_int_equal(rig_step(rig, 5), SIZER_NEW_LIMITS);
        assert_int_equal(rig->reserved, 10 * STEP);
        assert_int_equal(rig_hold(rig, 5, 2 * WINDOW_LEN), SIZER_AT_MIN);
        rig_hold(rig, 80, 2);
        assert_int_equal(rig_step(rig, 80), SIZER_GROW);
        assert_int_equal(rig->reserved, 50 * STEP);
        assert_int_equal(rig_hold(rig, 80, 10), SIZER_AT_MAX);
        /* Other limits: at once, cool-down or not. */
        rig->params.max_bytes = 30 * STEP;
        assert_int_equal(rig_step(rig, 80), SIZER_NEW_LIMITS);
        assert_int_equal(rig->reserved, 30 * STEP);
        assert_int_equal(rig_hold(rig, 80, 10), SIZER_AT_MAX);
}

int main(void)
{
        random_start("test_sizer");
        return test_run_all(NULL, NULL);
}
