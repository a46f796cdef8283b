/* SHA-256 by the SHA2 instructions of ARMv8: two hashes at once, as neither waits for the other. */
#include <arm_neon.h>

#include "client/lib/keys/sha256.h"

#define QUADS 16u /* of rounds, in a block */

static inline void load_block(const uint8_t *at, uint32x4_t w[4])
{
        for (unsigned i = 0; i < 4; i++)
                w[i] = vreinterpretq_u32_u8(vrev32q_u8(vld1q_u8(at + 16 * i)));
}

/* Does four rounds, and computes the words of the rounds 16 later in place of these. */
static inline void four_rounds(uint32x4_t state[2], uint32x4_t w[4], unsigned quad)
{
        uint32x4_t words = vaddq_u32(w[quad % 4], vld1q_u32(sha256_round_constants + 4 * quad));
        uint32x4_t abcd = state[0];

        if (quad < QUADS - 4)
                w[quad % 4] = vsha256su1q_u32(vsha256su0q_u32(w[quad % 4], w[(quad + 1) % 4]),
                        w[(quad + 2) % 4], w[(quad + 3) % 4]);
        state[0] = vsha256hq_u32(abcd, state[1], words);
        state[1] = vsha256h2q_u32(state[1], abcd, words);
}

static void hash_two(struct sha256_lane *a, struct sha256_lane *b, uint32_t n)
{
        uint32x4_t s[2] = {vld1q_u32(a->state), vld1q_u32(a->state + 4)};
        uint32x4_t t[2] = {vld1q_u32(b->state), vld1q_u32(b->state + 4)};

        for (uint32_t i = 0; i < n; i++) {
                uint32x4_t old_s[2] = {s[0], s[1]}, old_t[2] = {t[0], t[1]}, v[4], w[4];

                load_block(a->at + (uint64_t)i * SHA256_BLOCK_BYTES, v);
                load_block(b->at + (uint64_t)i * SHA256_BLOCK_BYTES, w);
#pragma GCC unroll 16
                for (unsigned quad = 0; quad < QUADS; quad++) {
                        four_rounds(s, v, quad);
                        four_rounds(t, w, quad);
                }
                for (unsigned k = 0; k < 2; k++) {
                        s[k] = vaddq_u32(s[k], old_s[k]);
                        t[k] = vaddq_u32(t[k], old_t[k]);
                }
        }
        for (unsigned k = 0; k < 2; k++) {
                vst1q_u32(a->state + 4 * k, s[k]);
                vst1q_u32(b->state + 4 * k, t[k]);
        }
}

const struct sha256_pair sha256_arm = {
        .n_lanes = 2, .initial = sha256_initial, .hash = hash_two, .digest = sha256_digest};
