/*
 * The weights that are built in: a model of bytes, trained by train.py on what trained/weights.json
 * lists. No state, any thread.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "client/examples/decoder/model.h"

/* The shape they have; its seed is MODEL_TRAINED. */
void trained_shape(struct model_shape *ret_shape);

/* Names them: others have another number. */
uint64_t trained_version(void);

/*
 * All numbers, IEEE fp16, little-endian: embedding [MODEL_VOCAB][width], logits, the gain of the
 * last norm; then of each layer: gain, wq, wk, wv, wo, gain, gate, up, down. Matrices are
 * [in][out]. Static.
 */
const uint16_t *trained_values(size_t *ret_n);
