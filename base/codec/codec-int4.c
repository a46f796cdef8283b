/* int4: a byte holds the codes of two tokens of a channel. The kernels of int8 turn numbers into
 * codes, with 7 in place of 127. Codes are packed in the first-level cache. */
#include <errno.h>
#include <string.h>

#include "base/codec/codec-matrix.h"
#include "base/macros.h"

/* Buffers for one pass. */
struct piece {
        float factors[CODEC_TILE];
        float spread[CODEC_TILE + CODEC_BLOCK];
        /* One byte a code: of two tokens with CODEC_TILE channels each, or of CODEC_TILE contiguous
         * numbers and one more. */
        uint8_t codes[2 * CODEC_TILE];
};

/* ---- bytes ----------------------------------------------------------------------------------- */

/* Returns the lower half of a byte as a two's complement number. */
static inline uint8_t extend_sign(unsigned half)
{
        return (uint8_t)(((half & 15) ^ 8) - 8);
}

static void pack_rows(uint8_t *restrict packed, const uint8_t *restrict low,
        const uint8_t *restrict high, size_t n)
{
        for (size_t i = 0; i < n; i++)
                packed[i] = (uint8_t)((low[i] & 15) | high[i] << 4);
}

static void unpack_rows(
        const uint8_t *restrict packed, uint8_t *restrict low, uint8_t *restrict high, size_t n)
{
        for (size_t i = 0; i < n; i++) {
                low[i] = extend_sign(packed[i]);
                high[i] = extend_sign(packed[i] >> 4);
        }
}

/* Packs n bytes of two neighbours each. */
static void pack_neighbours(uint8_t *restrict packed, const uint8_t *restrict codes, size_t n)
{
        for (size_t i = 0; i < n; i++)
                packed[i] = (uint8_t)((codes[2 * i] & 15) | codes[2 * i + 1] << 4);
}

static void unpack_neighbours(const uint8_t *restrict packed, uint8_t *restrict codes, size_t n)
{
        for (size_t i = 0; i < n; i++) {
                codes[2 * i] = extend_sign(packed[i]);
                codes[2 * i + 1] = extend_sign(packed[i] >> 4);
        }
}

static void encode_row(const struct codec_matrix *m, uint8_t *codes, const uint8_t *plain,
        const float *factors, size_t n)
{
        m->kernels->encode[CODEC_INT8 - 1][m->shape->number](codes, plain, factors, n);
}

static void decode_row(const struct codec_matrix *m, uint8_t *plain, const uint8_t *codes,
        const float *factors, size_t n)
{
        m->kernels->decode[CODEC_INT8 - 1][m->shape->number](plain, codes, factors, n);
}

/* ---- tokens first: rows of channels ---------------------------------------------------------- */

/* A group's tokens, and channels `first` to `first` + n - 1. */
struct block {
        size_t begin, end; /* tokens */
        size_t first, n;
        uint8_t *maxima; /* of these channels */
};

static uint8_t *plain_row(const struct codec_matrix *m, const struct codec_matrix_data *d,
        const struct block *b, size_t token)
{
        return d->plain + (token * m->shape->n_channels + b->first) * m->bytes;
}

static uint8_t *packed_row(const struct codec_matrix *m, const struct codec_matrix_data *d,
        const struct block *b, size_t token)
{
        return d->codes + token / 2 * m->shape->n_channels + b->first;
}

static int encode_block(const struct codec_matrix *m, const struct codec_matrix_data *d,
        const struct block *b, struct piece *p)
{
        enum codec_number number = m->shape->number;

        memset(b->maxima, 0, b->n * m->bytes);
        for (size_t t = b->begin; t < b->end; t++)
                m->kernels->magnitude[number](b->maxima, plain_row(m, d, b, t), b->n);
        if (!codec_find_factors(m->codec, number, true, b->maxima, b->n, p->factors))
                return -EDOM;
        for (size_t t = b->begin; t < b->end; t += 2) {
                encode_row(m, p->codes, plain_row(m, d, b, t), p->factors, b->n);
                if (t + 1 < b->end)
                        encode_row(m, p->codes + CODEC_TILE, plain_row(m, d, b, t + 1), p->factors,
                                b->n);
                else
                        memset(p->codes + CODEC_TILE, 0, b->n);
                pack_rows(packed_row(m, d, b, t), p->codes, p->codes + CODEC_TILE, b->n);
        }
        return 0;
}

static int decode_block(const struct codec_matrix *m, const struct codec_matrix_data *d,
        const struct block *b, struct piece *p)
{
        if (!codec_find_factors(m->codec, m->shape->number, false, b->maxima, b->n, p->factors))
                return -EBADMSG;
        for (size_t t = b->begin; t < b->end; t += 2) {
                unpack_rows(packed_row(m, d, b, t), p->codes, p->codes + CODEC_TILE, b->n);
                decode_row(m, plain_row(m, d, b, t), p->codes, p->factors, b->n);
                if (t + 1 < b->end)
                        decode_row(m, plain_row(m, d, b, t + 1), p->codes + CODEC_TILE, p->factors,
                                b->n);
        }
        return 0;
}

