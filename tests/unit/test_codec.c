/* Codecs: number formats against their definitions, every kernel against the scalar one, bounds of
 * the error. */
#include "base/codec/codec.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/codec/codec-kernels.h"
#include "base/codec/codec-number.h"
#include "base/macros.h"
#include "tests/unit/test-random.h"
#include "tests/unit/test-support.h"

/* ---- number formats ------------------------------------------------------------------------- */

/* By the definition: sign, exponent and fraction, as a double, which holds all of them. */
static double value_by_definition(uint32_t bits, int n_exponent, int n_fraction)
{
        int bias = (1 << (n_exponent - 1)) - 1;
        uint32_t fraction = bits & ((1u << n_fraction) - 1);
        int exponent = (int)(bits >> n_fraction & ((1u << n_exponent) - 1));
        double magnitude =
                exponent == 0 ? ldexp(fraction, 1 - bias - n_fraction)
                              : ldexp(fraction + (1u << n_fraction), exponent - bias - n_fraction);

        return bits >> (n_exponent + n_fraction) & 1 ? -magnitude : magnitude;
}

TEST(test_f16_values)
{
        for (uint32_t h = 0; h <= 0xffff; h++) {
                if ((h & 0x7c00) == 0x7c00) {
                        assert_true((h & 0x3ff) ? isnan(f16_value((uint16_t)h))
                                                : isinf(f16_value((uint16_t)h)));
                        continue;
                }
                assert_true((double)f16_value((uint16_t)h) == value_by_definition(h, 5, 10));
                assert_int_equal(f16_round(f16_value((uint16_t)h)), h);
        }
}

/* Between two neighbours: the nearer one, the even one from the middle. */
static void check_between(float low, float high, uint32_t low_bits, uint32_t (*round)(float))
{
        float middle = low + (high - low) / 2;

        assert_int_equal(round(nextafterf(middle, low)), low_bits);
        assert_int_equal(round(nextafterf(middle, high)), low_bits + 1);
        assert_int_equal(round(middle), low_bits + (low_bits & 1));
}

static uint32_t round_f16(float f)
{
        return f16_round(f);
}

static uint32_t round_bf16(float f)
{
        return bf16_round(f);
}

static uint32_t round_e4m3(float f)
{
        return e4m3_round(f);
}

TEST(test_rounding)
{
        for (uint16_t h = 0; h < 0x7bff; h++) {
                check_between(f16_value(h), f16_value(h + 1), h, round_f16);
                check_between(-f16_value(h), -f16_value(h + 1), 0x8000u | h, round_f16);
        }
        assert_int_equal(f16_round(65519.996f), 0x7bff);
        assert_int_equal(f16_round(65520), 0x7c00);
        assert_int_equal(f16_round(-INFINITY), 0xfc00);
        assert_true(isnan(f16_value(f16_round(NAN))));
        for (uint32_t h = 0x0080; h < 0x7f7f; h++)
                check_between(
                        bf16_value((uint16_t)h), bf16_value((uint16_t)(h + 1)), h, round_bf16);
        for (uint8_t code = 0; code < 0x7e; code++) {
                check_between(e4m3_value(code), e4m3_value(code + 1), code, round_e4m3);
                check_between(-e4m3_value(code), -e4m3_value(code + 1), 0x80u | code, round_e4m3);
        }
}

/* Every code but NaN, and 448, the greatest, from OCP's table. */
TEST(test_e4m3_values)
{
        for (uint32_t code = 0; code <= 0xff; code++) {
                assert_true((double)e4m3_value((uint8_t)code) == value_by_definition(code, 4, 3));
                if ((code & 0x7f) != 0x7f)
                        assert_int_equal(e4m3_round(e4m3_value((uint8_t)code)), code);
        }
        assert_true(e4m3_value(0x7e) == 448 && e4m3_value(0x01) == 0x1p-9f);
}

