/*
 * Codecs: fp16 pages are encoded and decoded again in this thread. Reports the fraction of bytes
 * left and the numbers' error. Bandwidth is of plain bytes, down and up counted each, like
 * memcpy()'s.
 */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/codec/codec-number.h"
#include "base/codec/codec.h"
#include "base/macros.h"
#include "lab/bench/tiers.h"

#define N_CHANNELS 1024 /* 8 heads of 128 */
#define N_MATRICES 2    /* keys and values */
#define MIN_RATIO  0.3  /* int8; specification */

/* Bounds as fractions of plain bytes, from 64 tokens on, and of a channel's maximum / 220. int8:
 * specification. int4: codec.h, 4.5 bits of 16, and 1/14 and half a step of fp16. */
static const struct {
        double max_bytes, max_error;
} bounds[N_CODECS] = {
        [CODEC_INT8] = {0.52, 1}, [CODEC_FP8] = {NAN, NAN}, [CODEC_INT4] = {0.2813, 15.83}};

struct codecs {
        enum codec codec;
        struct codec_shape shape;
};

/* The encoded pages are as far apart as the plain ones. */
static int code_block(struct contest *c, bool is_up, size_t at, size_t bytes, void *data)
{
        const struct codecs *k = data;
        int r = 0;

        for (size_t end = at + bytes; at < end && r == 0; at += c->page_bytes)
                r = is_up ? codec_decode(k->codec, &k->shape, c->stored + at, c->plain + at)
                          : codec_encode(k->codec, &k->shape, c->plain + at, c->stored + at);
        return r < 0 ? bench_fail("codec", r) : 0;
}

static const char *layout_name(const struct codecs *k)
{
        return k->shape.channels_first ? "channels-first" : "tokens-first";
}

/* All of it in this thread: by processor time. */
static int measure_speed(const struct codecs *k, struct contest *c, struct bench_run *run)
{
        struct bench_result *const results[N_CONTEST_CLOCKS] = {
                [CONTEST_PROCESSOR] = bench_add(run, "GB/s", "%s-%s-%u", codec_name(k->codec),
                        layout_name(k), k->shape.n_tokens),
        };

        c->page_bytes = codec_plain_bytes(&k->shape);
        if (k->codec == CODEC_INT8)
                results[CONTEST_PROCESSOR]->min_ratio = MIN_RATIO;
        return contest_run(c, run->rounds, code_block, (void *)(uintptr_t)k, results);
}

static void add_bytes(const struct codecs *k, struct bench_run *run)
{
        struct bench_result *r =
                bench_add(run, "1", "%s-bytes-%u", codec_name(k->codec), k->shape.n_tokens);

        r->median = (double)codec_encoded_bytes(k->codec, &k->shape) /
                    (double)codec_plain_bytes(&k->shape);
        if (k->shape.n_tokens >= 64)
                r->max_value = bounds[k->codec].max_bytes;
}

static double number_at(const struct codecs *k, const uint8_t *data, size_t token, size_t channel)
{
        size_t i = k->shape.channels_first ? channel * k->shape.n_tokens + token
                                           : token * k->shape.n_channels + channel;
        uint16_t half;

        memcpy(&half, data + i * 2, 2);
        return f16_value(half);
}

/* The greatest over a matrix, in 220ths of the channel's maximum. */
static double greatest_error(const struct codecs *k, const uint8_t *plain, const uint8_t *decoded)
{
        double greatest = 0;

        for (size_t c = 0; c < k->shape.n_channels; c++) {
                double maximum = 0, error = 0;

                for (size_t t = 0; t < k->shape.n_tokens; t++) {
                        double x = number_at(k, plain, t, c);

                        maximum = fmax(maximum, fabs(x));
                        error = fmax(error, fabs(x - number_at(k, decoded, t, c)));
                }
                if (maximum > 0)
                        greatest = fmax(greatest, error / maximum * 220);
        }
        return greatest;
}

/* Measures the error in the first page of the half that other threads don't encode. */
static int measure_error(const struct codecs *k, const struct contest *c, struct bench_run *run)
{
        struct bench_result *result = bench_add(run, "1", "%s-error-%s-%u", codec_name(k->codec),
                layout_name(k), k->shape.n_tokens);
        const uint8_t *plain = c->plain + c->bytes;
        uint8_t *encoded = malloc(codec_encoded_bytes(k->codec, &k->shape));
        uint8_t *decoded = malloc(codec_plain_bytes(&k->shape));
        int r = encoded && decoded ? 0 : -ENOMEM;

        if (r == 0)
                r = codec_encode(k->codec, &k->shape, plain, encoded);
        if (r == 0)
                r = codec_decode(k->codec, &k->shape, encoded, decoded);
        if (r == 0)
                result->median = greatest_error(k, plain, decoded);
        result->max_value = bounds[k->codec].max_error;
        free(encoded);
        free(decoded);
        return r < 0 ? bench_fail("codec", r) : 0;
}

static int measure_codec(enum codec codec, struct contest *c, struct bench_run *run)
{
        static const uint32_t n_tokens[] = {16, 64, 256};
        struct codecs k = {.codec = codec,
                .shape = {CODEC_F16, .n_matrices = N_MATRICES, .n_channels = N_CHANNELS}};
        int r = 0;

        for (unsigned i = 0; r == 0 && i < ARRAY_SIZE(n_tokens); i++) {
                k.shape.n_tokens = n_tokens[i];
                add_bytes(&k, run);
                for (unsigned first = 0; r == 0 && first < 2; first++) {
                        k.shape.channels_first = first;
                        r = measure_speed(&k, c, run);
                        if (r == 0)
                                r = measure_error(&k, c, run);
                }
        }
        return r;
}

int tiers_codecs(struct bench_run *run)
{
        struct contest c;
        int r = contest_open(&c, run->quick);

        for (unsigned codec = CODEC_INT8; r == 0 && codec < N_CODECS; codec++)
                r = measure_codec(codec, &c, run);
        contest_close(&c);
        return r;
}
