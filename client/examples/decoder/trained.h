/*
 * The weights that are built in: a model of bytes, trained by train.py on what trained/weights.json
 * lists. Or those of a file, once one was read. Any thread, but for trained_read().
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "client/examples/decoder/model.h"

/*
 * The weights are those of this file from now on, for the process: what train.py writes
 * (weights.bin). Called before anything else here. 0; -EINVAL: it isn't that, or is cut off;
 * -errno. After a failure they are what they were.
 */
int trained_read(const char *path);

/* The shape they have; its seed is MODEL_TRAINED. */
void trained_shape(struct model_shape *ret_shape);

/* Names them: others have another number. */
uint64_t trained_version(void);

/*
 * All numbers, IEEE fp16, little-endian: embedding [MODEL_VOCAB][width], logits, the gain of the
 * last norm; then of each layer: gain, wq, wk, wv, wo, gain, gate, up, down. Matrices are
 * [in][out]. Borrowed, for the process.
 */
const uint16_t *trained_values(size_t *ret_n);
