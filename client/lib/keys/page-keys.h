/* Keys of the pages of a sequence (docs/reference/PROTOCOL.md, "Keys"). Each page's tokens, except
 * its last few, are hashed on their own. A chain over these digests and the last few tokens gives
 * the keys. Independent hashes are computed side by side. */
#ifndef KVL_PAGE_KEYS_H
#define KVL_PAGE_KEYS_H

#include <stdint.h>

#include "client/lib/keys/sha256.h"

/* Hashed after the data they name, without their NULs. */
#define PAGE_DOMAIN  "kvlease page tokens 3"
#define CHAIN_DOMAIN "kvlease chain key 3"

/* Limit on the last tokens of a page that are hashed in the chain alone. They fit the two SHA-256
 * blocks that a key takes without them. A page of 8, 16, 32, 64 or 128 tokens takes a block less
 * that way. */
#define CHAIN_TOKENS 8u

/* Implementations of SHA-256 that compute keys together. All ways give the same keys. */
struct page_keys_way {
        const char *name;
        const struct sha256_pair *pair; /* for the chain, and for digests beside it */
        const struct sha256_wide *wide; /* for digests that the chain would wait for; or NULL */
};

/* Returns the ways that this processor can run, libcrypto alone last; NULL after the last. */
const struct page_keys_way *page_keys_way_at(unsigned i);

/* Returns the fastest way. The first call for n_tokens >= PAGE_KEYS_LONG measures the ways once in
 * the process, for at most about 1 ms. Until then the first way is the answer. */
#define PAGE_KEYS_LONG 2048u
const struct page_keys_way *page_keys_fastest(uint32_t n_tokens);

/* Computes the keys of all pages of a sequence of n_tokens (> 0) tokens. Each page but the last has
 * page_tokens (> 0). `parent` is the key of the page before the first; it must not overlap the
 * output. Thread-safe. */
void page_keys(const struct page_keys_way *way, const uint8_t parent[SHA256_DIGEST_BYTES],
        const uint32_t *tokens, uint32_t n_tokens, uint32_t page_tokens, uint8_t *ret_keys);

#endif
