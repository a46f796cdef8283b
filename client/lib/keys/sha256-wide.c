/* SHA-256 of a vector's width of inputs, with the vectors that this file is compiled for:
 * -DSHA256_WIDE=sha256_NAME. Word i of all inputs is one vector. */
#include <immintrin.h>

#include "client/lib/keys/sha256.h"

#if defined(__AVX512BW__)
#define N_LANES 16u
#else
#define N_LANES 8u
#endif

#define N_WORDS 16u /* in a block */

typedef uint32_t words __attribute__((vector_size(4 * N_LANES)));

#if defined(__AVX512BW__)
static inline words reverse_bytes(words x)
{
        return (words)_mm512_shuffle_epi8(
                (__m512i)x, _mm512_set4_epi32(0x0c0d0e0f, 0x08090a0b, 0x04050607, 0x00010203));
}

/* The truth tables of the functions. */
#define XOR3(x, y, z) \
        ((words)_mm512_ternarylogic_epi32((__m512i)(x), (__m512i)(y), (__m512i)(z), 0x96))
#define CHOOSE(x, y, z) \
        ((words)_mm512_ternarylogic_epi32((__m512i)(x), (__m512i)(y), (__m512i)(z), 0xca))
#define MAJORITY(x, y, z) \
        ((words)_mm512_ternarylogic_epi32((__m512i)(x), (__m512i)(y), (__m512i)(z), 0xe8))
#define ALL(f, s)                                                                                 \
        f(s, 0), f(s, 1), f(s, 2), f(s, 3), f(s, 4), f(s, 5), f(s, 6), f(s, 7), f(s, 8), f(s, 9), \
                f(s, 10), f(s, 11), f(s, 12), f(s, 13), f(s, 14), f(s, 15)
#else
static inline words reverse_bytes(words x)
{
        __m128i quad = _mm_set_epi32(0x0c0d0e0f, 0x08090a0b, 0x04050607, 0x00010203);

        return (words)_mm256_shuffle_epi8((__m256i)x, _mm256_broadcastsi128_si256(quad));
}

#define XOR3(x, y, z)     ((x) ^ (y) ^ (z))
#define CHOOSE(x, y, z)   ((z) ^ ((x) & ((y) ^ (z))))
#define MAJORITY(x, y, z) (((x) & (y)) | ((z) & ((x) | (y))))
#define ALL(f, s)         f(s, 0), f(s, 1), f(s, 2), f(s, 3), f(s, 4), f(s, 5), f(s, 6), f(s, 7)
#endif

#define ROTATE(x, n) ((x) >> (n) | (x) << (32 - (n)))

/* ---- rows and columns --------------------------------------------------------------------------
 */

/* Exchanges the squares of s columns that are off the diagonal, in each two rows at distance s. */
#define LOW(s, i)  ((i) & (s) ? N_LANES + (i) - (s) : (i))
#define HIGH(s, i) ((i) & (s) ? N_LANES + (i) : (i) + (s))
#define EXCHANGE(rows, n, s)                                                        \
        _Pragma("GCC unroll 16") for (unsigned i = 0; i < (n); i++) if (!(i & (s))) \
        {                                                                           \
                words a = (rows)[i], b = (rows)[i + (s)];                           \
                                                                                    \
                (rows)[i] = __builtin_shufflevector(a, b, ALL(LOW, s));             \
                (rows)[i + (s)] = __builtin_shufflevector(a, b, ALL(HIGH, s));      \
        }

/* Makes columns of 8 rows, in each eight of their words. */
static inline void transpose_8(words rows[8])
{
        EXCHANGE(rows, 8, 1)
        EXCHANGE(rows, 8, 2)
        EXCHANGE(rows, 8, 4)
}

/* Loads a block of each input. */
static inline void load_blocks(const uint8_t *const at[N_LANES], uint32_t block, words w[N_WORDS])
{
#pragma GCC unroll 16
        for (unsigned i = 0; i < N_WORDS; i++) {
                const uint8_t *from = at[i % N_LANES] + (uint64_t)block * SHA256_BLOCK_BYTES;

                memcpy(&w[i], from + i / N_LANES * sizeof(words), sizeof(words));
                w[i] = reverse_bytes(w[i]);
        }
        transpose_8(w);
        transpose_8(w + 8);
#if N_LANES == 16
        EXCHANGE(w, 16, 8)
#endif
}

/* ---- the hash ----------------------------------------------------------------------------------
 */

/* Computes a word from those 16, 15, 7 and 2 before it, in place of the first. */
static inline void extend_words(words w[N_WORDS], unsigned i)
{
        words x = w[(i + 1) % N_WORDS], y = w[(i + 14) % N_WORDS];

        w[i] += w[(i + 9) % N_WORDS] + XOR3(ROTATE(x, 7), ROTATE(x, 18), x >> 3) +
                XOR3(ROTATE(y, 17), ROTATE(y, 19), y >> 10);
}

/* State word k of round i is s[(k - i) % 8]: none moves. */
static inline void one_round(words s[8], unsigned i, words word)
{
#define STATE(k) s[((k) + 64 - i) % 8]
        words a = STATE(0), e = STATE(4);

        /* The term that is ready last is added last. */
        word += STATE(7);
        word += CHOOSE(e, STATE(5), STATE(6));
        word += XOR3(ROTATE(e, 6), ROTATE(e, 11), ROTATE(e, 25));
        STATE(3) += word;
        STATE(7) = XOR3(ROTATE(a, 2), ROTATE(a, 13), ROTATE(a, 22)) +
                   MAJORITY(a, STATE(1), STATE(2)) + word;
#undef STATE
}

static void hash_block(words state[8], const uint8_t *const at[N_LANES], uint32_t block)
{
        words s[8], w[N_WORDS];

        memcpy(s, state, sizeof(s));
        load_blocks(at, block, w);
        for (unsigned first = 0; first < 64; first += N_WORDS) {
#pragma GCC unroll 16
                for (unsigned i = 0; i < N_WORDS; i++) {
                        one_round(s, i, w[i] + sha256_round_constants[first + i]);
                        extend_words(w, i); /* the last times in vain */
                }
        }
        for (unsigned i = 0; i < 8; i++)
                state[i] += s[i];
}

static void hash_texts(const struct sha256_text *texts, uint32_t n, uint32_t n_tail,
        uint8_t (*ret_digests)[SHA256_DIGEST_BYTES])
{
        const uint8_t *at[N_LANES], *tails[N_LANES];
        words state[8];

        for (unsigned i = 0; i < N_LANES; i++) {
                at[i] = texts[i].at;
                tails[i] = texts[i].tail;
        }
        for (unsigned i = 0; i < 8; i++)
                state[i] = (words){0} + sha256_initial[i];
        for (uint32_t i = 0; i < n; i++)
                hash_block(state, at, i);
        for (uint32_t i = 0; i < n_tail; i++)
                hash_block(state, tails, i);
        transpose_8(state);
        for (unsigned i = 0; i < N_LANES; i++) {
                words swapped = reverse_bytes(state[i % 8]);

                memcpy(ret_digests[i], (uint8_t *)&swapped + i / 8 * SHA256_DIGEST_BYTES,
                        SHA256_DIGEST_BYTES);
        }
}

const struct sha256_wide SHA256_WIDE = {.n_lanes = N_LANES, .hash = hash_texts};
