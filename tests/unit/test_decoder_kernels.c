/* The decoder's arithmetic: right, and the same bits however the work is cut. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

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

static void test_gemm_is_right(void **state)
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
static void test_gemm_is_the_same_in_pieces(void **state)
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

static void test_linear_reads_panels(void **state)
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

static void test_exp_sum(void **state)
{
        static float scores[N_SCORES + KERNEL_PANEL], before[N_SCORES];
        float max = -INFINITY, sum;
        double expected_sum = 0;

        for (int i = 0; i < N_SCORES; i++) {
                scores[i] = before[i] = 30 * random_float();
                max = before[i] > max ? before[i] : max;
        }
        scores[N_SCORES] = 1e9f; /* the padding is not looked at */
        sum = kernel_exp_sum(scores, N_SCORES, 0.5f);
        for (int i = 0; i < N_SCORES; i++) {
                double exact = exp(0.5 * (double)(before[i] - max));

                assert_true(fabs((double)scores[i] - exact) <= 2e-6 * exact);
                expected_sum += exact;
        }
        assert_true(fabs((double)sum - expected_sum) < 1e-5 * expected_sum);
}

static void test_exp_sum_of_one(void **state)
{
        float scores[KERNEL_PANEL] = {-12345.0f};

        assert_true(kernel_exp_sum(scores, 1, 1.0f) == 1.0f);
        assert_true(scores[0] == 1.0f);
}

static void test_swiglu_at_the_ends(void **state)
{
        float gate[3] = {-1000, 0, 1000}, up[3] = {2, 2, 2};

        kernel_swiglu(gate, up, 3);
        assert_float_equal(gate[0], 0, 1e-30f);
        assert_true(gate[1] == 0);
        assert_float_equal(gate[2], 2000, 1e-3f);
}

static void test_rope_turns(void **state)
{
        float x[4] = {1, 2, 3, 4}, cosines[2] = {0, 1}, sines[2] = {1, 0};

        kernel_rope(x, 4, cosines, sines);
        assert_true(x[0] == -3 && x[2] == 1); /* a quarter turn */
        assert_true(x[1] == 2 && x[3] == 4);  /* none */
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                TEST(test_gemm_is_right),
                TEST(test_gemm_is_the_same_in_pieces),
                TEST(test_linear_reads_panels),
                TEST(test_exp_sum),
                TEST(test_exp_sum_of_one),
                TEST(test_swiglu_at_the_ends),
                TEST(test_rope_turns),
        };

        return cmocka_run_group_tests(tests, setup, NULL);
}
