/* A tenant and a model that hosts exchange pages of, with the vectors of test_exchange_keys.c. */
#ifndef KVL_TESTS_EXCHANGE_FIXTURE_H
#define KVL_TESTS_EXCHANGE_FIXTURE_H

#include <string.h>

#include "base/sum.h"
#include "daemon/exchange/format/envelope.h"

#define FIXTURE_EPOCH UINT64_C(0x0123456789abcdef)

static const struct exchange_model fixture_model = {
        .scope = "llama-set",
        .model = "llama-3-8b",
        .version = "2024-07",
        .dtype = 2,
        .n_layers = 32,
        .n_kv_heads = 8,
        .head_size = 128,
        .page_tokens = 16,
        .n_planes = 64,
        .plane_page_bytes = 32768,
        .tp_size = 2,
        .codecs = "int8",
        .salt = "salt",
        .salt_len = 4,
        .format = "fmt\0x",
        .format_len = 5,
};

/* "acme", with the secret 00 01 02 .. 1f. */
static inline struct exchange_tenant fixture_tenant(void)
{
        struct exchange_tenant t = {.name = "acme", .secret_len = 32};

        for (unsigned i = 0; i < t.secret_len; i++)
                t.secret[i] = (uint8_t)i;
        return t;
}

/* Page 11 11 .. behind page 22 22 .., of `payload_bytes`. 0 or the error of exchange_identify(). */
static inline int fixture_envelope(
        const struct exchange_tenant *t, uint64_t payload_bytes, struct envelope *ret)
{
        *ret = (struct envelope){
                .epoch = FIXTURE_EPOCH,
                .rank = 1,
                .codec = 1,
                .payload_bytes = payload_bytes,
                .tokens = 16,
                .tag = 5,
                .tag_epoch = 9,
        };
        memset(ret->key, 0x11, sizeof(ret->key));
        memset(ret->parent, 0x22, sizeof(ret->parent));
        return exchange_identify(t, &fixture_model, ret->id);
}

/* Sums a header without sealing it anew, as an attacker with write access can. */
static inline void fixture_mend_sum(uint8_t header[ENVELOPE_BYTES])
{
        const uint64_t sum = sum_of(header, ENVELOPE_BYTES - sizeof(sum));

        memcpy(header + ENVELOPE_BYTES - sizeof(sum), &sum, sizeof(sum));
}

#endif
