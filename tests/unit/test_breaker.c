/* A breaker: when and how long it is open, and when it admits a try. */
#include "tests/unit/test-support.h"

#include "daemon/remote/endpoint/breaker.h"

#define START (1000 * NSEC_PER_SEC)

static bool admits(struct breaker *b, uint64_t now_nsec)
{
        bool is_trial;

        return breaker_admits(b, now_nsec, &is_trial);
}

TEST(test_opens)
{
        struct breaker b = {0};

        for (unsigned i = 1; i < BREAKER_FAILURES; i++) {
                breaker_failure(&b, START);
                assert_true(admits(&b, START));
        }
        breaker_success(&b);
        for (unsigned i = 1; i < BREAKER_FAILURES; i++)
                breaker_failure(&b, START);
        assert_true(admits(&b, START));
        breaker_failure(&b, START);
        assert_int_equal(b.state, BREAKER_OPEN);
        assert_false(admits(&b, START));
        assert_false(admits(&b, START + BREAKER_OPEN_NSEC - 1));
}

TEST(test_trials)
{
        struct breaker b = {0};
        uint64_t now = START, open = BREAKER_OPEN_NSEC;
        bool is_trial;

        breaker_trip(&b, now);
        for (unsigned i = 0; i < 8; i++) {
                /* Failures that come late, while it is open, make it no longer. */
                breaker_failure(&b, now + open / 2);
                assert_int_equal(b.until_nsec, now + open);
                now += open;
                assert_true(breaker_admits(&b, now, &is_trial));
                assert_true(is_trial);
                assert_false(admits(&b, now)); /* one at a time */
                breaker_give_back(&b);
                assert_true(breaker_admits(&b, now, &is_trial));
                assert_true(is_trial);
                breaker_failure(&b, now);
                open = MIN(2 * open, BREAKER_OPEN_MAX_NSEC);
                assert_false(admits(&b, now + open - 1));
        }
        assert_int_equal(open, BREAKER_OPEN_MAX_NSEC);
        assert_true(breaker_admits(&b, now + open, &is_trial));
        breaker_success(&b);
        assert_true(breaker_admits(&b, now + open, &is_trial));
        assert_false(is_trial);
        breaker_trip(&b, now);
        assert_int_equal(b.until_nsec, now + BREAKER_OPEN_NSEC);
        breaker_give_back(&b); /* of a trial before that */
        assert_int_equal(b.state, BREAKER_OPEN);
}

TEST(test_names)
{
        assert_string_equal(breaker_state_name(BREAKER_CLOSED), "closed");
        assert_string_equal(breaker_state_name(BREAKER_OPEN), "open");
        assert_string_equal(breaker_state_name(BREAKER_HALF_OPEN), "half-open");
}