/* ---- matrices ------------------------------------------------------------------------------- */

#define N_SHAPES 60 /* tried by each test that takes random ones */

struct matrix {
        struct codec_shape shape;
        uint8_t *plain, *encoded, *decoded; /* owned; at odd addresses */
        size_t n_plain, n_encoded;
};

static const unsigned number_bytes[N_CODEC_NUMBERS] = {2, 2, 4};

static void matrix_init(struct matrix *m, enum codec codec, struct codec_shape shape)
{
        m->shape = shape;
        m->n_plain = codec_plain_bytes(&shape);
        m->n_encoded = codec_encoded_bytes(codec, &shape);
        assert_int_equal(m->n_plain, (size_t)shape.n_matrices * shape.n_tokens * shape.n_channels *
                                             number_bytes[shape.number]);
        /* Exactly as long: a sanitizer sees what goes beyond. */
        m->plain = (uint8_t *)malloc(m->n_plain + 1) + 1;
        m->encoded = (uint8_t *)malloc(m->n_encoded + 1) + 1;
        m->decoded = (uint8_t *)malloc(m->n_plain + 1) + 1;
}

static void matrix_deinit(struct matrix *m)
{
        free(m->plain - 1);
        free(m->encoded - 1);
        free(m->decoded - 1);
}

static float value_at(const struct matrix *m, const uint8_t *data, size_t i)
{
        uint16_t half;
        float f;

        if (m->shape.number == CODEC_F32) {
                memcpy(&f, data + i * 4, 4);
                return f;
        }
        memcpy(&half, data + i * 2, 2);
        return m->shape.number == CODEC_F16 ? f16_value(half) : bf16_value(half);
}

static void set_value(struct matrix *m, size_t i, float f)
{
        uint16_t half = m->shape.number == CODEC_F16 ? f16_round(f) : bf16_round(f);

        if (m->shape.number == CODEC_F32)
                memcpy(m->plain + i * 4, &f, 4);
        else
                memcpy(m->plain + i * 2, &half, 2);
}

static size_t index_of(const struct codec_shape *s, size_t matrix, size_t token, size_t channel)
{
        return matrix * s->n_tokens * s->n_channels +
               (s->channels_first ? channel * s->n_tokens + token
                                  : token * s->n_channels + channel);
}

/* Channels of very different sizes, some of them all zero. */
static void matrix_randomise(struct matrix *m)
{
        const struct codec_shape *s = &m->shape;

        for (size_t x = 0; x < s->n_matrices; x++)
                for (size_t c = 0; c < s->n_channels; c++) {
                        float scale = random_u64() % 16 == 0
                                              ? 0
                                              : ldexpf(1, (int)(random_u64() % 24) - 12);

                        for (size_t t = 0; t < s->n_tokens; t++)
                                set_value(m, index_of(s, x, t, c),
                                        scale * (float)((int64_t)random_u64() >> 40) * 0x1p-23f);
                }
}

/* One in four is wider than what is coded at a time (codec.c), one in four longer. */
static struct codec_shape random_shape(void)
{
        struct codec_shape s = {.number = random_u64() % N_CODEC_NUMBERS,
                .channels_first = random_u64() % 2,
                .n_matrices = 1 + random_u64() % 3,
                .n_tokens = 1 + random_u64() % 200,
                .n_channels = 1 + random_u64() % 200};
        uint64_t kind = random_u64() % 4;

        if (kind == 0)
                s.n_channels = 1900 + random_u64() % 3000;
        if (kind == 1)
                s.n_tokens = 1900 + random_u64() % 3000;
        if (kind <= 1)
                *(kind == 0 ? &s.n_tokens : &s.n_channels) = 1 + random_u64() % 20;
        return s;
}

