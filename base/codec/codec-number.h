/* Conversions of single numbers: IEEE 754 binary16, bfloat16, and OCP E4M3. Rounding is to the
 * nearest, ties to even. */
#ifndef KVL_BASE_CODEC_NUMBER_H
#define KVL_BASE_CODEC_NUMBER_H

#include <stdint.h>
#include <string.h>

static inline uint32_t f32_bits(float f)
{
        uint32_t bits;

        memcpy(&bits, &f, sizeof(bits));
        return bits;
}

static inline float f32_of(uint32_t bits)
{
        float f;

        memcpy(&f, &bits, sizeof(f));
        return f;
}

static inline float f16_value(uint16_t h)
{
        uint32_t sign = (uint32_t)(h & 0x8000) << 16, low = h & 0x7fff;

        if (low < 0x0400) /* subnormal: multiples of 2^-24 */
                return f32_of(f32_bits((float)low * 0x1p-24f) | sign);
        if (low >= 0x7c00)
                return f32_of(0x7f800000 | (low & 0x03ff) << 13 | sign);
        return f32_of(((low << 13) + ((127 - 15) << 23)) | sign);
}

static inline uint16_t f16_round(float f)
{
        uint32_t bits = f32_bits(f), low = bits & 0x7fffffff;
        uint16_t sign = (uint16_t)(bits >> 16 & 0x8000);

        if (low > 0x7f800000)
                return sign | 0x7e00;
        if (low >= 0x477ff000) /* 65520, half a step above the largest */
                return sign | 0x7c00;
        if (low < 0x38800000) /* 2^-14: 0.5 has a step of 2^-24 */
                return (uint16_t)(sign | (f32_bits(f32_of(low) + 0.5f) - f32_bits(0.5f)));
        low -= (127 - 15) << 23;
        return (uint16_t)(sign | ((low + 0x0fff + (low >> 13 & 1)) >> 13));
}

static inline float bf16_value(uint16_t h)
{
        return f32_of((uint32_t)h << 16);
}

/* Returns the nearest bfloat16 of a finite number; ties to even. */
static inline uint16_t bf16_round(float f)
{
        uint32_t bits = f32_bits(f);

        return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

/* Every code is a number here. 0x7f and 0xff, which codec_encode() never makes, are 480. */
static inline float e4m3_value(uint8_t code)
{
        /* Read as binary16 the code has a 256th of its value: exponent biases are 7 and 15. */
        return f16_value((uint16_t)((code & 0x80) << 8 | (code & 0x7f) << 7)) * 256;
}

/* Returns the nearest E4M3 code of a number whose magnitude is below 464. */
static inline uint8_t e4m3_round(float f)
{
        uint32_t bits = f32_bits(f), low = bits & 0x7fffffff;
        uint8_t sign = (uint8_t)(bits >> 24 & 0x80);

        if (low < 0x3c800000) /* 2^-6: 16384 has a step of 2^-9 */
                return (uint8_t)(sign | (f32_bits(f32_of(low) + 16384) - f32_bits(16384)));
        low -= (127 - 7) << 23;
        return (uint8_t)(sign | (low + 0x7ffff + (low >> 20 & 1)) >> 20);
}

#endif
