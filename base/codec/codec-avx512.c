/* AVX-512 (F, BW, DQ, VL): sixteen numbers at a time. */
#include <immintrin.h>
#include <stddef.h>
#include <stdint.h>

#define LANES      16
#define HALF_LANES 32
#define WORD_LANES 16

typedef __m512 vector;

static inline vector vector_multiply(vector a, vector b)
{
        return _mm512_mul_ps(a, b);
}

static inline void magnitude_halves(void *maximum, const void *x)
{
        __m512i bits = _mm512_and_si512(_mm512_loadu_si512(x), _mm512_set1_epi16(0x7fff));

        _mm512_storeu_si512(maximum, _mm512_max_epu16(_mm512_loadu_si512(maximum), bits));
}

static inline void magnitude_words(void *maximum, const void *x)
{
        __m512i bits = _mm512_and_si512(_mm512_loadu_si512(x), _mm512_set1_epi32(0x7fffffff));

        _mm512_storeu_si512(maximum, _mm512_max_epu32(_mm512_loadu_si512(maximum), bits));
}

static inline uint32_t greatest_halves(const void *x, size_t n)
{
        const __m512i magnitude = _mm512_set1_epi16(0x7fff);
        const __m256i magnitude16 = _mm512_castsi512_si256(magnitude);
        __m512i most = _mm512_setzero_si512();
        const uint8_t *from = x;
        __m256i most16;
        __m128i most8;

        for (; n >= 32; n -= 32, from += 64)
                most = _mm512_max_epu16(
                        most, _mm512_and_si512(_mm512_loadu_si512(from), magnitude));
        most16 = _mm256_max_epu16(_mm512_castsi512_si256(most), _mm512_extracti64x4_epi64(most, 1));
        for (; n >= 16; n -= 16, from += 32)
                most16 = _mm256_max_epu16(most16,
                        _mm256_and_si256(_mm256_loadu_si256((const void *)from), magnitude16));
        if (n > 0)
                most16 = _mm256_max_epu16(most16,
                        _mm256_and_si256(_mm256_maskz_loadu_epi16((__mmask16)((1u << n) - 1), from),
                                magnitude16));
        most8 = _mm_max_epu16(_mm256_castsi256_si128(most16), _mm256_extracti128_si256(most16, 1));
        /* Finds the greatest as the least complement. */
        most8 = _mm_minpos_epu16(_mm_xor_si128(most8, _mm_set1_epi16(-1)));
        return 0xffff ^ (uint32_t)_mm_extract_epi16(most8, 0);
}

static inline uint32_t greatest_words(const void *x, size_t n)
{
        const __m512i magnitude = _mm512_set1_epi32(0x7fffffff);
        __m512i most = _mm512_setzero_si512();
        const uint8_t *from = x;

        for (; n >= 16; n -= 16, from += 64)
                most = _mm512_max_epu32(
                        most, _mm512_and_si512(_mm512_loadu_si512(from), magnitude));
        if (n > 0)
                most = _mm512_max_epu32(most,
                        _mm512_and_si512(_mm512_maskz_loadu_epi32((__mmask16)((1u << n) - 1), from),
                                magnitude));
        return _mm512_reduce_max_epu32(most);
}

static inline vector load_f16(const void *p)
{
        return _mm512_cvtph_ps(_mm256_loadu_si256(p));
}

static inline void store_f16(void *p, vector v)
{
        _mm256_storeu_si256(p, _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
}

static inline vector load_bf16(const void *p)
{
        __m512i words = _mm512_cvtepu16_epi32(_mm256_loadu_si256(p));

        return _mm512_castsi512_ps(_mm512_slli_epi32(words, 16));
}

static inline void store_bf16(void *p, vector v)
{
        __m512i bits = _mm512_castps_si512(v);
        __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));

        bits = _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
        _mm256_storeu_si256(p, _mm512_cvtepi32_epi16(_mm512_srli_epi32(bits, 16)));
}

static inline vector load_f32(const void *p)
{
        return _mm512_loadu_ps(p);
}

static inline void store_f32(void *p, vector v)
{
        _mm512_storeu_ps(p, v);
}

static inline vector load_int8(const void *p)
{
        return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(p)));
}

static inline void store_int8(void *p, vector v)
{
        _mm_storeu_si128(p, _mm512_cvtepi32_epi8(_mm512_cvtps_epi32(v)));
}

/* Vectors of e4m3_value() and e4m3_round(). */
static inline vector load_e4m3(const void *p)
{
        __m256i code = _mm256_cvtepu8_epi16(_mm_loadu_si128(p));
        __m256i sign =
                _mm256_and_si256(_mm256_slli_epi16(code, 8), _mm256_set1_epi16((short)0x8000));
        __m256i low = _mm256_slli_epi16(_mm256_and_si256(code, _mm256_set1_epi16(0x7f)), 7);

        return _mm512_mul_ps(_mm512_cvtph_ps(_mm256_or_si256(sign, low)), _mm512_set1_ps(256));
}

static inline void store_e4m3(void *p, vector v)
{
        const __m512 step = _mm512_set1_ps(16384);
        __m512i bits = _mm512_castps_si512(v);
        __m512i low = _mm512_and_si512(bits, _mm512_set1_epi32(0x7fffffff));
        __m512i sign = _mm512_and_si512(_mm512_srli_epi32(bits, 24), _mm512_set1_epi32(0x80));
        __m512i small =
                _mm512_sub_epi32(_mm512_castps_si512(_mm512_add_ps(_mm512_castsi512_ps(low), step)),
                        _mm512_castps_si512(step));
        __mmask16 is_small = _mm512_cmplt_epi32_mask(low, _mm512_set1_epi32(0x3c800000));
        __m512i odd = _mm512_and_si512(_mm512_srli_epi32(low, 20), _mm512_set1_epi32(1));

        low = _mm512_add_epi32(low, _mm512_set1_epi32(0x7ffff - ((127 - 7) << 23)));
        low = _mm512_srli_epi32(_mm512_add_epi32(low, odd), 20);
        low = _mm512_or_si512(_mm512_mask_blend_epi32(is_small, low, small), sign);
        _mm_storeu_si128(p, _mm512_cvtepi32_epi8(low));
}

#include "base/codec/codec-simd.h"

const struct codec_kernels codec_kernels_avx512 = CODEC_TABLE("avx512");
