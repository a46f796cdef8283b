/*
 * SHA-256 (FIPS 180-4) of several inputs at a time, for page-keys.c: its compression function by
 * each kind of processor's instructions. Everything here is thread-safe and allocates nothing.
 */
#ifndef KVL_SHA256_H
#define KVL_SHA256_H

#include <endian.h>
#include <stdint.h>
#include <string.h>

#define SHA256_BLOCK_BYTES  64u
#define SHA256_DIGEST_BYTES 32u
#define SHA256_MAX_LANES    16u

/* ---- one or two inputs -------------------------------------------------------------------------
 */

/* One hash under way. */
struct sha256_lane {
        uint32_t state[8] __attribute__((aligned(16))); /* in an order of the implementation's */
        const uint8_t *at;                              /* blocks to hash */
};

struct sha256_pair {
        unsigned n_lanes;        /* hashed in the time of one: 1 or 2 */
        const uint32_t *initial; /* state of an empty input: 8 words */
        /* Hashes n blocks of both. `a` and `b` may be the same, which is then hashed once. */
        void (*hash)(struct sha256_lane *a, struct sha256_lane *b, uint32_t n);
        void (*digest)(const struct sha256_lane *lane, uint8_t ret[SHA256_DIGEST_BYTES]);
};

extern const struct sha256_pair sha256_plain; /* libcrypto, on any processor */
#if defined(__x86_64__)
extern const struct sha256_pair sha256_ni; /* SHA, SSE4.1 */
#elif defined(__aarch64__)
extern const struct sha256_pair sha256_arm; /* SHA2 */
#endif

/* ---- many inputs of one length -----------------------------------------------------------------
 */

struct sha256_text {
        const uint8_t *at;                    /* its first blocks */
        uint8_t tail[2 * SHA256_BLOCK_BYTES]; /* its last ones, with the padding */
};

struct sha256_wide {
        uint32_t n_lanes; /* at most SHA256_MAX_LANES */
        /* Hashes n_lanes inputs, each of n blocks at `at` and n_tail of `tail`. */
        void (*hash)(const struct sha256_text *texts, uint32_t n, uint32_t n_tail,
                uint8_t (*ret_digests)[SHA256_DIGEST_BYTES]);
};

#if defined(__x86_64__)
extern const struct sha256_wide sha256_avx2;
extern const struct sha256_wide sha256_avx512; /* F, BW */
#endif

/* ---- for implementations -----------------------------------------------------------------------
 */

extern const uint32_t sha256_initial[8];          /* FIPS 180-4, 5.3.3 */
extern const uint32_t sha256_round_constants[64]; /* 4.2.2; aligned to 64 bytes */

/* Writes the digest of a lane whose state is in the standard's order. */
void sha256_digest(const struct sha256_lane *lane, uint8_t ret[SHA256_DIGEST_BYTES]);

#endif
