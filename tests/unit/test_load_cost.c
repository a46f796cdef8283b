/* Whether pages of other hosts are worth loading, and how that is said. */
#include "tests/unit/test-support.h"

#include <string.h>

#include "base/clock.h"
#include "daemon/exchange/format/load-cost-text.h"

#define MIB (UINT64_C(1) << 20)

static const struct load_cost_ratio none;

static bool is_near(uint64_t a, uint64_t b)
{
        return a <= b + b / 1000 + 1 && b <= a + a / 1000 + 1;
}

TEST(test_starts)
{
        assert_int_equal(load_cost_nsec(&none, load_cost_bandwidth(0), 1000), 1000);
        assert_int_equal(load_cost_nsec(&none, load_cost_bandwidth(2000), 1000), NSEC_PER_SEC / 2);
        assert_int_equal(load_cost_nsec(&none, load_cost_token_time(0), 10),
                10 * LOAD_COST_TOKEN_NSEC_DEFAULT);
        assert_int_equal(load_cost_nsec(&none, load_cost_token_time(7), 10), 70);
        assert_int_equal(load_cost_nsec(&none, load_cost_token_time(7), 0), 0);
}

/* The inverse of times. */
TEST(test_rates)
{
        struct load_cost_ratio r = {0};

        assert_int_equal(load_cost_per_sec(&none, load_cost_bandwidth(2000)), 2000);
        assert_int_equal(load_cost_per_sec(&none, load_cost_token_time(0)), 10000);
        load_cost_note(&r, 16, 8 * NSEC_PER_MSEC);
        assert_int_equal(load_cost_per_sec(&r, load_cost_token_time(7)), 2000);
        r = (struct load_cost_ratio){.amount = 1e19, .nsec = 1};
        assert_int_equal(load_cost_per_sec(&r, load_cost_token_time(7)), UINT64_MAX);
}

/* A load that took as long as computing lost nothing; one that brought nothing has lost. */
TEST(test_lost)
{
        const struct load_cost_ratio measured = {.amount = 10, .nsec = 1000};
        const struct load_cost_ratio start = load_cost_token_time(7);

        assert_false(load_cost_lost(2240, 320, &none, start));
        assert_true(load_cost_lost(2241, 320, &none, start));
        assert_false(load_cost_lost(32000, 320, &measured, start));
        assert_true(load_cost_lost(32001, 320, &measured, start));
        assert_true(load_cost_lost(1, 0, &measured, start));
        assert_false(load_cost_lost(UINT64_MAX, UINT64_MAX, &measured, start));
}

/* Samples count, not the initial value. */
TEST(test_learns)
{
        struct load_cost_ratio r = {0};

        load_cost_note(&r, 0, 5);
        load_cost_note(&r, 5, 0);
        assert_memory_equal(&r, &none, sizeof(r));
        load_cost_note(&r, 16, 160);
        assert_int_equal(load_cost_nsec(&r, load_cost_token_time(1), 100), 1000);
        for (unsigned i = 0; i < 64; i++)
                load_cost_note(&r, 16, 320);
        assert_true(is_near(load_cost_nsec(&r, load_cost_token_time(1), 100), 2000));
        /* Samples weigh by their size: one of 800 at 10 against eight of 16 at 20. */
        load_cost_note(&r, 800, 8000);
        assert_in_range(load_cost_nsec(&r, load_cost_token_time(1), 100), 1000, 1200);
}

TEST(test_outliers)
{
        struct load_cost_ratio r = {0};

        for (unsigned i = 0; i < 100; i++)
                load_cost_note(&r, 16, 1600);
        load_cost_note(&r, 16, 3600 * NSEC_PER_SEC);
        assert_in_range(load_cost_nsec(&r, load_cost_token_time(1), 1000), 130000, 138000);
        for (unsigned i = 0; i < 100; i++)
                load_cost_note(&r, 16, 1600);
        load_cost_note(&r, 16, 1);
        assert_in_range(load_cost_nsec(&r, load_cost_token_time(1), 1000), 90000, 95000);
        /* A real change is learnt all the same. */
        for (unsigned i = 0; i < 100; i++)
                load_cost_note(&r, 16, 160000);
        assert_true(is_near(load_cost_nsec(&r, load_cost_token_time(1), 16), 160000));
}

TEST(test_small_loads)
{
        struct load_cost_ratio r = {0};

        load_cost_note_load(&r, LOAD_COST_SAMPLE_BYTES - 1, 1);
        assert_memory_equal(&r, &none, sizeof(r));
        load_cost_note_load(&r, LOAD_COST_SAMPLE_BYTES, LOAD_COST_SAMPLE_BYTES);
        assert_int_equal(load_cost_nsec(&r, load_cost_bandwidth(1), 1000), 1000);
}

static struct load_cost_part part(uint64_t rtt_nsec, uint64_t queued_bytes, uint64_t bytes)
{
        return (struct load_cost_part){.rtt_nsec = rtt_nsec,
                .queued_bytes = queued_bytes,
                .bytes = bytes,
                .seen = &none,
                .start = load_cost_bandwidth(1000000000)};
}

