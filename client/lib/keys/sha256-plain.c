/* SHA-256 by libcrypto, on any machine, and the standard's constants. */
/* Its plain functions: they allocate no context and look up no implementation. */
#define OPENSSL_SUPPRESS_DEPRECATED
#include "client/lib/keys/sha256.h"

#include <openssl/sha.h>

const uint32_t sha256_initial[8] = {
        0x6a09e667,
        0xbb67ae85,
        0x3c6ef372,
        0xa54ff53a,
        0x510e527f,
        0x9b05688c,
        0x1f83d9ab,
        0x5be0cd19,
};

const uint32_t sha256_round_constants[64] __attribute__((aligned(64))) = {
        0x428a2f98,
        0x71374491,
        0xb5c0fbcf,
        0xe9b5dba5,
        0x3956c25b,
        0x59f111f1,
        0x923f82a4,
        0xab1c5ed5,
        0xd807aa98,
        0x12835b01,
        0x243185be,
        0x550c7dc3,
        0x72be5d74,
        0x80deb1fe,
        0x9bdc06a7,
        0xc19bf174,
        0xe49b69c1,
        0xefbe4786,
        0x0fc19dc6,
        0x240ca1cc,
        0x2de92c6f,
        0x4a7484aa,
        0x5cb0a9dc,
        0x76f988da,
        0x983e5152,
        0xa831c66d,
        0xb00327c8,
        0xbf597fc7,
        0xc6e00bf3,
        0xd5a79147,
        0x06ca6351,
        0x14292967,
        0x27b70a85,
        0x2e1b2138,
        0x4d2c6dfc,
        0x53380d13,
        0x650a7354,
        0x766a0abb,
        0x81c2c92e,
        0x92722c85,
        0xa2bfe8a1,
        0xa81a664b,
        0xc24b8b70,
        0xc76c51a3,
        0xd192e819,
        0xd6990624,
        0xf40e3585,
        0x106aa070,
        0x19a4c116,
        0x1e376c08,
        0x2748774c,
        0x34b0bcb5,
        0x391c0cb3,
        0x4ed8aa4a,
        0x5b9cca4f,
        0x682e6ff3,
        0x748f82ee,
        0x78a5636f,
        0x84c87814,
        0x8cc70208,
        0x90befffa,
        0xa4506ceb,
        0xbef9a3f7,
        0xc67178f2,
};

void sha256_digest(const struct sha256_lane *lane, uint8_t ret[SHA256_DIGEST_BYTES])
{
        for (unsigned i = 0; i < 8; i++) {
                uint32_t word = htobe32(lane->state[i]);

                memcpy(ret + i * sizeof(word), &word, sizeof(word));
        }
}

static void hash_one(struct sha256_lane *lane, uint32_t n)
{
        SHA256_CTX c = {0};

        memcpy(c.h, lane->state, sizeof(c.h));
        for (uint32_t i = 0; i < n; i++)
                SHA256_Transform(&c, lane->at + (uint64_t)i * SHA256_BLOCK_BYTES);
        memcpy(lane->state, c.h, sizeof(c.h));
}

static void hash_both(struct sha256_lane *a, struct sha256_lane *b, uint32_t n)
{
        hash_one(a, n);
        if (b != a)
                hash_one(b, n);
}

const struct sha256_pair sha256_plain = {
        .n_lanes = 1,
        .initial = sha256_initial,
        .hash = hash_both,
        .digest = sha256_digest,
};
