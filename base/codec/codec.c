#include "base/codec/codec.h"

#include <errno.h>
#include <stdatomic.h>
#include <string.h>

#include "base/codec/codec-kernels.h"
#include "base/codec/codec-matrix.h"
#include "base/codec/codec-number.h"
#include "base/macros.h"

static const char *const names[N_CODECS] = {"none", "int8", "fp8", "int4"};

/* Bounds on the channel maxima that can be encoded, as bits: all are below `end`. Maxima below
 * `least`, 2^-116, count as zero: their factor would be no finite fp32 number. */
static const struct format {
        uint32_t bytes, end, least;
} formats[N_CODEC_NUMBERS] = {
        [CODEC_F16] = {2, 0x7c00, 1},
        [CODEC_BF16] = {2, 0x7f80, 0x0580},
        [CODEC_F32] = {4, 0x7f000000, 0x05800000},
};

/* The encoded number of a channel's maximum. */
static const float levels[N_CODECS] = {[CODEC_INT8] = 127, [CODEC_FP8] = 448, [CODEC_INT4] = 7};

const char *codec_name(enum codec codec)
{
        return names[codec];
}

static size_t n_values(const struct codec_shape *s)
{
        return (size_t)s->n_tokens * s->n_channels;
}

size_t codec_plain_bytes(const struct codec_shape *shape)
{
        return shape->n_matrices * n_values(shape) * formats[shape->number].bytes;
}

/* Bytes of all channels' maxima. */
static size_t maxima_bytes(enum codec codec, const struct codec_shape *s)
{
        size_t each = codec == CODEC_INT4 ? codec_n_groups(s) : 1;

        return (size_t)s->n_channels * each * formats[s->number].bytes;
}

static size_t codes_bytes(enum codec codec, const struct codec_shape *s)
{
        if (codec == CODEC_INT4)
                return (size_t)s->n_channels * ((s->n_tokens + (size_t)1) / 2);
        return n_values(s);
}

/* Maxima, then codes in the order of the numbers. */
static size_t matrix_bytes(enum codec codec, const struct codec_shape *s)
{
        return maxima_bytes(codec, s) + codes_bytes(codec, s);
}

size_t codec_encoded_bytes(enum codec codec, const struct codec_shape *shape)
{
        if (codec == CODEC_NONE)
                return codec_plain_bytes(shape);
        return shape->n_matrices * matrix_bytes(codec, shape);
}

/* ---- which kernels --------------------------------------------------------------------------- */

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

/* ---- one piece: up to CODEC_TILE channels, or tokens of one channel -------------------------- */

static inline uint32_t load_bits(enum codec_number number, const void *p)
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

/* Returns the value of bits below `end`; without a branch, which vectors don't have. */
static inline float value_of(enum codec_number number, uint32_t bits)
{
        switch (number) {
        case CODEC_F16:
                return f32_of(bits << 13) * 0x1p112f; /* the exponents' biases are 15 and 127 */
        case CODEC_BF16:
                return f32_of(bits << 16);
        default:
                return f32_of(bits);
        }
}

/* Finds the factors of the channels' numbers (encoding) or codes. Returns false if a maximum is out
 * of range. `number` is constant, so that the compiler can vectorize. */
static inline bool factors_as(enum codec_number number, bool is_encoding, float level,
        const uint8_t *maxima, size_t n, float *factors)
{
        const struct format f = formats[number];
        uint32_t n_bad = 0;

        for (size_t i = 0; i < n; i++) {
                uint32_t bits = load_bits(number, maxima + i * f.bytes);
                uint32_t kept = bits < f.least ? 0 : UINT32_MAX;
                float value = value_of(number, bits);

                n_bad += bits >= f.end;
                factors[i] = is_encoding ? f32_of(f32_bits(level / value) & kept) : value / level;
        }
        return n_bad == 0;
}

