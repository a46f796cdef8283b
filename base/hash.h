/*
 * Hashes for tables. Identity is by SHA-256 (client/lib).
 *
 * hash_bytes() is SipHash-1-3 (Aumasson, Bernstein: "SipHash: a fast short-input PRF", 2012; Linux
 * and Rust use the 1-3 variant for hash tables). It is for peers' keys, with a secret seed, so that
 * peers can't choose collisions. hash_digest() is for the index of a namespace, whose readers know
 * the seed.
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

/* Returns a seed from the kernel's random source; aborts without one (never after boot). */
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

/* ---- of digests ------------------------------------------------------------------------------ */

static inline uint64_t hash_fold(uint64_t a, uint64_t b)
{
        __extension__ typedef unsigned __int128 wide;
        wide product = (wide)a * b;

        return (uint64_t)product ^ (uint64_t)(product >> 64);
}

/* Loads word i of a digest by itself: the compiler copies arrays through the stack. */
static inline uint64_t hash_word(const uint8_t *digest, unsigned i)
{
        uint64_t word;

        memcpy(&word, digest + i * sizeof(word), sizeof(word));
        return le64toh(word);
}

/*
 * Hashes a digest of 32 bytes; inlined in lookups. Three wide multiplications, each folded (the
 * product's halves, one XOR the other), as in wyhash (Wang Yi, 2019). Hashes are evenly spread if
 * the keys were chosen without the seed. With the seed, colliding keys can be found; SipHash with a
 * known seed has the same weakness. The constants are the fraction of pi.
 */
static inline uint64_t hash_digest(struct hash_seed seed, const void *digest)
{
        uint64_t low, high;

        low = hash_fold(hash_word(digest, 0) ^ seed.k0 ^ UINT64_C(0x243f6a8885a308d3),
                hash_word(digest, 1) ^ seed.k1 ^ UINT64_C(0x13198a2e03707344));
        high = hash_fold(hash_word(digest, 2) ^ seed.k0 ^ UINT64_C(0xa4093822299f31d0),
                hash_word(digest, 3) ^ seed.k1 ^ UINT64_C(0x082efa98ec4e6c89));
        return hash_fold(low ^ UINT64_C(0x452821e638d01377), high ^ UINT64_C(0xbe5466cf34e90c6c));
}

#endif
