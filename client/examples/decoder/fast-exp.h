/* The exponential of the CPU's and the GPU's kernels: one source gives the same bits. */
#pragma once

#include <stdint.h>
#include <string.h>

#ifdef __CUDACC__
#define FAST_EXP_INLINE static inline __device__
#else
#define FAST_EXP_INLINE static inline __attribute__((always_inline))
#endif

/* e^x as 2^n * e^r, |r| <= ln(2)/2, by the Taylor polynomial of degree 6: no branches, so loops
 * over it are vectorized, and the same bits with every libm. Relative error below 1e-6. */
FAST_EXP_INLINE float fast_exp(float x)
{
        const float round =
                12582912.0f; /* 1.5 * 2^23: adding it leaves the nearest integer in the low bits */
        float n, r, y, power;
        uint32_t bits;

        x = x < -87.0f ? -87.0f : x;
        x = x > 88.0f ? 88.0f : x;
        n = x * 1.44269504f + round;
        memcpy(&bits, &n, sizeof(bits));
        bits = (bits + 127) << 23; /* only zeros remain of `round` */
        memcpy(&power, &bits, sizeof(power));
        n -= round;
        r = x - n * 0.693359375f; /* ln 2 in two parts, the first exact in n * part */
        r -= n * -2.12194440e-4f;
        y = 1.0f / 720;
        y = y * r + 1.0f / 120;
        y = y * r + 1.0f / 24;
        y = y * r + 1.0f / 6;
        y = y * r + 0.5f;
        y = y * r + 1.0f;
        y = y * r + 1.0f;
        return y * power;
}
