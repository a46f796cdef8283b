#include "client/examples/decoder/trained.h"

#include <string.h>

#include "client/examples/decoder-weights.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the weights are little-endian");

static const unsigned char *weights = decoder_weights;
static size_t weights_bytes = decoder_weights_bytes - 1; /* embed.py adds a byte */

void trained_use(const unsigned char *bytes, size_t n)
{
        weights = bytes;
        weights_bytes = n;
}

void trained_shape(struct model_shape *ret_shape)
{
        struct trained_header header;

        memcpy(&header, weights, sizeof(header));
        *ret_shape = (struct model_shape){
                .seed = MODEL_TRAINED,
                .n_layers = header.n_layers,
                .width = header.width,
                .n_heads = header.n_heads,
                .n_kv_heads = header.n_kv_heads,
                .ffn_width = header.ffn_width,
        };
}

uint64_t trained_version(void)
{
        uint64_t hash = 0xcbf29ce484222325, word; /* FNV-1a, eight bytes at a time */

        for (size_t at = 0; at + sizeof(word) <= weights_bytes; at += sizeof(word)) {
                memcpy(&word, weights + at, sizeof(word));
                hash = (hash ^ word) * 0x100000001b3;
                hash ^= hash >> 32;
        }
        return hash;
}

const uint16_t *trained_values(size_t *ret_n)
{
        *ret_n = (weights_bytes - sizeof(struct trained_header)) / sizeof(uint16_t);
        return (const uint16_t *)(const void *)(weights + sizeof(struct trained_header));
}
