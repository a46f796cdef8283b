#include "client/examples/decoder/trained.h"

#include <assert.h>
#include <string.h>

#include "client/examples/decoder-weights.h"

/* As train.py writes them. */
struct header {
        char magic[8];
        uint32_t n_layers, width, n_heads, n_kv_heads, ffn_width;
        uint32_t reserved;
};

_Static_assert(sizeof(struct header) == 32, "as in train.py");
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the weights are little-endian");

#define VALUES_BYTES                                                                \
        (decoder_weights_bytes - 1 - sizeof(struct header)) /* embed.py adds a byte \
                                                             */

void trained_shape(struct model_shape *ret_shape)
{
        struct header header;

        memcpy(&header, decoder_weights, sizeof(header));
        assert(memcmp(header.magic, "KVLDECW1", sizeof(header.magic)) == 0);
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

        for (size_t at = 0; at + sizeof(word) <= decoder_weights_bytes; at += sizeof(word)) {
                memcpy(&word, decoder_weights + at, sizeof(word));
                hash = (hash ^ word) * 0x100000001b3;
                hash ^= hash >> 32;
        }
        return hash;
}

const uint16_t *trained_values(size_t *ret_n)
{
        *ret_n = VALUES_BYTES / sizeof(uint16_t);
        return (const uint16_t *)(const void *)(decoder_weights + sizeof(struct header));
}
