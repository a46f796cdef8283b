/*
 * The arithmetic of the decoder, in plain C.
 *
 * One rule: each element of a result is computed by the same operations in the same order. It
 * doesn't matter how the work is cut into rows, columns or calls. So a token's K, V and logits have
 * the same bits whether its predecessors were computed in the same chunk, in another one, or found
 * in the cache. (Compiled without -ffast-math and with -ffp-contract=off.)
 *
 * Stateless, thread-safe.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* Columns in one panel of a weight matrix: two SSE registers, measured with --no-daemon. */
#define KERNEL_PANEL 8

/*
 * c[m][n] += a[m][k] * b[k][n]; lda, ldb, ldc: floats from one row to the next. Sums over k in
 * ascending order, starting with what c holds: calls over parts of k add up to one call.
 */
void kernel_gemm(const float *a, size_t lda, size_t m, const float *b, size_t ldb, size_t k,
        size_t n, float *c, size_t ldc);

/* out[m][n_out] = x[m][n_in] * w, w in panels [n_out / KERNEL_PANEL][n_in][KERNEL_PANEL]. */
void kernel_linear(const float *x, size_t m, size_t n_in, const float *w, size_t n_out, float *out);

/* out = x / rms(x) * gain, over n elements. */
void kernel_rms_norm(const float *x, const float *gain, size_t n, float *out);

/* gate = silu(gate) * up. */
void kernel_swiglu(float *gate, const float *up, size_t n);

/*
 * scores[i] = exp(biased[i] - max), and returns their sum; biased[i] = scores[i] * scale - slope *
 * (n - 1 - i), and max is the largest of those. scores must have room for n rounded up to
 * KERNEL_PANEL.
 */
float kernel_exp_sum(float *scores, size_t n, float scale, float slope);

/* Converts fp16 numbers of a page to floats. */
void kernel_widen(const uint16_t *halves, size_t n, float *out);