typedef int (*block_fn)(const struct codec_matrix *m, const struct codec_matrix_data *d,
        const struct block *b, struct piece *p);

static int each_block(
        const struct codec_matrix *m, const struct codec_matrix_data *d, block_fn code_block)
{
        size_t n_tokens = m->shape->n_tokens, n_channels = m->shape->n_channels;
        __attribute__((uninitialized)) struct piece p;
        int r = 0;

        for (size_t group = 0; group < codec_n_groups(m->shape) && r == 0; group++)
                for (size_t first = 0; first < n_channels && r == 0; first += CODEC_TILE) {
                        size_t begin = group * CODEC_GROUP_TOKENS;
                        const struct block b = {.begin = begin,
                                .end = MIN(begin + CODEC_GROUP_TOKENS, n_tokens),
                                .first = first,
                                .n = MIN(n_channels - first, (size_t)CODEC_TILE),
                                .maxima = d->maxima + (group * n_channels + first) * m->bytes};

                        r = code_block(m, d, &b, &p);
                }
        return r;
}

/* ---- channels first: groups that lie one behind the other ------------------------------------ */

/* Numbers without gaps between groups, from an even one on. All groups have `group` numbers; the
 * last may have fewer. */
struct run {
        uint8_t *plain, *maxima, *codes;
        size_t n, group;
};

static size_t run_groups(const struct run *w)
{
        return (w->n + w->group - 1) / w->group;
}

static int encode_run(const struct codec_matrix *m, const struct run *w, struct piece *p)
{
        enum codec_number number = m->shape->number;
        size_t n_whole = w->n / w->group, rest = w->n % w->group, n_groups = run_groups(w);
        uint8_t *codes = p->codes;

        m->kernels->greatest[number](w->maxima, w->plain, n_whole, w->group);
        if (rest > 0)
                m->kernels->greatest[number](w->maxima + n_whole * m->bytes,
                        w->plain + n_whole * w->group * m->bytes, 1, rest);
        if (!codec_find_factors(m->codec, number, true, w->maxima, n_groups, p->factors))
                return -EDOM;
        codec_spread_factors(p->factors, n_groups, w->group, p->spread);
        codes[w->n] = 0;
        encode_row(m, codes, w->plain, p->spread, w->n);
        pack_neighbours(w->codes, codes, (w->n + 1) / 2);
        return 0;
}

static int decode_run(const struct codec_matrix *m, const struct run *w, struct piece *p)
{
        uint8_t *codes = p->codes;
        size_t n_groups = run_groups(w);

        if (!codec_find_factors(m->codec, m->shape->number, false, w->maxima, n_groups, p->factors))
                return -EBADMSG;
        codec_spread_factors(p->factors, n_groups, w->group, p->spread);
        unpack_neighbours(w->codes, codes, (w->n + 1) / 2);
        decode_row(m, w->plain, codes, p->spread, w->n);
        return 0;
}

typedef int (*run_fn)(const struct codec_matrix *m, const struct run *w, struct piece *p);

/* Codes `whole` in pieces. */
static int each_piece(
        const struct codec_matrix *m, const struct run *whole, run_fn code_run, struct piece *p)
{
        size_t at_once = CODEC_TILE / whole->group * whole->group;
        int r = 0;

        for (size_t at = 0; at < whole->n && r == 0; at += at_once) {
                const struct run w = {.plain = whole->plain + at * m->bytes,
                        .maxima = whole->maxima + at / whole->group * m->bytes,
                        .codes = whole->codes + at / 2,
                        .n = MIN(whole->n - at, at_once),
                        .group = whole->group};

                r = code_run(m, &w, p);
        }
        return r;
}

/* Codes the matrix as one run if channels are whole groups and whole bytes of codes, else each
 * channel as a run. */
static int each_run(
        const struct codec_matrix *m, const struct codec_matrix_data *d, run_fn code_run)
{
        size_t n_tokens = m->shape->n_tokens, n_channels = m->shape->n_channels;
        size_t group = MIN(n_tokens, (size_t)CODEC_GROUP_TOKENS);
        bool is_even = n_tokens % 2 == 0 && n_tokens % group == 0;
        size_t n_runs = is_even ? 1 : n_channels;
        __attribute__((uninitialized)) struct piece p;
        struct run w = {.plain = d->plain,
                .maxima = d->maxima,
                .codes = d->codes,
                .n = is_even ? n_channels * n_tokens : n_tokens,
                .group = group};
        int r = 0;

        for (size_t i = 0; i < n_runs && r == 0; i++) {
                r = each_piece(m, &w, code_run, &p);
                w.plain += w.n * m->bytes;
                w.maxima += run_groups(&w) * m->bytes;
                w.codes += (w.n + 1) / 2;
        }
        return r;
}

int codec_encode_int4(const struct codec_matrix *m, const struct codec_matrix_data *d)
{
        return m->shape->channels_first ? each_run(m, d, encode_run)
                                        : each_block(m, d, encode_block);
}

int codec_decode_int4(const struct codec_matrix *m, const struct codec_matrix_data *d)
{
        return m->shape->channels_first ? each_run(m, d, decode_run)
                                        : each_block(m, d, decode_block);
}
