/*
 * SipHash-1-3 (Aumasson, Bernstein: "SipHash: a fast short-input PRF", 2012; the 1-3 variant is
 * what Linux and Rust use for hash tables). Keys of tables come from peers: a secret seed keeps
 * them from choosing collisions. Not for identity: that is SHA-256 (client/lib).
 */
#ifndef KVL_BASE_HASH_H
#define KVL_BASE_HASH_H

#include <endian.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct hash_seed {
        uint64_t k0, k1;
};

/* A seed from the kernel's random source; aborts without one (it never fails after boot). */
struct hash_seed hash_seed_random(void);

uint64_t hash_bytes(struct hash_seed seed, const void *data, size_t len);

/* ---- SipHash itself -------------------------------------------------------------------------- */

struct sip {
        uint64_t v0, v1, v2, v3;
};

static inline struct sip sip_init(struct hash_seed seed)
{
        /* The paper's initial state: "somepseudorandomlygeneratedbytes". */
        return (struct sip){
                seed.k0 ^ UINT64_C(0x736f6d6570736575),
                seed.k1 ^ UINT64_C(0x646f72616e646f6d),
                seed.k0 ^ UINT64_C(0x6c7967656e657261),
                seed.k1 ^ UINT64_C(0x7465646279746573),
        };
}

static inline uint64_t sip_rotl(uint64_t x, unsigned bits)
{
        return x << bits | x >> (64 - bits);
}

static inline void sip_round(struct sip *s)
{
        s->v0 += s->v1;
        s->v1 = sip_rotl(s->v1, 13) ^ s->v0;
        s->v0 = sip_rotl(s->v0, 32);
        s->v2 += s->v3;
        s->v3 = sip_rotl(s->v3, 16) ^ s->v2;
        s->v0 += s->v3;
        s->v3 = sip_rotl(s->v3, 21) ^ s->v0;
        s->v2 += s->v1;
        s->v1 = sip_rotl(s->v1, 17) ^ s->v2;
        s->v2 = sip_rotl(s->v2, 32);
}

static inline void sip_word(struct sip *s, uint64_t word)
{
        s->v3 ^= word;
        sip_round(s);
        s->v0 ^= word;
}

static inline uint64_t sip_end(struct sip *s)
{
        s->v2 ^= 0xff;
        for (unsigned i = 0; i < 3; i++)
                sip_round(s);
        return s->v0 ^ s->v1 ^ s->v2 ^ s->v3;
}

/* hash_bytes() of 32 bytes, to be inlined where hits are made. */
static inline uint64_t hash_key32(struct hash_seed seed, const void *key)
{
        struct sip s = sip_init(seed);
        uint64_t words[4];

        memcpy(words, key, sizeof(words));
        for (unsigned i = 0; i < 4; i++)
                sip_word(&s, le64toh(words[i]));
        sip_word(&s, UINT64_C(32) << 56);
        return sip_end(&s);
}

#endif
