/*
 * Keys of the pages of a text (docs/PROTOCOL.md, "Keys"): each page's tokens are hashed on their
 * own, but for the last few, and a chain over these digests and the last few gives the keys. What
 * can be computed side by side is.
 */
#ifndef KVL_PAGE_KEYS_H
#define KVL_PAGE_KEYS_H

#include <stdbool.h>
#include <stdint.h>

/* Hashed behind what they name, without their NULs. */
#define PAGE_DOMAIN  "kvlease page tokens 3"
#define CHAIN_DOMAIN "kvlease chain key 3"

/* Most tokens of a page, its last ones, that are hashed in the chain alone: a key's text has room
 * for so many in the two blocks of SHA-256 that it takes without them, too, and a page of 8, 16,
 * 32, 64 or 128 tokens takes a block less without them. */
#define CHAIN_TOKENS 8u

/*
 * Keys of all pages of a text of n_tokens (> 0), page_tokens (> 0) in each but for the last, behind
 * the page with key `parent`, which may lie anywhere but in what is written. Every way gives the
 * same keys. Any thread, and any number of them.
 */
typedef void page_keys_fn(const uint8_t parent[32], const uint32_t *tokens, uint32_t n_tokens,
        uint32_t page_tokens, uint8_t *ret_keys);

page_keys_fn page_keys_portable; /* libcrypto, one hash after the other */
page_keys_fn page_keys_sha_ni;   /* x86 with SHA instructions: two hashes at a time */

bool page_keys_has_sha_ni(void); /* this processor runs page_keys_sha_ni() */

#endif
