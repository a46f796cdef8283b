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

static double mean_of(uint64_t n, uint32_t crossover)
{
        return recompute_prefix(n, crossover) / (double)n;
}

static void expect_in_bin(uint64_t n, uint32_t crossover)
{
        uint32_t bin = recompute_bin(n, crossover);
        double half = pow(2, 0.25);

        assert_true(bin < RECOMPUTE_BINS);
        assert_true(mean_of(n, crossover) >= recompute_bin_cost(bin) / half - 1e-9);
        if (bin + 1 < RECOMPUTE_BINS)
                assert_true(mean_of(n, crossover) <= recompute_bin_cost(bin) * half + 1e-9);
}

TEST(test_bins)
{
        for (uint64_t n = 1; n < 100000; n += 7)
                expect_in_bin(n, CROSSOVER);
        for (uint32_t crossover = 1; crossover < RECOMPUTE_CROSSOVER_MOST; crossover *= 3)
                for (uint64_t n = 1; n < UINT64_C(1) << 40; n *= 2)
                        expect_in_bin(n, crossover);
        for (uint32_t bin = 0; bin < RECOMPUTE_BINS; bin++)
                assert_true(fabs(recompute_bin_cost(bin) - pow(2, (bin + 0.5) / 2)) < 1e-12);
        assert_int_equal(recompute_bin(0, CROSSOVER), 0);
        assert_int_equal(recompute_bin(UINT64_MAX, 1), RECOMPUTE_BINS - 1);
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
