/*
 * The loops around vectors, for a file that first defines:
 *
 *   LANES, vector                       of fp32 numbers
 *   load_f16() ... store_f32()          LANES numbers of a format
 *   load_int8() ... store_e4m3()        LANES codes
 *   vector_multiply()
 *   HALF_LANES, magnitude_halves()      the greater of the two, 16 bits each
 *   WORD_LANES, magnitude_words()       32 bits each
 *   greatest_halves(), greatest_words() of a row, which may be as short as a page has tokens
 *
 * The scalar kernels handle the rest of a row.
 */
#ifndef KVL_BASE_CODEC_SIMD_H
#define KVL_BASE_CODEC_SIMD_H

#include <string.h>

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

#define GREATEST(number, type, width)                                                        \
        static void greatest_##number(void *maximum, const void *x, size_t n_rows, size_t n) \
        {                                                                                    \
                for (size_t i = 0; i < n_rows; i++) {                                        \
                        type most = (type)greatest_##width(                                  \
                                (const uint8_t *)x + i * n * sizeof(most), n);               \
                                                                                             \
                        memcpy((uint8_t *)maximum + i * sizeof(most), &most, sizeof(most));  \
                }                                                                            \
        }

#define ENCODE(codec, index, number, kind, type)                                                  \
        static void encode_##codec##_##number(                                                    \
                uint8_t *code, const void *x, const float *factor, size_t n)                      \
        {                                                                                         \
                const uint8_t *from = x;                                                          \
                size_t i = 0;                                                                     \
                                                                                                  \
                for (; i + LANES <= n; i += LANES)                                                \
                        store_##codec(                                                            \
                                code + i, vector_multiply(load_##number(from + i * sizeof(type)), \
                                                  load_f32(factor + i)));                         \
                if (i < n)                                                                        \
                        codec_kernels_scalar.encode[index][kind](                                 \
                                code + i, from + i * sizeof(type), factor + i, n - i);            \
        }

#define DECODE(codec, index, number, kind, type)                                                \
        static void decode_##codec##_##number(                                                  \
                void *x, const uint8_t *code, const float *factor, size_t n)                    \
        {                                                                                       \
                uint8_t *to = x;                                                                \
                size_t i = 0;                                                                   \
                                                                                                \
                for (; i + LANES <= n; i += LANES)                                              \
                        store_##number(to + i * sizeof(type),                                   \
                                vector_multiply(load_##codec(code + i), load_f32(factor + i))); \
                if (i < n)                                                                      \
                        codec_kernels_scalar.decode[index][kind](                               \
                                to + i * sizeof(type), code + i, factor + i, n - i);            \
        }

#define ALL(number, kind, type)             \
        ENCODE(int8, 0, number, kind, type) \
        ENCODE(e4m3, 1, number, kind, type) \
        DECODE(int8, 0, number, kind, type) \
        DECODE(e4m3, 1, number, kind, type)

MAGNITUDE(f16, CODEC_F16, uint16_t, HALF_LANES, magnitude_halves)
MAGNITUDE(bf16, CODEC_BF16, uint16_t, HALF_LANES, magnitude_halves)
MAGNITUDE(f32, CODEC_F32, uint32_t, WORD_LANES, magnitude_words)
GREATEST(f16, uint16_t, halves)
GREATEST(bf16, uint16_t, halves)
GREATEST(f32, uint32_t, words)
ALL(f16, CODEC_F16, uint16_t)
ALL(bf16, CODEC_BF16, uint16_t)
ALL(f32, CODEC_F32, uint32_t)

#endif