static void check_same(const struct codec_kernels *k, enum codec codec, struct codec_shape shape)
{
        struct matrix m;
        uint8_t *expected;

        matrix_init(&m, codec, shape);
        matrix_randomise(&m);
        expected = malloc(MAX(m.n_encoded, m.n_plain));
        assert_int_equal(
                codec_encode_by(&codec_kernels_scalar, codec, &shape, m.plain, expected), 0);
        assert_int_equal(codec_encode_by(k, codec, &shape, m.plain, m.encoded), 0);
        assert_memory_equal(m.encoded, expected, m.n_encoded);
        assert_int_equal(
                codec_decode_by(&codec_kernels_scalar, codec, &shape, m.encoded, expected), 0);
        assert_int_equal(codec_decode_by(k, codec, &shape, m.encoded, m.decoded), 0);
        assert_memory_equal(m.decoded, expected, m.n_plain);
        free(expected);
        matrix_deinit(&m);
}

TEST(test_kernels_agree)
{
        const struct codec_kernels *k;
        unsigned n;

        for (n = 0; (k = codec_kernels_at(n)); n++) {
                print_message("%s\n", k->name);
                for (unsigned i = 0; i < N_SHAPES; i++)
                        for (unsigned codec = CODEC_INT8; codec < N_CODECS; codec++)
                                check_same(k, codec, random_shape());
        }
        assert_true(n >= 1 && codec_kernels_at(n - 1) == &codec_kernels_scalar);
}

/* Every code by every kernel, beside factors of every size. */
TEST(test_kernels_decode_all)
{
        const struct codec_kernels *k;
        uint8_t codes[256], expected[256 * 4], got[256 * 4];
        float factors[256];

        for (unsigned i = 0; i < 256; i++) {
                codes[i] = (uint8_t)i;
                factors[i] = ldexpf(
                        1 + (float)(random_u64() % 1000) / 1000, (int)(random_u64() % 16) - 12);
        }
        for (unsigned n = 0; (k = codec_kernels_at(n)); n++)
                for (unsigned codec = 0; codec < 2; codec++)
                        for (unsigned number = 0; number < N_CODEC_NUMBERS; number++) {
                                codec_kernels_scalar.decode[codec][number](
                                        expected, codes, factors, 256);
                                k->decode[codec][number](got, codes, factors, 256);
                                assert_memory_equal(got, expected, 256 * number_bytes[number]);
                        }
}

/* Greatest magnitude of n tokens of the channel, or of as many as there are. */
static double greatest(
        const struct matrix *m, size_t matrix, size_t channel, size_t first, size_t n)
{
        double max = 0;

        for (size_t t = first; t < MIN(first + n, m->shape.n_tokens); t++)
                max = fmax(max, fabs((double)value_at(
                                        m, m->plain, index_of(&m->shape, matrix, t, channel))));
        return max;
}

/* Parts of the maximum and of the value, and a constant, in sum; or the other part of the maximum,
 * where that is more. The maximum is of so many tokens of the channel; 0: of all. */
struct bound {
        double of_maximum, of_value, plus, or_of_maximum;
        size_t group;
};

/* `first`: the first token of a group. */
static void check_group(
        const struct matrix *m, struct bound b, size_t matrix, size_t channel, size_t first)
{
        size_t n = b.group > 0 ? b.group : m->shape.n_tokens;
        double max = greatest(m, matrix, channel, first, n);

        for (size_t t = first; t < MIN(first + n, m->shape.n_tokens); t++) {
                size_t i = index_of(&m->shape, matrix, t, channel);
                double is = value_at(m, m->plain, i), back = value_at(m, m->decoded, i);
                double error = fabs(is - back);
                double most = b.of_maximum * max + b.of_value * fmax(fabs(is), fabs(back)) + b.plus;

                if (error > fmax(most, b.or_of_maximum * max))
                        fail_msg("%g came back as %g, maximum %g", is, back, max);
                if (fabs(is) == max && m->shape.number != CODEC_F32)
                        assert_true(error == 0);
        }
}

