/* Numbers in pages: IEEE fp16 (binary16). One source for the CPU's and the GPU's kernels. */
#pragma once

#include <stdint.h>
#include <string.h>

#ifdef __CUDACC__
#define HALF_INLINE static inline __device__
#else
#define HALF_INLINE static inline __attribute__((always_inline))
#endif

/* Exact, except for infinities and NaNs, which half_of() doesn't make. No branches, so loops over
 * it are vectorized. */
HALF_INLINE float half_value(uint16_t half)
{
        uint32_t bits = (uint32_t)(half & 0x7fff) << 13, sign = (uint32_t)(half & 0x8000) << 16;
        float value;

        memcpy(&value, &bits, sizeof(value));
        value *= 5.192296858534828e33f; /* 2^112: the difference of the exponents' zeros */
        memcpy(&bits, &value, sizeof(bits));
        bits |= sign;
        memcpy(&value, &bits, sizeof(value));
        return value;
}

/* Rounds to the nearest, ties to even; beyond the largest (65504), and for NaN, the largest. */
HALF_INLINE uint16_t half_of(float x)
{
        uint32_t bits, sign, subnormal, normal;
        float magnitude, shifted;

        memcpy(&bits, &x, sizeof(bits));
        sign = bits >> 16 & 0x8000;
        bits &= 0x7fffffff;
        memcpy(&magnitude, &bits, sizeof(magnitude));
        magnitude = magnitude < 65504.0f ? magnitude : 65504.0f;
        memcpy(&bits, &magnitude, sizeof(bits));
        shifted = magnitude + 0.5f; /* floats from there on are 2^-24 apart, as subnormal halves */
        memcpy(&subnormal, &shifted, sizeof(subnormal));
        subnormal -= 0x3f000000;
        normal = ((bits + 0xfff + (bits >> 13 & 1)) >> 13) - (112u << 10);
        return (uint16_t)(sign | (bits < 0x38800000 /* 2^-14 */ ? subnormal : normal));
}
