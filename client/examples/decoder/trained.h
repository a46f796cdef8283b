/* The built-in weights: a model of bytes, trained by lab/decoder/train.py. Thread-safe,
 * except for trained_use(). */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "client/examples/decoder/model.h"

/* The weights begin with this, as train.py writes it. */
struct trained_header {
        char magic[8];
        uint32_t n_layers, width, n_heads, n_kv_heads, ffn_width;
        uint32_t reserved;
};
_Static_assert(sizeof(struct trained_header) == 32, "as in train.py");

/* Uses these weights, which must be complete, from now on in this process. Borrows them. Call it
 * before all else here. */
void trained_use(const unsigned char *bytes, size_t n);

/* Writes their shape; its seed is MODEL_TRAINED. */
void trained_shape(struct model_shape *ret_shape);

/* Returns a number that identifies the weights. */
uint64_t trained_version(void);

/* Returns all numbers, IEEE fp16, little-endian: embedding [MODEL_VOCAB][width], logits, the gain
 * of the last norm; then for each layer: gain, wq, wk, wv, wo, gain, gate, up, down. Matrices are
 * [in][out]. Borrowed, for the process' life. */
const uint16_t *trained_values(size_t *ret_n);