/* 1,000 tokens at 100 us are 100 ms. */
static enum load_cost_verdict verdict_of(struct load_cost_part p)
{
        return load_cost_loading(&p, 1, 1000, &none, load_cost_token_time(100000)).verdict;
}

/* Where loads were off by a fifth, three of it are added; by a twelfth or less, a quarter. */
TEST(test_error)
{
        struct load_cost_part p = part(0, 0, 62000000); /* 99.2 ms and 100.8 ms with three fifths */
        struct load_cost_error e = {0};

        load_cost_note_took(&e, 0, 1000);
        assert_true(e.mean == 0);
        for (unsigned i = 0; i < 200; i++)
                load_cost_note_took(&e, 1000, i % 2 ? 1200 : 800);
        assert_true(e.mean > 0.199 && e.mean < 0.201);
        p.error = e;
        assert_int_equal(verdict_of(p), LOAD_COST_LOADED);
        p.bytes = 63000000;
        assert_int_equal(verdict_of(p), LOAD_COST_TOO_SLOW);
        p.bytes = 79000000;
        p.error.mean = 1.0 / 12;
        assert_int_equal(verdict_of(p), LOAD_COST_LOADED);
        p.bytes = 80000000;
        p.error.mean = 0;
        assert_int_equal(verdict_of(p), LOAD_COST_TOO_SLOW);
        /* Where they are off by all of it: twice as long as expected, and not more. */
        for (unsigned i = 0; i < 200; i++)
                load_cost_note_took(&e, 1, UINT64_MAX);
        assert_true(e.mean > 0.999 && e.mean <= 1);
        p.error = e;
        p.bytes = 49000000;
        assert_int_equal(verdict_of(p), LOAD_COST_LOADED);
        p.bytes = 51000000;
        assert_int_equal(verdict_of(p), LOAD_COST_TOO_SLOW);
}

/* The expected time of a load excludes the margin, and errors refer to it. */
TEST(test_expected)
{
        struct load_cost_part parts[] = {part(5, 0, MIB), part(100, 0, MIB)};
        struct load_cost_answer a;

        parts[0].error.mean = 0.5;
        a = load_cost_loading(parts, 2, 1000, &none, load_cost_token_time(0));
        assert_int_equal(a.load_nsec, 5 + 2 * MIB);
        assert_int_equal(a.expected_nsec, 100 + MIB);
}

TEST(test_short)
{
        struct load_cost_part p = part(0, 0, 1);
        struct load_cost_ratio start = load_cost_token_time(NSEC_PER_SEC);

        assert_int_equal(load_cost_loading(&p, 1, LOAD_COST_TOKENS_MIN - 1, &none, start).verdict,
                LOAD_COST_TOO_SHORT);
        assert_int_equal(load_cost_loading(&p, 1, LOAD_COST_TOKENS_MIN, &none, start).verdict,
                LOAD_COST_LOADED);
}

static const char *text_of(
        enum load_cost_verdict v, uint64_t load_nsec, uint64_t compute_nsec, uint64_t n)
{
        static char buf[LOAD_COST_TEXT_MAX];
        const struct load_cost_answer a = {v, load_nsec, compute_nsec};

        return load_cost_text(&a, n, n * 16, buf);
}

TEST(test_texts)
{
        assert_string_equal(text_of(LOAD_COST_LOADED, 41 * NSEC_PER_MSEC, 120 * NSEC_PER_MSEC, 96),
                "96 pages, 41 ms to load against 120 ms to compute: loaded");
        assert_string_equal(text_of(LOAD_COST_TOO_SLOW, 40 * NSEC_PER_SEC, 1234567, 1),
                "1 page, 40 s to load against 1.2 ms to compute: not loaded");
        assert_string_equal(text_of(LOAD_COST_TOO_SHORT, 1, 2, 3),
                "3 pages, 48 tokens, fewer than 256: not loaded");
        assert_true(strlen(text_of(LOAD_COST_LOADED, UINT64_MAX, UINT64_MAX, UINT64_MAX)) <
                    LOAD_COST_TEXT_MAX - 1);
}

/* Eight that are looked at together, after as long as it should take: nothing is learnt of that. */
TEST(test_values_together)
{
        struct load_cost_ratio r = {0};
        struct load_cost_stream s = {.since_nsec = 1000};
        uint64_t now = 1000;

        load_cost_note(&r, MIB, 1000000);
        for (unsigned load = 0; load < 20; load++) {
                now += 8000000;
                for (unsigned i = 0; i < 8; i++)
                        load_cost_note_value(&r, &s, MIB, i < 7, now);
                assert_int_equal(s.bytes, 0);
                assert_int_equal(s.since_nsec, now);
                assert_true(is_near(load_cost_nsec(&r, load_cost_bandwidth(1), MIB), 1000000));
        }
        /* One by one they are samples of their own. */
        for (unsigned i = 0; i < 500; i++) {
                now += 2000000;
                load_cost_note_value(&r, &s, MIB, false, now);
        }
        assert_true(is_near(load_cost_nsec(&r, load_cost_bandwidth(1), MIB), 2000000));
}
