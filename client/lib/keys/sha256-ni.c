/* SHA-256 by the SHA instructions of x86. With one hash such a processor waits for its last round
 * half of the time, so two run at once. */
#include <immintrin.h>

#include "client/lib/keys/sha256.h"

#define QUADS 16u /* of rounds, in a block */

/* sha256_initial, as the instructions want it: F E B A, H G D C. */
static const uint32_t initial[8] = {
        0x9b05688c,
        0x510e527f,
        0xbb67ae85,
        0x6a09e667,
        0x5be0cd19,
        0x1f83d9ab,
        0xa54ff53a,
        0x3c6ef372,
};

/* Computes words 16 and on, four at a time, in place of the 16 before. */
static inline void extend(__m128i w[4], unsigned quad)
{
        __m128i last = w[(quad + 3) % 4], x;

        x = _mm_sha256msg1_epu32(w[quad % 4], w[(quad + 1) % 4]);
        x = _mm_add_epi32(x, _mm_alignr_epi8(last, w[(quad + 2) % 4], 4));
        w[quad % 4] = _mm_sha256msg2_epu32(x, last);
}

static inline void four_rounds(__m128i *abef, __m128i *cdgh, __m128i words)
{
        *cdgh = _mm_sha256rnds2_epu32(*cdgh, *abef, words);
        *abef = _mm_sha256rnds2_epu32(*abef, *cdgh, _mm_shuffle_epi32(words, 0x0e));
}

static inline __m128i reverse_bytes(__m128i words)
{
        return _mm_shuffle_epi8(
                words, _mm_set_epi64x(0x0c0d0e0f08090a0bULL, 0x0405060700010203ULL));
}

static inline void load_block(const uint8_t *at, __m128i w[4])
{
        for (int i = 0; i < 4; i++)
                w[i] = reverse_bytes(_mm_loadu_si128((const __m128i_u *)at + i));
}

/* Hashes n blocks of each; n_lanes is 1 or 2, a constant where this is inlined. */
__attribute__((always_inline)) static inline void hash_lanes(
        struct sha256_lane *const *lanes, unsigned n_lanes, uint32_t n)
{
        __m128i abef[2], cdgh[2];

        for (unsigned l = 0; l < n_lanes; l++) {
                abef[l] = ((const __m128i *)lanes[l]->state)[0];
                cdgh[l] = ((const __m128i *)lanes[l]->state)[1];
        }
        for (uint32_t i = 0; i < n; i++) {
                __m128i old_abef[2] = {abef[0], abef[1]}, old_cdgh[2] = {cdgh[0], cdgh[1]};
                __m128i w[2][4];

                for (unsigned l = 0; l < n_lanes; l++)
                        load_block(lanes[l]->at + (uint64_t)i * SHA256_BLOCK_BYTES, w[l]);
#pragma GCC unroll 16
                for (unsigned quad = 0; quad < QUADS; quad++) {
                        __m128i k = ((const __m128i *)sha256_round_constants)[quad];

#pragma GCC unroll 2
                        for (unsigned l = 0; l < n_lanes; l++) {
                                if (quad >= 4)
                                        extend(w[l], quad);
                                four_rounds(&abef[l], &cdgh[l], _mm_add_epi32(w[l][quad % 4], k));
                        }
                }
                for (unsigned l = 0; l < n_lanes; l++) {
                        abef[l] = _mm_add_epi32(abef[l], old_abef[l]);
                        cdgh[l] = _mm_add_epi32(cdgh[l], old_cdgh[l]);
                }
        }
        for (unsigned l = 0; l < n_lanes; l++) {
                ((__m128i *)lanes[l]->state)[0] = abef[l];
                ((__m128i *)lanes[l]->state)[1] = cdgh[l];
        }
}

static void hash_one(struct sha256_lane *lane, uint32_t n)
{
        hash_lanes(&lane, 1, n);
}

static void hash_two(struct sha256_lane *a, struct sha256_lane *b, uint32_t n)
{
        struct sha256_lane *lanes[2] = {a, b};

        if (a == b)
                hash_one(a, n);
        else
                hash_lanes(lanes, 2, n);
}

static void digest(const struct sha256_lane *lane, uint8_t ret[SHA256_DIGEST_BYTES])
{
        const __m128i *state = (const __m128i *)lane->state;
        __m128i feba = _mm_shuffle_epi32(state[0], 0x1b), dchg = _mm_shuffle_epi32(state[1], 0xb1);
        __m128i_u *to = (__m128i_u *)ret;

        _mm_storeu_si128(to, reverse_bytes(_mm_blend_epi16(feba, dchg, 0xf0)));
        _mm_storeu_si128(to + 1, reverse_bytes(_mm_alignr_epi8(dchg, feba, 8)));
}

const struct sha256_pair sha256_ni = {
        .n_lanes = 2, .initial = initial, .hash = hash_two, .digest = digest};
