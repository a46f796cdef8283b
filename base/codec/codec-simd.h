/*
 * The loops around vectors, for a file that defines before it includes this:
 *
 *   LANES, vector                       of fp32 numbers
 *   load_f16() ... store_f32()          LANES numbers of a format
 *   load_int8() ... store_e4m3()        LANES codes
 *   multiply()
 *   HALF_LANES, magnitude_halves()      the greater of the two, 16 bits each; a power of 2
 *   WORD_LANES, magnitude_words()       32 bits each
 *
 * What is left of a row is the scalar kernels'.
 */
#ifndef KVL_BASE_CODEC_SIMD_H
#define KVL_BASE_CODEC_SIMD_H

#include "base/codec/codec-kernels.h"
#include "base/codec/codec-table.h"

#define MAGNITUDE(number, kind, type, lanes, step)                              \
        static void magnitude_##number(void *maximum, const void *x, size_t n)  \
        {                                                                       \
                uint8_t *to = maximum;                                          \
                const uint8_t *from = x;                                        \
                size_t i = 0;                                                   \
                                                                                \
                for (; i + (lanes) <= n; i += (lanes))                          \
                        step(to + i * sizeof(type), from + i * sizeof(type));   \
                codec_kernels_scalar.magnitude[kind](                           \
                        to + i * sizeof(type), from + i * sizeof(type), n - i); \
        }

/* GCC 12 puts what it aligns to 64 bytes at less in AddressSanitizer's frames on the heap (its bug
 * 110027), so that an aligned store of `most` faults. */
#define GREATEST(number, kind, type, lanes, step)                                                \
        __attribute__((no_sanitize("address"))) static uint32_t greatest_##number(               \
                const void *x, size_t n)                                                         \
        {                                                                                        \
                type most[lanes] = {0};                                                          \
                const uint8_t *from = x;                                                         \
                size_t i = 0;                                                                    \
                for (; i + (lanes) <= n; i += (lanes))                                           \
                        step(most, from + i * sizeof(type));                                     \
                codec_kernels_scalar.magnitude[kind](most, from + i * sizeof(type), n - i);      \
                for (size_t width = (lanes) / 2; i > 0 && width > 0; width /= 2)                 \
                        for (size_t k = 0; k < width; k++)                                       \
                                most[k] = most[k] > most[k + width] ? most[k] : most[k + width]; \
                return i > 0 ? most[0] : codec_kernels_scalar.greatest[kind](x, n);              \
        }

#define ENCODE(codec, index, number, kind, type)                                                 \
        static void encode_##codec##_##number(                                                   \
                uint8_t *code, const void *x, const float *factor, size_t n)                     \
        {                                                                                        \
                const uint8_t *from = x;                                                         \
                size_t i = 0;                                                                    \
                                                                                                 \
                for (; i + LANES <= n; i += LANES)                                               \
                        store_##codec(code + i, multiply(load_##number(from + i * sizeof(type)), \
                                                        load_f32(factor + i)));                  \
                codec_kernels_scalar.encode[index][kind](                                        \
                        code + i, from + i * sizeof(type), factor + i, n - i);                   \
        }

#define DECODE(codec, index, number, kind, type)                                         \
        static void decode_##codec##_##number(                                           \
                void *x, const uint8_t *code, const float *factor, size_t n)             \
        {                                                                                \
                uint8_t *to = x;                                                         \
                size_t i = 0;                                                            \
                                                                                         \
                for (; i + LANES <= n; i += LANES)                                       \
                        store_##number(to + i * sizeof(type),                            \
                                multiply(load_##codec(code + i), load_f32(factor + i))); \
                codec_kernels_scalar.decode[index][kind](                                \
                        to + i * sizeof(type), code + i, factor + i, n - i);             \
        }

#define ALL(number, kind, type)             \
        ENCODE(int8, 0, number, kind, type) \
        ENCODE(e4m3, 1, number, kind, type) \
        DECODE(int8, 0, number, kind, type) \
        DECODE(e4m3, 1, number, kind, type)

MAGNITUDE(f16, CODEC_F16, uint16_t, HALF_LANES, magnitude_halves)
MAGNITUDE(bf16, CODEC_BF16, uint16_t, HALF_LANES, magnitude_halves)
MAGNITUDE(f32, CODEC_F32, uint32_t, WORD_LANES, magnitude_words)
GREATEST(f16, CODEC_F16, uint16_t, HALF_LANES, magnitude_halves)
GREATEST(bf16, CODEC_BF16, uint16_t, HALF_LANES, magnitude_halves)
GREATEST(f32, CODEC_F32, uint32_t, WORD_LANES, magnitude_words)
ALL(f16, CODEC_F16, uint16_t)
ALL(bf16, CODEC_BF16, uint16_t)
ALL(f32, CODEC_F32, uint32_t)

#endif
