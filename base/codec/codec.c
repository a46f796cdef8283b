#include "base/codec/codec.h"

#include <errno.h>
#include <stdatomic.h>
#include <string.h>

#include "base/codec/codec-kernels.h"
#include "base/codec/codec-number.h"
#include "base/macros.h"

/* Channels whose maxima and factors are at hand at a time, or tokens of one. In the first-level
 * cache beside a row of as many. Not tuned. */
#define TILE 256

static const char *const names[N_CODECS] = {"none", "int8", "fp8"};

static const struct format {
        uint32_t bytes;
        uint32_t end; /* of maxima that can be encoded, as bits */
} formats[N_CODEC_NUMBERS] = {
        [CODEC_F16] = {2, 0x7c00},
        [CODEC_BF16] = {2, 0x7f80},
        [CODEC_F32] = {4, 0x7f000000},
};

/* What a channel's maximum becomes. */
static const float levels[N_CODECS] = {[CODEC_INT8] = 127, [CODEC_FP8] = 448};

/* Below it the factor would be no finite fp32 number. */
#define LEAST_MAXIMUM 0x1p-116f

const char *codec_name(enum codec codec)
{
        return names[codec];
}

int codec_parse(const char *name, enum codec *ret_codec)
{
        for (unsigned i = 0; i < N_CODECS; i++)
                if (strcmp(name, names[i]) == 0) {
                        *ret_codec = (enum codec)i;
                        return 0;
                }
        return -EINVAL;
}

static size_t n_values(const struct codec_shape *s)
{
        return (size_t)s->n_tokens * s->n_channels;
}

size_t codec_plain_bytes(const struct codec_shape *shape)
{
        return shape->n_matrices * n_values(shape) * formats[shape->number].bytes;
}

/* Maxima, then codes in the order of the numbers. */
static size_t matrix_bytes(const struct codec_shape *s)
{
        return (size_t)s->n_channels * formats[s->number].bytes + n_values(s);
}

size_t codec_encoded_bytes(enum codec codec, const struct codec_shape *shape)
{
        if (codec == CODEC_NONE)
                return codec_plain_bytes(shape);
        return shape->n_matrices * matrix_bytes(shape);
}

/* ---- which kernels ----------------------------------------------------------------------------
 */

static bool can_run(const struct codec_kernels *k)
{
#if defined(__x86_64__)
        if (k == &codec_kernels_avx512)
                return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                       __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
        /* Every CPU with AVX2 has F16C, too. */
        if (k == &codec_kernels_avx2)
                return __builtin_cpu_supports("avx2");
#endif
        return true;
}

const struct codec_kernels *codec_kernels_at(unsigned i)
{
        static const struct codec_kernels *const all[] = {
#if defined(__x86_64__)
                &codec_kernels_avx512,
                &codec_kernels_avx2,
#elif defined(__aarch64__)
                &codec_kernels_neon,
#endif
                &codec_kernels_scalar,
        };

        for (unsigned n = 0; n < ARRAY_SIZE(all); n++)
                if (can_run(all[n]) && i-- == 0)
                        return all[n];
        return NULL;
}

/* ---- one piece: up to TILE channels, or tokens of one channel ---------------------------------
 */

static uint32_t load_bits(enum codec_number number, const void *p)
{
        uint16_t half;
        uint32_t bits;

        if (number == CODEC_F32) {
                memcpy(&bits, p, sizeof(bits));
                return bits;
        }
        memcpy(&half, p, sizeof(half));
        return half;
}

static float value_of(enum codec_number number, uint32_t bits)
{
        switch (number) {
        case CODEC_F16:
                return f16_value((uint16_t)bits);
        case CODEC_BF16:
                return bf16_value((uint16_t)bits);
        default:
                return f32_of(bits);
        }
}

