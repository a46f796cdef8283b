#include "base/hash.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <endian.h>
#include <sys/random.h>

struct sip {
        uint64_t v0, v1, v2, v3;
};

static inline uint64_t rotl(uint64_t x, unsigned bits)
{
        return x << bits | x >> (64 - bits);
}

static inline void sip_round(struct sip *s)
{
        s->v0 += s->v1;
        s->v1 = rotl(s->v1, 13) ^ s->v0;
        s->v0 = rotl(s->v0, 32);
        s->v2 += s->v3;
        s->v3 = rotl(s->v3, 16) ^ s->v2;
        s->v0 += s->v3;
        s->v3 = rotl(s->v3, 21) ^ s->v0;
        s->v2 += s->v1;
        s->v1 = rotl(s->v1, 17) ^ s->v2;
        s->v2 = rotl(s->v2, 32);
}

static inline void sip_word(struct sip *s, uint64_t word)
{
        s->v3 ^= word;
        sip_round(s);
        s->v0 ^= word;
}

struct hash_seed hash_seed_random(void)
{
        struct hash_seed seed;
        ssize_t n;

        /* Up to 256 bytes come whole; only waiting for the first boot's entropy is interruptible.
         */
        do
                n = getrandom(&seed, sizeof(seed), 0);
        while (n < 0 && errno == EINTR);
        if (n != (ssize_t)sizeof(seed))
                abort();
        return seed;
}

uint64_t hash_bytes(struct hash_seed seed, const void *data, size_t len)
{
        /* The paper's initial state: "somepseudorandomlygeneratedbytes". */
        struct sip s = {
                seed.k0 ^ UINT64_C(0x736f6d6570736575),
                seed.k1 ^ UINT64_C(0x646f72616e646f6d),
                seed.k0 ^ UINT64_C(0x6c7967656e657261),
                seed.k1 ^ UINT64_C(0x7465646279746573),
        };
        const uint8_t *p = data;
        uint64_t word, last = (uint64_t)len << 56;

        for (size_t left = len; left >= 8; left -= 8, p += 8) {
                memcpy(&word, p, 8);
                sip_word(&s, le64toh(word));
        }
        for (size_t i = 0; i < len % 8; i++)
                last |= (uint64_t)p[i] << (8 * i);
        sip_word(&s, last);
        s.v2 ^= 0xff;
        for (unsigned i = 0; i < 3; i++)
                sip_round(&s);
        return s.v0 ^ s.v1 ^ s.v2 ^ s.v3;
}
