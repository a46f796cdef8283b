/* Cost of computing tokens again (policy/recompute.h). */
#include <math.h>

#include "policy/recompute.h"
#include "tests/unit/test-support.h"

#define CROSSOVER 1000

TEST(test_without_attention)
{
        assert_true(recompute_prefix(123456789, 0) == 123456789);
        assert_true(recompute_prefix(0, 0) == 0);
        assert_true(recompute_prefix(0, CROSSOVER) == 0);
}

TEST(test_lengths)
{
        assert_int_equal(recompute_length(0, CROSSOVER), 0);
        assert_int_equal(recompute_length(250, CROSSOVER), 0);
        assert_int_equal(recompute_length(251, CROSSOVER), 1);
        assert_int_equal(recompute_length(1000, CROSSOVER), 1);
        assert_int_equal(recompute_length(1001, CROSSOVER), 2);
        assert_int_equal(recompute_length(2000, CROSSOVER), 2);
        assert_int_equal(recompute_length(2001, CROSSOVER), 3);
        assert_int_equal(recompute_length(UINT64_MAX, RECOMPUTE_CROSSOVER_MOST), 3);
}