/* A channel's maximum as it is kept, and what its values are multiplied by. 0 or -EDOM. */
static int begin_channel(enum codec codec, enum codec_number number, void *maximum, float *ret)
{
        uint32_t bits = load_bits(number, maximum);
        float value;

        if (bits >= formats[number].end)
                return -EDOM;
        value = value_of(number, bits);
        *ret = value < LEAST_MAXIMUM ? 0 : levels[codec] / value;
        if (value < LEAST_MAXIMUM)
                memset(maximum, 0, formats[number].bytes);
        return 0;
}

/* What the codes of a channel are multiplied by. 0 or -EBADMSG. */
static int resume_channel(
        enum codec codec, enum codec_number number, const void *maximum, float *ret)
{
        uint32_t bits = load_bits(number, maximum);

        if (bits >= formats[number].end)
                return -EBADMSG;
        *ret = value_of(number, bits) / levels[codec];
        return 0;
}

/* ---- one matrix -------------------------------------------------------------------------------
 */

struct matrix {
        const struct codec_kernels *kernels;
        enum codec codec;
        const struct codec_shape *shape;
        uint32_t bytes; /* of a number */
};

/* One is read, the other is written. */
struct matrix_data {
        uint8_t *plain, *maxima, *codes;
};

static int encode_tile(const struct matrix *m, const struct matrix_data *d, size_t first, size_t n)
{
        enum codec_number number = m->shape->number;
        size_t stride = m->shape->n_channels;
        uint8_t *maxima = d->maxima + first * m->bytes;
        float factors[TILE];
        int r = 0;

        memset(maxima, 0, n * m->bytes);
        for (size_t t = 0; t < m->shape->n_tokens; t++)
                m->kernels->magnitude[number](
                        maxima, d->plain + (t * stride + first) * m->bytes, n);
        for (size_t i = 0; i < n && r == 0; i++)
                r = begin_channel(m->codec, number, maxima + i * m->bytes, &factors[i]);
        for (size_t t = 0; t < m->shape->n_tokens && r == 0; t++)
                m->kernels->encode[m->codec - 1][number](d->codes + t * stride + first,
                        d->plain + (t * stride + first) * m->bytes, factors, n);
        return r;
}

static int decode_tile(const struct matrix *m, const struct matrix_data *d, size_t first, size_t n)
{
        enum codec_number number = m->shape->number;
        size_t stride = m->shape->n_channels;
        float factors[TILE];
        int r = 0;

        for (size_t i = 0; i < n && r == 0; i++)
                r = resume_channel(
                        m->codec, number, d->maxima + (first + i) * m->bytes, &factors[i]);
        for (size_t t = 0; t < m->shape->n_tokens && r == 0; t++)
                m->kernels->decode[m->codec - 1][number](d->plain + (t * stride + first) * m->bytes,
                        d->codes + t * stride + first, factors, n);
        return r;
}

/* Where a channel's numbers lie together: as many channels as fill a tile, or a piece of one at a
 * time, so that a kernel always has a row of some length. */
static size_t channels_at_once(const struct codec_shape *s)
{
        return MAX(TILE / s->n_tokens, 1u);
}

/* One factor per number of n channels, as many of each as lie in a row. Returns their number. */
static size_t spread(
        const struct codec_shape *s, const float *of_channels, size_t n, float *factors)
{
        size_t each = MIN(s->n_tokens, (uint32_t)TILE), k = 0;

        for (size_t c = 0; c < n; c++)
                for (size_t i = 0; i < each; i++)
                        factors[k++] = of_channels[c];
        return k;
}

static int encode_channels(
        const struct matrix *m, const struct matrix_data *d, size_t first, size_t n)
{
        enum codec_number number = m->shape->number;
        size_t n_tokens = m->shape->n_tokens, begin = first * n_tokens, end = begin + n * n_tokens;
        float of_channels[TILE], factors[TILE];
        size_t row;

        for (size_t c = 0; c < n; c++) {
                uint8_t *maximum = d->maxima + (first + c) * m->bytes;
                uint32_t bits = m->kernels->greatest[number](
                        d->plain + (begin + c * n_tokens) * m->bytes, n_tokens);
                int r;

                memcpy(maximum, &bits, m->bytes); /* little-endian, as all that is kept */
                r = begin_channel(m->codec, number, maximum, &of_channels[c]);
                if (r < 0)
                        return r;
        }
        row = spread(m->shape, of_channels, n, factors);
        for (size_t i = begin; i < end; i += row)
                m->kernels->encode[m->codec - 1][number](
                        d->codes + i, d->plain + i * m->bytes, factors, MIN(end - i, row));
        return 0;
}

