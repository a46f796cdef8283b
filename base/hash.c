#include "base/hash.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/random.h>

struct hash_seed hash_seed_random(void)
{
        struct hash_seed seed;
        ssize_t n;

        /* Up to 256 bytes come at once; only the wait for the first boot's entropy is
         * interruptible. */
        do
                n = getrandom(&seed, sizeof(seed), 0);
        while (n < 0 && errno == EINTR);
        if (n != (ssize_t)sizeof(seed))
                abort();
        return seed;
}

uint64_t hash_bytes(struct hash_seed seed, const void *data, size_t len)
{
        struct sip s = sip_init(seed);
        const uint8_t *p = data;
        uint64_t word, last = (uint64_t)len << 56;

        for (size_t left = len; left >= 8; left -= 8, p += 8) {
                memcpy(&word, p, 8);
                sip_word(&s, le64toh(word));
        }
        for (size_t i = 0; i < len % 8; i++)
                last |= (uint64_t)p[i] << (8 * i);
        sip_word(&s, last);
        return sip_end(&s);
}