static void check_errors(const struct matrix *m, struct bound b)
{
        size_t step = b.group > 0 ? b.group : m->shape.n_tokens;

        for (size_t x = 0; x < m->shape.n_matrices; x++)
                for (size_t c = 0; c < m->shape.n_channels; c++)
                        for (size_t first = 0; first < m->shape.n_tokens; first += step)
                                check_group(m, b, x, c, first);
}

/* The bounds of codec.h for int8 and int4. For fp8: half a step of four bits, of values or of the
 * smallest. */
TEST(test_errors)
{
        for (unsigned i = 0; i < N_SHAPES; i++)
                for (unsigned codec = CODEC_INT8; codec < N_CODECS; codec++) {
                        struct codec_shape shape = random_shape();
                        double rounding = shape.number == CODEC_BF16 ? 0x1p-8 : 0x1p-11;
                        struct matrix m;

                        matrix_init(&m, codec, shape);
                        matrix_randomise(&m);
                        assert_int_equal(codec_encode(codec, &shape, m.plain, m.encoded), 0);
                        assert_int_equal(codec_decode(codec, &shape, m.encoded, m.decoded), 0);
                        if (codec == CODEC_FP8)
                                check_errors(&m, (struct bound){0x1p-10 / 448,
                                                         0x1p-4 + 2 * rounding, 0x1p-25, 0, 0});
                        else if (codec == CODEC_INT4)
                                check_errors(&m, (struct bound){1.0 / 13.999, rounding, 0x1p-25, 0,
                                                         CODEC_GROUP_TOKENS});
                        else if (shape.number == CODEC_F16)
                                check_errors(
                                        &m, (struct bound){1.0 / 253.9, 0, 0x1p-25, 1.0 / 220, 0});
                        else
                                check_errors(&m, (struct bound){1.0 / 253.9, rounding, 0, 0, 0});
                        matrix_deinit(&m);
                }
}

/* All fp16 numbers with codes below `end`, as one channel. */
static void check_f16_below(unsigned end)
{
        struct codec_shape shape = {CODEC_F16, true, 1, 2 * end, 1};
        struct matrix m;

        matrix_init(&m, CODEC_INT8, shape);
        for (unsigned i = 0; i < end; i++) {
                uint16_t h = (uint16_t)i, minus = h | 0x8000;

                memcpy(m.plain + i * 4, &h, 2);
                memcpy(m.plain + i * 4 + 2, &minus, 2);
        }
        assert_int_equal(codec_encode(CODEC_INT8, &shape, m.plain, m.encoded), 0);
        assert_int_equal(codec_decode(CODEC_INT8, &shape, m.encoded, m.decoded), 0);
        check_errors(&m, (struct bound){1.0 / 253.9, 0, 0x1p-25, 1.0 / 220, 0});
        matrix_deinit(&m);
}

/* Below each power of two, and below each of the smallest, where 2^-24 is much. */
TEST(test_all_f16)
{
        for (unsigned power = 1; power <= 30; power++)
                check_f16_below(power << 10);
        for (unsigned end = 1; end <= 2048; end++)
                check_f16_below(end);
}

TEST(test_not_finite)
{
        static const float bad[] = {INFINITY, -INFINITY, NAN};
        struct matrix m;

        for (unsigned number = 0; number < N_CODEC_NUMBERS; number++)
                for (unsigned first = 0; first < 2; first++)
                        for (unsigned i = 0; i < ARRAY_SIZE(bad); i++) {
                                struct codec_shape shape = {number, first, 2, 33, 41};
                                uint16_t half = number == CODEC_F16 ? 0x7e00 : 0x7fc0;
                                size_t at;

                                matrix_init(&m, CODEC_INT8, shape);
                                matrix_randomise(&m);
                                assert_int_equal(
                                        codec_encode(CODEC_INT8, &shape, m.plain, m.encoded), 0);
                                at = random_u64() % (m.n_plain / number_bytes[number]);
                                if (isnan(bad[i]) && number != CODEC_F32)
                                        memcpy(m.plain + at * 2, &half, 2);
                                else
                                        set_value(&m, at, bad[i]);
                                for (unsigned c = CODEC_INT8; c < N_CODECS; c++)
                                        assert_int_equal(
                                                codec_encode(c, &shape, m.plain, m.encoded), -EDOM);
                                matrix_deinit(&m);
                        }
}

