/* Shared by codec.c and codec-int4.c: a matrix of a page, and the factors of its channels. Internal
 * to this directory. */
#ifndef KVL_BASE_CODEC_MATRIX_H
#define KVL_BASE_CODEC_MATRIX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/codec/codec-kernels.h"
#include "base/codec/codec.h"

/* Channels whose maxima and factors are processed at a time, or contiguous numbers of channels.
 * Measured with 1,024 channels on one machine: whole rows are coded at 0.6 to 1.0 of memcpy(),
 * quarters of rows at 0.35 to 0.5. Beyond 2,048 contiguous numbers leave the first-level cache. */
#define CODEC_TILE 2048

#define CODEC_BLOCK 16 /* floats; a few stores without a loop */

struct codec_matrix {
        const struct codec_kernels *kernels;
        enum codec codec;
        const struct codec_shape *shape;
        uint32_t bytes; /* of a number */
};

/* Plain numbers and encoded ones: one is read, the other written. */
struct codec_matrix_data {
        uint8_t *plain, *maxima, *codes;
};

/* Finds the factors of the channels' numbers (encoding) or codes. Returns false if a maximum is out
 * of range. */
bool codec_find_factors(enum codec codec, enum codec_number number, bool is_encoding,
        const uint8_t *maxima, size_t n, float *factors);

/* Repeats every factor `each` times, in blocks; the last block's rest is overwritten. spread: n
 * times `each`, and CODEC_BLOCK entries more. */
void codec_spread_factors(const float *factors, size_t n, size_t each, float *spread);

/* Returns the groups of a channel's tokens, with int4. */
static inline size_t codec_n_groups(const struct codec_shape *s)
{
        return (s->n_tokens + (size_t)CODEC_GROUP_TOKENS - 1) / CODEC_GROUP_TOKENS;
}

/* Do codec_encode() and codec_decode() for one matrix. */
int codec_encode_int4(const struct codec_matrix *m, const struct codec_matrix_data *d);
int codec_decode_int4(const struct codec_matrix *m, const struct codec_matrix_data *d);

#endif
