/* The decoder's arithmetic: right, and the same bits however the work is cut. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "client/examples/decoder/half.h"
#include "client/examples/decoder/kernels.h"
#include "tests/unit/test-support.h"

enum { M = 7, K = 37, N = 29, N_SCORES = 1003 };

static float a[M * K], b[K * N], expected[M * N];

static float random_float(void)
{
        return (float)rand() / (float)RAND_MAX * 2 - 1;
}

static int setup(void **state)
{
        srand(1);
        for (int i = 0; i < M * K; i++)
                a[i] = random_float();
        for (int i = 0; i < K * N; i++)
                b[i] = random_float();
        memset(expected, 0, sizeof(expected));
        kernel_gemm(a, K, M, b, N, K, N, expected, N);
        return 0;
}

TEST(test_gemm_is_right)
{
        for (int i = 0; i < M; i++) {
                for (int j = 0; j < N; j++) {
                        double sum = 0;

                        for (int p = 0; p < K; p++)
                                sum += (double)a[i * K + p] * (double)b[p * N + j];
                        assert_float_equal((float)sum, expected[i * N + j], 1e-5f);
                }
        }
}

/* Rows one by one, columns in odd pieces, and the sum in two parts. */
TEST(test_gemm_is_the_same_in_pieces)
{
        float c[M * N] = {0};

        for (int i = 0; i < M; i++)
                kernel_gemm(a + i * K, K, 1, b, N, K, N, c + i * N, N);
        assert_memory_equal(c, expected, sizeof(c));

        memset(c, 0, sizeof(c));
        for (int j = 0; j < N; j += 11)
                kernel_gemm(a, K, M, b + j, N, K, N - j < 11 ? N - j : 11, c + j, N);
        assert_memory_equal(c, expected, sizeof(c));

        memset(c, 0, sizeof(c));
        kernel_gemm(a, K, M, b, N, 5, N, c, N);
        kernel_gemm(a + 5, K, M, b + 5 * N, N, K - 5, N, c, N);
        assert_memory_equal(c, expected, sizeof(c));
}

TEST(test_linear_reads_panels)
{
        float panels[K * 24], out[M * 24], plain[M * 24] = {0};

        for (int p = 0; p < K; p++)
                for (int j = 0; j < 24; j++)
                        panels[(j / KERNEL_PANEL * K + p) * KERNEL_PANEL + j % KERNEL_PANEL] =
                                b[p * N + j];
        kernel_linear(a, M, K, panels, 24, out);
        kernel_gemm(a, K, M, b, N, K, 24, plain, 24);
        assert_memory_equal(out, plain, sizeof(out));
}

TEST(test_exp_sum)
{
        static float scores[N_SCORES + KERNEL_PANEL], before[N_SCORES];
        double expected_sum = 0, max = -INFINITY;
        float sum;

        for (int i = 0; i < N_SCORES; i++) {
                scores[i] = before[i] = 30 * random_float();
                max = fmax(max, 0.5 * (double)before[i] - (N_SCORES - 1 - i) / 64.0);
        }
        scores[N_SCORES] = 1e9f; /* the padding is not looked at */
        sum = kernel_exp_sum(scores, N_SCORES, 0.5f, 1.0f / 64);
        for (int i = 0; i < N_SCORES; i++) {
                double exact = exp(0.5 * (double)before[i] - (N_SCORES - 1 - i) / 64.0 - max);

                assert_true(fabs((double)scores[i] - exact) <= 4e-6 * exact);
                expected_sum += exact;
        }
        assert_true(fabs((double)sum - expected_sum) < 1e-5 * expected_sum);
}

TEST(test_exp_sum_of_one)
{
        float scores[KERNEL_PANEL] = {-12345.0f};

        assert_true(kernel_exp_sum(scores, 1, 1.0f, 0.25f) == 1.0f);
        assert_true(scores[0] == 1.0f);
}

TEST(test_swiglu_at_the_ends)
{
        float gate[3] = {-1000, 0, 1000}, up[3] = {2, 2, 2};

        kernel_swiglu(gate, up, 3);
        assert_float_equal(gate[0], 0, 1e-30f);
        assert_true(gate[1] == 0);
        assert_float_equal(gate[2], 2000, 1e-3f);
}

/* Every fp16 number comes back from a float. */
TEST(test_halves_are_exact)
{
        for (unsigned half = 0; half < 0x10000; half++) {
                unsigned exponent = half >> 10 & 31, mantissa = half & 0x3ff;
                double value = exponent ? ldexp(0x400 + mantissa, (int)exponent - 25)
                                        : ldexp(mantissa, -24);
                float wide;

                if (exponent == 31) /* infinities and NaNs are never made */
                        continue;
                wide = half_value((uint16_t)half);
                assert_true((double)wide == (half & 0x8000 ? -value : value));
                assert_int_equal(half_of(wide), half);
        }
}

/* Between two neighbours: to the nearer one, from the middle to the even one. */
TEST(test_halves_are_rounded)
{
        for (uint16_t half = 0; half < 0x7bff; half++) {
                float low = half_value(half), high = half_value(half + 1), middle;

                middle = (low + high) / 2;
                assert_int_equal(half_of(nextafterf(middle, 0)), half);
                assert_int_equal(half_of(nextafterf(middle, 1e9f)), half + 1);
                assert_int_equal(half_of(middle), half + half % 2);
                assert_int_equal(half_of(-middle), 0x8000 | (half + half % 2));
        }
        assert_int_equal(half_of(1e9f), 0x7bff);
        assert_int_equal(half_of(-INFINITY), 0xfbff);
}

TEST(test_widen)
{
        uint16_t halves[N_SCORES];
        float wide[N_SCORES];

        for (unsigned i = 0; i < N_SCORES; i++)
                halves[i] = (uint16_t)(i * 61 % 0x7c00);
        kernel_widen(halves, N_SCORES, wide);
        for (unsigned i = 0; i < N_SCORES; i++)
                assert_true(wide[i] == half_value(halves[i]));
}

int main(void)
{
        return test_run_all(setup, NULL);
}
