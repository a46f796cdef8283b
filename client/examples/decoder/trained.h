/* The built-in weights: a model of bytes, trained by lab/decoder/train.py. Or those of a file, once
 * trained_read() succeeded. Thread-safe, except for trained_read(). */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "client/examples/decoder/model.h"

/* Uses the weights of this file, written by train.py (weights.bin), from now on in this process.
 * Call it before all else here. Returns 0; -EINVAL: another file, or truncated; -errno. After a
 * failure the weights are unchanged. */
int trained_read(const char *path);

/* Writes their shape; its seed is MODEL_TRAINED. */
void trained_shape(struct model_shape *ret_shape);

/* Returns a number that identifies the weights. */
uint64_t trained_version(void);

/* Returns all numbers, IEEE fp16, little-endian: embedding [MODEL_VOCAB][width], logits, the gain
 * of the last norm; then for each layer: gain, wq, wk, wv, wo, gain, gate, up, down. Matrices are
 * [in][out]. Borrowed, for the process' life. */
const uint16_t *trained_values(size_t *ret_n);
