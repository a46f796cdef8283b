/*
 * Codecs for cold pages: fewer bytes for a matrix of numbers, tokens by channels, below the device.
 *
 *   int8   a byte each: what its channel spans, in 255 even steps
 *   fp8    an OCP E4M3 number each, scaled likewise: small values keep their relative precision
 *   int4   half a byte each: what its channel spans over a group of 32 tokens, in 15 even steps
 *
 * A channel's *maximum*, its largest magnitude, is kept in the number format of the matrix, where
 * it is exact; a value x becomes round(x * 127 / maximum), or the E4M3 number nearest to x * 448 /
 * maximum. Reading it back is off by at most maximum / 254 with int8 (ties to even everywhere) plus
 * the rounding of the result: of fp16 numbers never more than maximum / 220, but where the maximum
 * is below 2^-14: there the numbers' own step is 2^-24, and half of it is added to maximum / 254
 * (1/190 of it at worst, from 127 steps on). Maxima come back exactly where numbers have 16 bits.
 *
 * With int4 a channel has a maximum for each group of CODEC_GROUP_TOKENS consecutive tokens, of
 * which the last one may be shorter, and x becomes round(x * 7 / maximum): it is off by at most
 * maximum / 14 plus the rounding of the result. A byte holds the codes of two consecutive tokens of
 * a channel, the first in its lower half; where the number of tokens is odd, the last byte's upper
 * half is 0. Groups go along a channel's tokens, because channels differ more in size than tokens
 * do; a page of 32 tokens or more takes 4.5 bits a number of 16 bits. What that costs in what a
 * model says: tests/unit/test_decoder_trained.c.
 *
 * All kernels (AVX-512, AVX2, NEON, scalar) give the same bytes; codec-kernels.h. Any thread;
 * nothing is allocated.
 */
#ifndef KVL_BASE_CODEC_H
#define KVL_BASE_CODEC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The numbers are stored, so none is ever used again for something else. */
enum codec {
        CODEC_NONE = 0,
        CODEC_INT8 = 1,
        CODEC_FP8 = 2, /* E4M3, without infinities; OCP 8-bit Floating Point Specification 1.0 */
        CODEC_INT4 = 3,
        N_CODECS
};

#define CODEC_GROUP_TOKENS 32 /* of int4; stored pages depend on it */

enum codec_number { CODEC_F16, CODEC_BF16, CODEC_F32, N_CODEC_NUMBERS };

/* `n_matrices` of [n_tokens][n_channels], or of [n_channels][n_tokens] with channels_first, one
 * behind the other without gaps. None of the counts is 0, and their product is below 2^32. */
struct codec_shape {
        enum codec_number number;
        bool channels_first;
        uint32_t n_matrices, n_tokens, n_channels;
};

/* "none", "int8", "fp8", "int4". Static. */
const char *codec_name(enum codec codec);

/* The bytes of all matrices of a page: plain, and encoded. */
size_t codec_plain_bytes(const struct codec_shape *shape);
size_t codec_encoded_bytes(enum codec codec, const struct codec_shape *shape);

/*
 * Writes codec_encoded_bytes() to `encoded`, which doesn't overlap `plain`; no alignment is needed.
 * 0; -EDOM: a value isn't finite, or is an fp32 number of 2^127 and more: `encoded` is of no use,
 * and the page can be kept with CODEC_NONE only. Channels of which all magnitudes are below 2^-116
 * become zeros.
 */
int codec_encode(
        enum codec codec, const struct codec_shape *shape, const void *plain, void *encoded);

/* Writes codec_plain_bytes(). 0; -EBADMSG: `encoded` isn't what codec_encode() makes, `plain` is of
 * no use. What is damaged elsewhere gives other numbers: checksums are the caller's. */
int codec_decode(
        enum codec codec, const struct codec_shape *shape, const void *encoded, void *plain);

/* How far numbers that were decoded are off, in sums over `n` numbers: the relative error (root of
 * the mean square) is sqrt(errors / squares). */
struct codec_error {
        uint64_t n;
        double errors;  /* (decoded - plain)^2 */
        double squares; /* plain^2 */
};

/* Adds all numbers of the shape, which are finite; no alignment is needed. */
void codec_error_add(struct codec_error *e, const struct codec_shape *shape, const void *plain,
        const void *decoded);

#endif
