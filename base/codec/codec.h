/*
 * Codecs for cold pages: fewer bytes for a matrix of numbers, tokens by channels, in lower tiers.
 *
 *   int8   a byte each: what its channel spans, in 255 even steps
 *   fp8    an OCP E4M3 number each, scaled likewise: small values keep their relative precision
 *   int4   half a byte each: what its channel spans over a group of 32 tokens, in 15 even steps
 *
 * A channel's *maximum*, its largest magnitude, is stored exactly, in the number format of the
 * matrix. A value x becomes round(x * 127 / maximum), or the E4M3 number nearest to x * 448 /
 * maximum. With int8 (ties to even) the error is at most maximum / 254 plus the rounding of the
 * result. For fp16 numbers it never exceeds maximum / 220. Exception: below a maximum of 2^-14 the
 * numbers' own step is 2^-24, and half of it is added to maximum / 254 (1/190 of the maximum at
 * worst, from 127 steps on). Maxima of 16-bit numbers are restored exactly.
 *
 * With int4 a channel has a maximum for each group of CODEC_GROUP_TOKENS consecutive tokens (the
 * last may be shorter). x becomes round(x * 7 / maximum), with an error of at most maximum / 14
 * plus the rounding of the result. A byte holds the codes of two consecutive tokens of a channel,
 * the first in its lower half. If the number of tokens is odd, the last byte's upper half is 0.
 * Groups run along a channel's tokens, because channels differ more in size than tokens do. A page
 * of 32 tokens or more takes 4.5 bits for each 16-bit number. The effect on a model's output:
 * tests/unit/test_decoder_trained.c.
 *
 * All kernels (AVX-512, AVX2, NEON, scalar) give the same bytes: codec-kernels.h. Thread-safe;
 * nothing is allocated.
 */
#ifndef KVL_BASE_CODEC_H
#define KVL_BASE_CODEC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Stored on disk, so a number is never reused. */
enum codec {
        CODEC_NONE = 0,
        CODEC_INT8 = 1,
        CODEC_FP8 = 2, /* E4M3, without infinities; OCP 8-bit Floating Point Specification 1.0 */
        CODEC_INT4 = 3,
        N_CODECS
};

#define CODEC_GROUP_TOKENS 32 /* with int4; stored pages depend on it */

enum codec_number { CODEC_F16, CODEC_BF16, CODEC_F32, N_CODEC_NUMBERS };

/* `n_matrices` of [n_tokens][n_channels], or of [n_channels][n_tokens] with channels_first,
 * contiguous. No count is 0, and their product is below 2^32. */
struct codec_shape {
        enum codec_number number;
        bool channels_first;
        uint32_t n_matrices, n_tokens, n_channels;
};

/* "none", "int8", "fp8", "int4". Static. */
const char *codec_name(enum codec codec);

/* Return the bytes of all matrices of a page: plain, and encoded. */
size_t codec_plain_bytes(const struct codec_shape *shape);
size_t codec_encoded_bytes(enum codec codec, const struct codec_shape *shape);

/*
 * Writes codec_encoded_bytes() to `encoded`, which doesn't overlap `plain`, with any alignment.
 * Channels whose magnitudes are all below 2^-116 become zeros. Returns 0; -EDOM: a value isn't
 * finite, or is an fp32 number of 2^127 or more. Then `encoded` is undefined, and the page can be
 * stored with CODEC_NONE only.
 */
int codec_encode(
        enum codec codec, const struct codec_shape *shape, const void *plain, void *encoded);

/* Writes codec_plain_bytes(). Returns 0; -EBADMSG: `encoded` isn't from codec_encode(); `plain` is
 * undefined. Other damage gives other numbers: checksums are the caller's. */
int codec_decode(
        enum codec codec, const struct codec_shape *shape, const void *encoded, void *plain);

/* Error of decoded numbers, as sums over `n` numbers: the relative error (root of the mean square)
 * is sqrt(errors / squares). */
struct codec_error {
        uint64_t n;
        double errors;  /* (decoded - plain)^2 */
        double squares; /* plain^2 */
};

/* Adds all numbers of the shape, which must be finite, with any alignment. */
void codec_error_add(struct codec_error *e, const struct codec_shape *shape, const void *plain,
        const void *decoded);

#endif
