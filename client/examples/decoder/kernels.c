#include <math.h>
#include <string.h>

#include "client/examples/decoder/fast-exp.h"
#include "client/examples/decoder/half.h"
#include "client/examples/decoder/kernels.h"

/* Compiles the same C also for AVX2: 1.8 times as fast (decoder --no-daemon, 4096 tokens of GPL-3).
 * Vectors only hold more elements, each computed by the same operations: the bits don't depend on
 * the CPU. Not with sanitizers: their runtime isn't ready when the choice is made. */
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && \
        !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define FOR_CPU __attribute__((target_clones("avx2", "default")))
#else
#define FOR_CPU
#endif

#define INLINE static inline __attribute__((always_inline))

typedef float panel
        __attribute__((vector_size(KERNEL_PANEL * sizeof(float)), aligned(4), may_alias));

/* m is a constant when inlined, so the accumulators stay in registers. */
INLINE void gemm_tile(const float *a, size_t lda, size_t m, const float *b, size_t ldb, size_t k,
        float *c, size_t ldc)
{
        panel acc[4];

        for (size_t i = 0; i < m; i++)
                acc[i] = *(const panel *)(c + i * ldc);
        for (size_t p = 0; p < k; p++) {
                panel row = *(const panel *)(b + p * ldb);

                for (size_t i = 0; i < m; i++)
                        acc[i] += a[i * lda + p] * row;
        }
        for (size_t i = 0; i < m; i++)
                *(panel *)(c + i * ldc) = acc[i];
}

/* Computes the columns that don't fill a panel. */
INLINE void gemm_edge(const float *a, size_t lda, size_t m, const float *b, size_t ldb, size_t k,
        size_t n, float *c, size_t ldc)
{
        for (size_t i = 0; i < m; i++) {
                for (size_t j = 0; j < n; j++) {
                        float sum = c[i * ldc + j];

                        for (size_t p = 0; p < k; p++)
                                sum += a[i * lda + p] * b[p * ldb + j];
                        c[i * ldc + j] = sum;
                }
        }
}

FOR_CPU
void kernel_gemm(const float *a, size_t lda, size_t m, const float *b, size_t ldb, size_t k,
        size_t n, float *c, size_t ldc)
{
        size_t j;

        for (j = 0; j + KERNEL_PANEL <= n; j += KERNEL_PANEL) {
                size_t i = 0;

                for (; i + 4 <= m; i += 4)
                        gemm_tile(a + i * lda, lda, 4, b + j, ldb, k, c + i * ldc + j, ldc);
                for (; i < m; i++)
                        gemm_tile(a + i * lda, lda, 1, b + j, ldb, k, c + i * ldc + j, ldc);
        }
        gemm_edge(a, lda, m, b + j, ldb, k, n - j, c + j, ldc);
}

void kernel_linear(const float *x, size_t m, size_t n_in, const float *w, size_t n_out, float *out)
{
        memset(out, 0, m * n_out * sizeof(*out));
        for (size_t j = 0; j < n_out; j += KERNEL_PANEL)
                kernel_gemm(
                        x, n_in, m, w + j * n_in, KERNEL_PANEL, n_in, KERNEL_PANEL, out + j, n_out);
}

void kernel_rms_norm(const float *x, const float *gain, size_t n, float *out)
{
        float squares = 0, factor;

        for (size_t i = 0; i < n; i++)
                squares += x[i] * x[i];
        factor = 1.0f / sqrtf(squares / (float)n + 1e-5f);
        for (size_t i = 0; i < n; i++)
                out[i] = x[i] * factor * gain[i];
}

FOR_CPU
void kernel_swiglu(float *gate, const float *up, size_t n)
{
        for (size_t i = 0; i < n; i++)
                gate[i] = gate[i] / (1.0f + fast_exp(-gate[i])) * up[i];
}

/* Lane j takes elements j, j + 8, j + 16, ...: an order that depends on n only. */
FOR_CPU
float kernel_exp_sum(float *scores, size_t n, float scale, float slope)
{
        size_t padded = (n + KERNEL_PANEL - 1) / KERNEL_PANEL * KERNEL_PANEL;
        float lanes[KERNEL_PANEL], max, sum = 0;
        int32_t last = (int32_t)n - 1;

        for (int32_t i = 0; i <= last; i++)
                scores[i] = scores[i] * scale + slope * (float)(i - last);
        for (size_t i = n; i < padded; i++)
                scores[i] = -INFINITY;
        memcpy(lanes, scores, sizeof(lanes));
        for (size_t i = KERNEL_PANEL; i < padded; i += KERNEL_PANEL)
                for (size_t j = 0; j < KERNEL_PANEL; j++)
                        lanes[j] = scores[i + j] > lanes[j] ? scores[i + j] : lanes[j];
        max = lanes[0];
        for (size_t j = 1; j < KERNEL_PANEL; j++)
                max = lanes[j] > max ? lanes[j] : max;

        for (size_t i = 0; i < padded; i++)
                scores[i] = fast_exp(scores[i] - max);
        for (size_t i = n; i < padded; i++)
                scores[i] = 0;

        memset(lanes, 0, sizeof(lanes));
        for (size_t i = 0; i < padded; i += KERNEL_PANEL)
                for (size_t j = 0; j < KERNEL_PANEL; j++)
                        lanes[j] += scores[i + j];
        for (size_t j = 0; j < KERNEL_PANEL; j++)
                sum += lanes[j];
        return sum;
}

FOR_CPU
void kernel_widen(const uint16_t *halves, size_t n, float *out)
{
        for (size_t i = 0; i < n; i++)
                out[i] = half_value(halves[i]);
}