bool codec_find_factors(enum codec codec, enum codec_number number, bool is_encoding,
        const uint8_t *maxima, size_t n, float *factors)
{
        switch (number) {
        case CODEC_F16:
                return factors_as(CODEC_F16, is_encoding, levels[codec], maxima, n, factors);
        case CODEC_BF16:
                return factors_as(CODEC_BF16, is_encoding, levels[codec], maxima, n, factors);
        default:
                return factors_as(CODEC_F32, is_encoding, levels[codec], maxima, n, factors);
        }
}

void codec_spread_factors(const float *factors, size_t n, size_t each, float *spread)
{
        for (size_t c = 0; c < n; c++)
                for (size_t i = 0; i < each; i += CODEC_BLOCK)
                        for (size_t k = 0; k < CODEC_BLOCK; k++)
                                spread[c * each + i + k] = factors[c];
}

/* ---- one matrix ------------------------------------------------------------------------------ */

/* Channels `first` to `first` + n - 1. */
struct tile {
        size_t first, n;
        float factors[CODEC_TILE]; /* one a channel */
        float spread[CODEC_TILE +
                     CODEC_BLOCK]; /* one a number of a row, if channels are contiguous */
};

/* Numbers that are coded together: n at begin, begin + step ..., all before end. */
struct rows {
        size_t begin, end, step, n;
        const float *factors; /* n entries of the tile's */
};

/* Returns how many channels are processed together. If a channel's numbers are contiguous: as many
 * as fill a tile, or a piece of one, so that a kernel always has a row of some length. */
static size_t channels_at_once(const struct codec_shape *s)
{
        return s->channels_first ? MAX(CODEC_TILE / s->n_tokens, 1u) : CODEC_TILE;
}

static struct rows tile_rows(struct tile *t, const struct codec_shape *s)
{
        size_t each = MIN(s->n_tokens, (uint32_t)CODEC_TILE), begin = t->first * s->n_tokens;

        if (!s->channels_first)
                return (struct rows){t->first, t->first + n_values(s) - s->n_channels + t->n,
                        s->n_channels, t->n, t->factors};
        codec_spread_factors(t->factors, t->n, each, t->spread);
        return (struct rows){
                begin, begin + t->n * s->n_tokens, t->n * each, t->n * each, t->spread};
}

static void find_maxima(
        const struct codec_matrix *m, const struct codec_matrix_data *d, const struct tile *t)
{
        const struct codec_shape *s = m->shape;
        uint8_t *maxima = d->maxima + t->first * m->bytes;
        size_t row_bytes = (size_t)m->bytes * (s->channels_first ? s->n_tokens : s->n_channels);

        if (s->channels_first) {
                m->kernels->greatest[s->number](
                        maxima, d->plain + t->first * row_bytes, t->n, s->n_tokens);
                return;
        }
        memset(maxima, 0, t->n * m->bytes);
        for (size_t k = 0; k < s->n_tokens; k++)
                m->kernels->magnitude[s->number](
                        maxima, d->plain + k * row_bytes + t->first * m->bytes, t->n);
}

static int encode_tile(
        const struct codec_matrix *m, const struct codec_matrix_data *d, struct tile *t)
{
        enum codec_number number = m->shape->number;
        struct rows w;

        find_maxima(m, d, t);
        if (!codec_find_factors(
                    m->codec, number, true, d->maxima + t->first * m->bytes, t->n, t->factors))
                return -EDOM;
        w = tile_rows(t, m->shape);
        for (size_t i = w.begin; i < w.end; i += w.step)
                m->kernels->encode[m->codec - 1][number](
                        d->codes + i, d->plain + i * m->bytes, w.factors, MIN(w.end - i, w.n));
        return 0;
}

static int decode_tile(
        const struct codec_matrix *m, const struct codec_matrix_data *d, struct tile *t)
{
        enum codec_number number = m->shape->number;
        struct rows w;

        if (!codec_find_factors(
                    m->codec, number, false, d->maxima + t->first * m->bytes, t->n, t->factors))
                return -EBADMSG;
        w = tile_rows(t, m->shape);
        for (size_t i = w.begin; i < w.end; i += w.step)
                m->kernels->decode[m->codec - 1][number](
                        d->plain + i * m->bytes, d->codes + i, w.factors, MIN(w.end - i, w.n));
        return 0;
}

