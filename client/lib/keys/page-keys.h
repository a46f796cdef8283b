/* Keys of the pages of a sequence (docs/reference/PROTOCOL.md, "Keys"). Each page's tokens, except
 * its last few, are hashed on their own. A chain over these digests and the last few tokens gives
 * the keys. Independent hashes are computed side by side. */
#ifndef KVL_PAGE_KEYS_H
#define KVL_PAGE_KEYS_H

#include <stdbool.h>
#include <stdint.h>

/* Hashed after the data they name, without their NULs. */
#define PAGE_DOMAIN  "kvlease page tokens 3"
#define CHAIN_DOMAIN "kvlease chain key 3"

/* Limit on the last tokens of a page that are hashed in the chain alone. They fit the two SHA-256
 * blocks that a key takes without them. A page of 8, 16, 32, 64 or 128 tokens takes a block less
 * that way. */
#define CHAIN_TOKENS 8u

/* Computes the keys of all pages of a sequence of n_tokens (> 0) tokens. Each page but the last has
 * page_tokens (> 0). `parent` is the key of the page before the first; it must not overlap the
 * output. All implementations give the same keys. Thread-safe. */
typedef void page_keys_fn(const uint8_t parent[32], const uint32_t *tokens, uint32_t n_tokens,
        uint32_t page_tokens, uint8_t *ret_keys);

page_keys_fn page_keys_portable; /* libcrypto, one hash after the other */
page_keys_fn page_keys_sha_ni;   /* x86 with SHA instructions: two hashes at a time */

bool page_keys_has_sha_ni(void); /* this processor runs page_keys_sha_ni() */

#endif
