/* The definition of all kernels, a number at a time. */
#include <math.h>
#include <string.h>

#include "base/codec/codec-kernels.h"
#include "base/codec/codec-number.h"

static float f32_value(uint32_t bits)
{
        return f32_of(bits);
}

static uint32_t f32_round(float f)
{
        return f32_bits(f);
}

static float int8_value(uint8_t code)
{
        return (int8_t)code;
}

/* Rounds magnitudes of at most 127. */
static uint8_t int8_round(float f)
{
        return (uint8_t)(int8_t)rintf(f); /* ties to even, the default rounding mode */
}

#define MAGNITUDE(number, type)                                                                  \
        static void magnitude_##number(void *maximum, const void *x, size_t n)                   \
        {                                                                                        \
                const type sign = (type)((type)1 << (8 * sizeof(type) - 1));                     \
                                                                                                 \
                for (size_t i = 0; i < n; i++) {                                                 \
                        type most, bits;                                                         \
                                                                                                 \
                        memcpy(&most, (const char *)maximum + i * sizeof(type), sizeof(type));   \
                        memcpy(&bits, (const char *)x + i * sizeof(type), sizeof(type));         \
                        bits &= (type)~sign;                                                     \
                        if (bits > most)                                                         \
                                memcpy((char *)maximum + i * sizeof(type), &bits, sizeof(type)); \
                }                                                                                \
        }

#define GREATEST(number, type)                                                               \
        static void greatest_##number(void *maximum, const void *x, size_t n_rows, size_t n) \
        {                                                                                    \
                const char *from = x;                                                        \
                                                                                             \
                for (size_t i = 0; i < n_rows; i++) {                                        \
                        type most = 0;                                                       \
                                                                                             \
                        for (size_t k = 0; k < n; k++, from += sizeof(type))                 \
                                magnitude_##number(&most, from, 1);                          \
                        memcpy((char *)maximum + i * sizeof(type), &most, sizeof(type));     \
                }                                                                            \
        }

#define ENCODE(codec, number, type)                                                      \
        static void encode_##codec##_##number(                                           \
                uint8_t *code, const void *x, const float *factor, size_t n)             \
        {                                                                                \
                for (size_t i = 0; i < n; i++) {                                         \
                        type bits;                                                       \
                                                                                         \
                        memcpy(&bits, (const char *)x + i * sizeof(type), sizeof(type)); \
                        code[i] = codec##_round(number##_value(bits) * factor[i]);       \
                }                                                                        \
        }

#define DECODE(codec, number, type)                                                     \
        static void decode_##codec##_##number(                                          \
                void *x, const uint8_t *code, const float *factor, size_t n)            \
        {                                                                               \
                for (size_t i = 0; i < n; i++) {                                        \
                        type bits = number##_round(codec##_value(code[i]) * factor[i]); \
                                                                                        \
                        memcpy((char *)x + i * sizeof(type), &bits, sizeof(type));      \
                }                                                                       \
        }

#define ALL(number, type)          \
        MAGNITUDE(number, type)    \
        GREATEST(number, type)     \
        ENCODE(int8, number, type) \
        ENCODE(e4m3, number, type) \
        DECODE(int8, number, type) \
        DECODE(e4m3, number, type)

ALL(f16, uint16_t)
ALL(bf16, uint16_t)
ALL(f32, uint32_t)

#include "base/codec/codec-table.h"

const struct codec_kernels codec_kernels_scalar = CODEC_TABLE("scalar");