typedef int (*tile_fn)(
        const struct codec_matrix *m, const struct codec_matrix_data *d, struct tile *t);

static int each_tile(
        const struct codec_matrix *m, const struct codec_matrix_data *d, tile_fn code_tile)
{
        size_t n_channels = m->shape->n_channels, at_once = channels_at_once(m->shape);
        __attribute__((uninitialized)) struct tile t;
        int r = 0;

        for (t.first = 0; t.first < n_channels && r == 0; t.first += at_once) {
                t.n = MIN(n_channels - t.first, at_once);
                r = code_tile(m, d, &t);
        }
        return r;
}

static int encode_matrix(const struct codec_matrix *m, const struct codec_matrix_data *d)
{
        return m->codec == CODEC_INT4 ? codec_encode_int4(m, d) : each_tile(m, d, encode_tile);
}

static int decode_matrix(const struct codec_matrix *m, const struct codec_matrix_data *d)
{
        return m->codec == CODEC_INT4 ? codec_decode_int4(m, d) : each_tile(m, d, decode_tile);
}

typedef int (*matrix_fn)(const struct codec_matrix *m, const struct codec_matrix_data *d);

static int each_matrix(
        const struct codec_matrix *m, uint8_t *plain, uint8_t *encoded, matrix_fn code_matrix)
{
        const struct codec_shape *s = m->shape;
        int r = 0;

        for (uint32_t i = 0; i < s->n_matrices && r == 0; i++) {
                struct codec_matrix_data d = {.plain = plain + i * n_values(s) * m->bytes,
                        .maxima = encoded + i * matrix_bytes(m->codec, s)};

                d.codes = d.maxima + maxima_bytes(m->codec, s);
                r = code_matrix(m, &d);
        }
        return r;
}

int codec_encode_by(const struct codec_kernels *kernels, enum codec codec,
        const struct codec_shape *shape, const void *plain, void *encoded)
{
        const struct codec_matrix m = {kernels, codec, shape, formats[shape->number].bytes};

        if (codec == CODEC_NONE) {
                memcpy(encoded, plain, codec_plain_bytes(shape));
                return 0;
        }
        return each_matrix(&m, (uint8_t *)(uintptr_t)plain, encoded, encode_matrix);
}

int codec_decode_by(const struct codec_kernels *kernels, enum codec codec,
        const struct codec_shape *shape, const void *encoded, void *plain)
{
        const struct codec_matrix m = {kernels, codec, shape, formats[shape->number].bytes};

        if (codec == CODEC_NONE) {
                memcpy(plain, encoded, codec_plain_bytes(shape));
                return 0;
        }
        return each_matrix(&m, plain, (uint8_t *)(uintptr_t)encoded, decode_matrix);
}

static const struct codec_kernels *best_kernels(void)
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
        return codec_encode_by(best_kernels(), codec, shape, plain, encoded);
}

int codec_decode(
        enum codec codec, const struct codec_shape *shape, const void *encoded, void *plain)
{
        return codec_decode_by(best_kernels(), codec, shape, encoded, plain);
}

/* ---- errors ---------------------------------------------------------------------------------- */

static double number_of(enum codec_number number, uint32_t bits)
{
        switch (number) {
        case CODEC_F16:
                return (double)f16_value((uint16_t)bits);
        case CODEC_BF16:
                return (double)bf16_value((uint16_t)bits);
        default:
                return (double)f32_of(bits);
        }
}

void codec_error_add(struct codec_error *e, const struct codec_shape *shape, const void *plain,
        const void *decoded)
{
        enum codec_number number = shape->number;
        size_t n = shape->n_matrices * n_values(shape), bytes = formats[number].bytes;

        for (size_t i = 0; i < n; i++) {
                uint32_t bits = load_bits(number, (const uint8_t *)plain + i * bytes);
                uint32_t back = load_bits(number, (const uint8_t *)decoded + i * bytes);
                double x = number_of(number, bits), error = number_of(number, back) - x;

                e->errors += error * error;
                e->squares += x * x;
        }
        e->n += n;
}