/* The ends of what fp32 holds: refused, exact, and flushed to zero. */
TEST(test_f32_ends)
{
        struct codec_shape shape = {CODEC_F32, false, 1, 3, 2};
        struct matrix m;

        matrix_init(&m, CODEC_INT8, shape);
        for (unsigned i = 0; i < 6; i++)
                set_value(&m, i, 0x1p126f);
        set_value(&m, 1, 0x1p127f);
        assert_int_equal(codec_encode(CODEC_INT8, &shape, m.plain, m.encoded), -EDOM);
        set_value(&m, 1, -0x1.fffffep126f);
        set_value(&m, 0, 0x1p-117f);
        set_value(&m, 2, -0x1p-118f);
        set_value(&m, 4, 0x1p-149f);
        for (unsigned codec = CODEC_INT8; codec < N_CODECS; codec++) {
                assert_int_equal(codec_encode(codec, &shape, m.plain, m.encoded), 0);
                assert_int_equal(codec_decode(codec, &shape, m.encoded, m.decoded), 0);
                for (unsigned i = 0; i < 6; i += 2)
                        assert_true(value_at(&m, m.decoded, i) == 0);
                assert_true(fabsf(value_at(&m, m.decoded, 1) + 0x1.fffffep126f) < 0x1p104f);
        }
        matrix_deinit(&m);
}

TEST(test_damaged)
{
        struct codec_shape shape = {CODEC_F16, false, 1, 16, 16};
        struct matrix m;

        matrix_init(&m, CODEC_INT8, shape);
        matrix_randomise(&m);
        assert_int_equal(codec_encode(CODEC_INT8, &shape, m.plain, m.encoded), 0);
        m.encoded[3] = 0x7c; /* the second maximum: infinity */
        assert_int_equal(codec_decode(CODEC_INT8, &shape, m.encoded, m.decoded), -EBADMSG);
        m.encoded[3] = 0x80; /* negative */
        assert_int_equal(codec_decode(CODEC_INT8, &shape, m.encoded, m.decoded), -EBADMSG);
        shape.channels_first = true;
        assert_int_equal(codec_decode(CODEC_FP8, &shape, m.encoded, m.decoded), -EBADMSG);
        assert_int_equal(codec_decode(CODEC_INT4, &shape, m.encoded, m.decoded), -EBADMSG);
        shape.channels_first = false;
        assert_int_equal(codec_decode(CODEC_INT4, &shape, m.encoded, m.decoded), -EBADMSG);
        matrix_deinit(&m);
}

/* Stored pages are read by later versions: these bytes are int4's for good. Two maxima, then codes
 * of 7, -3, 1 and of 7, 4 (3.5, a tie), -7. */
TEST(test_int4_bytes)
{
        static const float values[3][2] = {{7, 0.5f}, {-3, 0.25f}, {1, -0.5f}};
        static const uint8_t expected[2][8] = {
                {0x00, 0x47, 0x00, 0x38, 0xd7, 0x47, 0x01, 0x09},  /* [token][channel] */
                {0x00, 0x47, 0x00, 0x38, 0xd7, 0x01, 0x47, 0x09}}; /* [channel][token] */

        for (unsigned first = 0; first < 2; first++) {
                struct codec_shape shape = {CODEC_F16, first, 1, 3, 2};
                struct matrix m;

                matrix_init(&m, CODEC_INT4, shape);
                assert_int_equal(m.n_encoded, sizeof(expected[first]));
                for (unsigned t = 0; t < 3; t++)
                        for (unsigned c = 0; c < 2; c++)
                                set_value(&m, index_of(&shape, 0, t, c), values[t][c]);
                assert_int_equal(codec_encode(CODEC_INT4, &shape, m.plain, m.encoded), 0);
                assert_memory_equal(m.encoded, expected[first], m.n_encoded);
                assert_int_equal(codec_decode(CODEC_INT4, &shape, m.encoded, m.decoded), 0);
                assert_true(value_at(&m, m.decoded, index_of(&shape, 0, 1, 0)) == -3);
                matrix_deinit(&m);
        }
}

