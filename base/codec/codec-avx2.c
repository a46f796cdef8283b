/* AVX2 and F16C: eight numbers at a time. */
#include <immintrin.h>
#include <stdint.h>

#include "base/codec/codec-kernels.h"

#define LANES      8
#define HALF_LANES 16
#define WORD_LANES 8

typedef __m256 vector;

static inline vector vector_multiply(vector a, vector b)
{
        return _mm256_mul_ps(a, b);
}

static inline void magnitude_halves(void *maximum, const void *x)
{
        __m256i bits = _mm256_and_si256(_mm256_loadu_si256(x), _mm256_set1_epi16(0x7fff));

        _mm256_storeu_si256(maximum, _mm256_max_epu16(_mm256_loadu_si256(maximum), bits));
}

static inline void magnitude_words(void *maximum, const void *x)
{
        __m256i bits = _mm256_and_si256(_mm256_loadu_si256(x), _mm256_set1_epi32(0x7fffffff));

        _mm256_storeu_si256(maximum, _mm256_max_epu32(_mm256_loadu_si256(maximum), bits));
}

static inline uint32_t greatest_halves(const void *x, size_t n)
{
        const __m256i magnitude = _mm256_set1_epi16(0x7fff);
        __m256i most = _mm256_setzero_si256();
        const uint8_t *from = x;
        uint32_t found;
        __m128i eight;

        for (; n >= 16; n -= 16, from += 32)
                most = _mm256_max_epu16(
                        most, _mm256_and_si256(_mm256_loadu_si256((const void *)from), magnitude));
        eight = _mm_max_epu16(_mm256_castsi256_si128(most), _mm256_extracti128_si256(most, 1));
        if (n >= 8) {
                eight = _mm_max_epu16(eight, _mm_and_si128(_mm_loadu_si128((const void *)from),
                                                     _mm256_castsi256_si128(magnitude)));
                n -= 8;
                from += 16;
        }
        /* Finds the greatest as the least complement. */
        eight = _mm_minpos_epu16(_mm_xor_si128(eight, _mm_set1_epi16(-1)));
        found = 0xffff ^ (uint32_t)_mm_extract_epi16(eight, 0);
        return n > 0 ? greatest_rest_16(found, from, n) : found;
}

static inline uint32_t greatest_words(const void *x, size_t n)
{
        const __m256i magnitude = _mm256_set1_epi32(0x7fffffff);
        __m256i most = _mm256_setzero_si256();
        const uint8_t *from = x;
        uint32_t found;
        __m128i four;

        for (; n >= 8; n -= 8, from += 32)
                most = _mm256_max_epu32(
                        most, _mm256_and_si256(_mm256_loadu_si256((const void *)from), magnitude));
        four = _mm_max_epu32(_mm256_castsi256_si128(most), _mm256_extracti128_si256(most, 1));
        four = _mm_max_epu32(four, _mm_shuffle_epi32(four, 0x4e));
        four = _mm_max_epu32(four, _mm_shuffle_epi32(four, 0xb1));
        found = (uint32_t)_mm_cvtsi128_si32(four);
        return n > 0 ? greatest_rest_32(found, from, n) : found;
}

static inline vector load_f16(const void *p)
{
        return _mm256_cvtph_ps(_mm_loadu_si128(p));
}

static inline void store_f16(void *p, vector v)
{
        _mm_storeu_si128(p, _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
}

static inline vector load_bf16(const void *p)
{
        __m256i words = _mm256_cvtepu16_epi32(_mm_loadu_si128(p));

        return _mm256_castsi256_ps(_mm256_slli_epi32(words, 16));
}

/* Returns the low halves of eight words. */
static inline __m128i low_halves(__m256i words)
{
        return _mm_packus_epi32(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
}

static inline void store_bf16(void *p, vector v)
{
        __m256i bits = _mm256_castps_si256(v);
        __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));

        bits = _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
        _mm_storeu_si128(p, low_halves(_mm256_srli_epi32(bits, 16)));
}

static inline vector load_f32(const void *p)
{
        return _mm256_loadu_ps(p);
}

static inline void store_f32(void *p, vector v)
{
        _mm256_storeu_ps(p, v);
}

static inline vector load_int8(const void *p)
{
        return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(p)));
}

static inline void store_int8(void *p, vector v)
{
        __m256i words = _mm256_cvtps_epi32(v);
        __m128i halves =
                _mm_packs_epi32(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));

        _mm_storel_epi64(p, _mm_packs_epi16(halves, halves));
}

/* Vectors of e4m3_value() and e4m3_round(). */
static inline vector load_e4m3(const void *p)
{
        __m128i code = _mm_cvtepu8_epi16(_mm_loadl_epi64(p));
        __m128i sign = _mm_and_si128(_mm_slli_epi16(code, 8), _mm_set1_epi16((short)0x8000));
        __m128i low = _mm_slli_epi16(_mm_and_si128(code, _mm_set1_epi16(0x7f)), 7);

        return _mm256_mul_ps(_mm256_cvtph_ps(_mm_or_si128(sign, low)), _mm256_set1_ps(256));
}

static inline void store_e4m3(void *p, vector v)
{
        const __m256 step = _mm256_set1_ps(16384);
        __m256i bits = _mm256_castps_si256(v);
        __m256i low = _mm256_and_si256(bits, _mm256_set1_epi32(0x7fffffff));
        __m256i sign = _mm256_and_si256(_mm256_srli_epi32(bits, 24), _mm256_set1_epi32(0x80));
        __m256i small =
                _mm256_sub_epi32(_mm256_castps_si256(_mm256_add_ps(_mm256_castsi256_ps(low), step)),
                        _mm256_castps_si256(step));
        __m256i is_small = _mm256_cmpgt_epi32(_mm256_set1_epi32(0x3c800000), low);
        __m256i odd = _mm256_and_si256(_mm256_srli_epi32(low, 20), _mm256_set1_epi32(1));
        __m256i code;
        __m128i halves;

        low = _mm256_add_epi32(low, _mm256_set1_epi32(0x7ffff - ((127 - 7) << 23)));
        low = _mm256_srli_epi32(_mm256_add_epi32(low, odd), 20);
        code = _mm256_or_si256(_mm256_blendv_epi8(low, small, is_small), sign);
        halves = low_halves(code);
        _mm_storel_epi64(p, _mm_packus_epi16(halves, halves));
}

#include "base/codec/codec-simd.h"

const struct codec_kernels codec_kernels_avx2 = CODEC_TABLE("avx2");
