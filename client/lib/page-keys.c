/* Keys of pages by libcrypto's SHA-256, on any machine. */
/* The plain functions of SHA-256: no context is allocated, no implementation looked up for each. */
#define OPENSSL_SUPPRESS_DEPRECATED
#include "client/lib/page-keys.h"

#include <endian.h>
#include <string.h>

#include <openssl/sha.h>

#include "base/macros.h"

#define CHUNK_TOKENS 64u

static void hash_tokens(
        const uint32_t *tokens, uint32_t n_tokens, uint8_t ret_digest[SHA256_DIGEST_LENGTH])
{
        uint32_t chunk[CHUNK_TOKENS];
        SHA256_CTX c;

        SHA256_Init(&c);
        for (uint32_t at = 0, n; at < n_tokens; at += n) {
                n = MIN(n_tokens - at, CHUNK_TOKENS);
                for (uint32_t i = 0; i < n; i++)
                        chunk[i] = htole32(tokens[at + i]);
                SHA256_Update(&c, chunk, n * sizeof(*chunk));
        }
        SHA256_Update(&c, PAGE_DOMAIN, strlen(PAGE_DOMAIN));
        SHA256_Final(ret_digest, &c);
}

void page_keys_portable(const uint8_t parent[SHA256_DIGEST_LENGTH], const uint32_t *tokens,
        uint32_t n_tokens, uint32_t page_tokens, uint8_t *ret_keys)
{
        uint8_t text[2 * SHA256_DIGEST_LENGTH + sizeof(CHAIN_DOMAIN) - 1];
        SHA256_CTX c;

        memcpy(text, parent, SHA256_DIGEST_LENGTH);
        memcpy(text + 2 * SHA256_DIGEST_LENGTH, CHAIN_DOMAIN, strlen(CHAIN_DOMAIN));
        for (uint32_t at = 0, n; at < n_tokens; at += n) {
                n = MIN(n_tokens - at, page_tokens);
                hash_tokens(tokens + at, n, text + SHA256_DIGEST_LENGTH);
                SHA256_Init(&c);
                SHA256_Update(&c, text, sizeof(text));
                SHA256_Final(text, &c);
                memcpy(ret_keys, text, SHA256_DIGEST_LENGTH);
                ret_keys += SHA256_DIGEST_LENGTH;
        }
}
