/* Keys of pages by libcrypto's SHA-256, on any machine. */
/* SHA-256's plain functions: they allocate no context and look up no implementation. */
#define OPENSSL_SUPPRESS_DEPRECATED
#include "client/lib/keys/page-keys.h"

#include <endian.h>
#include <string.h>

#include <openssl/sha.h>

#include "base/macros.h"

#define CHUNK_TOKENS 64u

static void add_tokens(SHA256_CTX *c, const uint32_t *tokens, uint32_t n_tokens)
{
        uint32_t chunk[CHUNK_TOKENS];

        for (uint32_t at = 0, n; at < n_tokens; at += n) {
                n = MIN(n_tokens - at, CHUNK_TOKENS);
                for (uint32_t i = 0; i < n; i++)
                        chunk[i] = htole32(tokens[at + i]);
                SHA256_Update(c, chunk, n * sizeof(*chunk));
        }
}

void page_keys_portable(const uint8_t parent[SHA256_DIGEST_LENGTH], const uint32_t *tokens,
        uint32_t n_tokens, uint32_t page_tokens, uint8_t *ret_keys)
{
        uint8_t key[SHA256_DIGEST_LENGTH], page[SHA256_DIGEST_LENGTH];
        SHA256_CTX c;

        memcpy(key, parent, sizeof(key));
        for (uint32_t at = 0, n; at < n_tokens; at += n) {
                uint32_t n_last;

                n = MIN(n_tokens - at, page_tokens);
                n_last = MIN(n, CHAIN_TOKENS);
                SHA256_Init(&c);
                add_tokens(&c, tokens + at, n - n_last);
                SHA256_Update(&c, PAGE_DOMAIN, strlen(PAGE_DOMAIN));
                SHA256_Final(page, &c);
                SHA256_Init(&c);
                SHA256_Update(&c, key, sizeof(key));
                SHA256_Update(&c, page, sizeof(page));
                add_tokens(&c, tokens + at + n - n_last, n_last);
                SHA256_Update(&c, CHAIN_DOMAIN, strlen(CHAIN_DOMAIN));
                SHA256_Final(key, &c);
                memcpy(ret_keys, key, sizeof(key));
                ret_keys += sizeof(key);
        }
}
