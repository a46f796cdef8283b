/*
 * SipHash-1-3 (Aumasson, Bernstein: "SipHash: a fast short-input PRF", 2012; the 1-3 variant is
 * what Linux and Rust use for hash tables). Keys of tables come from peers: a secret seed keeps
 * them from choosing collisions. Not for identity: that is SHA-256 (client/lib).
 */
#ifndef KVL_BASE_HASH_H
#define KVL_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

struct hash_seed {
        uint64_t k0, k1;
};

/* A seed from the kernel's random source; aborts without one (it never fails after boot). */
struct hash_seed hash_seed_random(void);

uint64_t hash_bytes(struct hash_seed seed, const void *data, size_t len);

#endif