static int decode_channels(
        const struct matrix *m, const struct matrix_data *d, size_t first, size_t n)
{
        enum codec_number number = m->shape->number;
        size_t n_tokens = m->shape->n_tokens, begin = first * n_tokens, end = begin + n * n_tokens;
        float of_channels[TILE], factors[TILE];
        size_t row;

        for (size_t c = 0; c < n; c++) {
                int r = resume_channel(
                        m->codec, number, d->maxima + (first + c) * m->bytes, &of_channels[c]);

                if (r < 0)
                        return r;
        }
        row = spread(m->shape, of_channels, n, factors);
        for (size_t i = begin; i < end; i += row)
                m->kernels->decode[m->codec - 1][number](
                        d->plain + i * m->bytes, d->codes + i, factors, MIN(end - i, row));
        return 0;
}

typedef int (*tile_fn)(const struct matrix *m, const struct matrix_data *d, size_t first, size_t n);

static int each_matrix(const struct matrix *m, uint8_t *plain, uint8_t *encoded, tile_fn tile)
{
        const struct codec_shape *s = m->shape;
        size_t n_channels = s->n_channels;
        size_t at_once = s->channels_first ? channels_at_once(s) : TILE;
        int r = 0;

        for (uint32_t i = 0; i < s->n_matrices && r == 0; i++) {
                struct matrix_data d = {.plain = plain + i * n_values(s) * m->bytes,
                        .maxima = encoded + i * matrix_bytes(s)};

                d.codes = d.maxima + n_channels * m->bytes;
                for (size_t c = 0; c < n_channels && r == 0; c += at_once)
                        r = tile(m, &d, c, MIN(n_channels - c, at_once));
        }
        return r;
}

int codec_encode_by(const struct codec_kernels *kernels, enum codec codec,
        const struct codec_shape *shape, const void *plain, void *encoded)
{
        const struct matrix m = {kernels, codec, shape, formats[shape->number].bytes};

        if (codec == CODEC_NONE) {
                memcpy(encoded, plain, codec_plain_bytes(shape));
                return 0;
        }
        return each_matrix(&m, (uint8_t *)(uintptr_t)plain, encoded,
                shape->channels_first ? encode_channels : encode_tile);
}

int codec_decode_by(const struct codec_kernels *kernels, enum codec codec,
        const struct codec_shape *shape, const void *encoded, void *plain)
{
        const struct matrix m = {kernels, codec, shape, formats[shape->number].bytes};

        if (codec == CODEC_NONE) {
                memcpy(plain, encoded, codec_plain_bytes(shape));
                return 0;
        }
        return each_matrix(&m, plain, (uint8_t *)(uintptr_t)encoded,
                shape->channels_first ? decode_channels : decode_tile);
}

static const struct codec_kernels *best(void)
{
        static const struct codec_kernels *_Atomic found;
        const struct codec_kernels *k = atomic_load_explicit(&found, memory_order_relaxed);

        if (!k) {
                k = codec_kernels_at(0);
                atomic_store_explicit(&found, k, memory_order_relaxed);
        }
        return k;
}

int codec_encode(
        enum codec codec, const struct codec_shape *shape, const void *plain, void *encoded)
{
        return codec_encode_by(best(), codec, shape, plain, encoded);
}

int codec_decode(
        enum codec codec, const struct codec_shape *shape, const void *encoded, void *plain)
{
        return codec_decode_by(best(), codec, shape, encoded, plain);
}