/* The second group of a channel has nothing of the first one's maximum. */
TEST(test_int4_groups)
{
        for (unsigned first = 0; first < 2; first++) {
                struct codec_shape shape = {CODEC_BF16, first, 2, CODEC_GROUP_TOKENS + 3, 5};
                struct matrix m;

                matrix_init(&m, CODEC_INT4, shape);
                for (size_t x = 0; x < 2; x++)
                        for (size_t t = 0; t < shape.n_tokens; t++)
                                for (size_t c = 0; c < 5; c++)
                                        set_value(&m, index_of(&shape, x, t, c),
                                                t < CODEC_GROUP_TOKENS ? 1000 : (float)c / 8);
                assert_int_equal(codec_encode(CODEC_INT4, &shape, m.plain, m.encoded), 0);
                assert_int_equal(codec_decode(CODEC_INT4, &shape, m.encoded, m.decoded), 0);
                assert_memory_equal(m.decoded, m.plain, m.n_plain);
                matrix_deinit(&m);
        }
}

TEST(test_error_add)
{
        static const float plain[] = {3, -4, 0, 1}, decoded[] = {3.5f, -4, 0, 2};

        for (unsigned number = 0; number < N_CODEC_NUMBERS; number++) {
                struct codec_shape shape = {number, false, 1, 2, 2};
                struct codec_error e = {.n = 10, .errors = 1, .squares = 2};
                struct matrix m;

                matrix_init(&m, CODEC_NONE, shape);
                for (size_t i = 0; i < 4; i++)
                        set_value(&m, i, decoded[i]);
                memcpy(m.decoded, m.plain, m.n_plain);
                for (size_t i = 0; i < 4; i++)
                        set_value(&m, i, plain[i]);
                codec_error_add(&e, &shape, m.plain, m.decoded);
                assert_int_equal(e.n, 14);
                assert_true(e.errors == 1 + 0.25 + 1 && e.squares == 2 + 9 + 16 + 1);
                matrix_deinit(&m);
        }
}

/* A page of 64 tokens shrinks to 0.52 of its bytes at most; without a codec nothing changes. */
TEST(test_sizes)
{
        struct codec_shape shape = {CODEC_F16, false, 2, 64, 1024},
                           odd = {CODEC_F32, true, 3, 33, 7};
        struct matrix m;

        assert_int_equal(codec_encoded_bytes(CODEC_INT4, &shape), 2 * 1024 * (2 * 2 + 32));
        assert_int_equal(codec_encoded_bytes(CODEC_INT4, &odd), 3 * 7 * (2 * 4 + 17));
        assert_true(
                100 * codec_encoded_bytes(CODEC_INT8, &shape) <= 52 * codec_plain_bytes(&shape));
        matrix_init(&m, CODEC_NONE, shape);
        matrix_randomise(&m);
        assert_int_equal(m.n_encoded, m.n_plain);
        assert_int_equal(codec_encode(CODEC_NONE, &shape, m.plain, m.encoded), 0);
        assert_int_equal(codec_decode(CODEC_NONE, &shape, m.encoded, m.decoded), 0);
        assert_memory_equal(m.decoded, m.plain, m.n_plain);
        matrix_deinit(&m);
}

int main(void)
{
        random_start("test_codec");
        return test_run_all(NULL, NULL);
}
