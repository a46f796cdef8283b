#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "client/examples/decoder/half.h"
#include "client/examples/decoder/kernels.h"
#include "client/examples/decoder/model.h"
#include "client/examples/decoder/trained.h"

/* A page's contents depend on the order of operations: another order needs another number. */
#define ARITHMETIC 2u
#define VOCAB_ROWS ((MODEL_VOCAB + KERNEL_PANEL - 1) / KERNEL_PANEL * KERNEL_PANEL)

struct layer {
        float *norm_attention;
        float *wq, *wk, *wv, *wo;
        float *norm_ffn;
        float *w_gate, *w_up, *w_down;
};

struct scratch {
        float *x;      /* [token][width]: the residual stream */
        float *normed; /* [token][width] */
        float *q;      /* [token][width] */
        float *k, *v;  /* [token][kv width] */
        float *mixed;  /* [token][width]: the result of attention */
        float *gate;   /* [token][ffn width] */
        float *up;
        float *logits; /* [VOCAB_ROWS] */
};

struct model {
        struct model_shape shape;
        uint32_t head_size, kv_width;
        float *embedding; /* [VOCAB_ROWS][width] */
        float *norm_final;
        float *w_logits;
        struct layer *layers;
        struct scratch s;
        float *memory; /* all of the above */
};

static const char *trained_error(const struct model_shape *shape)
{
        struct model_shape trained;

        trained_shape(&trained);
        if (shape->n_layers != trained.n_layers || shape->width != trained.width ||
                shape->n_heads != trained.n_heads || shape->n_kv_heads != trained.n_kv_heads ||
                shape->ffn_width != trained.ffn_width)
                return "the trained weights have another shape";
        return NULL;
}

const char *model_shape_error(const struct model_shape *shape)
{
        if (shape->n_layers < 1 || shape->n_layers > 256)
                return "layers must be 1..256";
        if (shape->width < 8 || shape->width > 16384 || shape->width % KERNEL_PANEL)
                return "width must be a multiple of 8, 8..16384";
        if (shape->ffn_width < 8 || shape->ffn_width > 65536 || shape->ffn_width % KERNEL_PANEL)
                return "ffn width must be a multiple of 8, 8..65536";
        if (shape->n_heads < 1 || shape->n_heads > shape->width || shape->width % shape->n_heads)
                return "heads must divide the width";
        if (model_head_size(shape) % KERNEL_PANEL)
                return "width / heads must be a multiple of 8";
        if (shape->n_kv_heads < 1 || shape->n_kv_heads > shape->n_heads ||
                shape->n_heads % shape->n_kv_heads)
                return "kv heads must divide the heads";
        return shape->seed == MODEL_TRAINED ? trained_error(shape) : NULL;
}

uint64_t model_version(const struct model_shape *shape)
{
        const uint64_t fields[] = {ARITHMETIC, shape->seed, shape->n_layers, shape->width,
                shape->n_heads, shape->n_kv_heads, shape->ffn_width,
                shape->seed == MODEL_TRAINED ? trained_version() : 0};
        uint64_t hash = 0xcbf29ce484222325; /* FNV-1a */

        for (size_t i = 0; i < sizeof(fields); i++)
                hash = (hash ^ ((const unsigned char *)fields)[i]) * 0x100000001b3;
        return hash;
}

/* ---- weights --------------------------------------------------------------------------------- */

/* splitmix64 */
static uint64_t random_next(uint64_t *state)
{
        uint64_t z = *state += 0x9e3779b97f4a7c15;

        z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
        z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
        return z ^ (z >> 31);
}

/* Fills with uniform numbers of variance 1 / n_in, which keeps the magnitude of activations. */
static void fill_weights(uint64_t *state, float *w, size_t n, size_t n_in)
{
        float scale = sqrtf(3.0f / (float)n_in);

        for (size_t i = 0; i < n; i++) {
                float unit = (float)(random_next(state) >> 40) * (1.0f / 16777216.0f);

                w[i] = (2.0f * unit - 1.0f) * scale;
        }
}

static void fill_gain(float *gain, size_t n)
{
        for (size_t i = 0; i < n; i++)
                gain[i] = 1.0f;
}

static void fill_random(struct model *m)
{
        uint64_t state = m->shape.seed;
        size_t width = m->shape.width, ffn = m->shape.ffn_width;

        fill_weights(&state, m->embedding, VOCAB_ROWS * width, 3);
        fill_weights(&state, m->w_logits, VOCAB_ROWS * width, width);
        fill_gain(m->norm_final, width);
        for (uint32_t i = 0; i < m->shape.n_layers; i++) {
                struct layer *l = &m->layers[i];

                fill_gain(l->norm_attention, width);
                fill_gain(l->norm_ffn, width);
                fill_weights(&state, l->wq, width * width, width);
                fill_weights(&state, l->wk, width * m->kv_width, width);
                fill_weights(&state, l->wv, width * m->kv_width, width);
                fill_weights(&state, l->wo, width * width, width);
                fill_weights(&state, l->w_gate, width * ffn, width);
                fill_weights(&state, l->w_up, width * ffn, width);
                fill_weights(&state, l->w_down, ffn * width, ffn);
        }
}

static const uint16_t *widen(const uint16_t *from, size_t n, float *to)
{
        kernel_widen(from, n, to);
        return from + n;
}

/* Turns [in][out] into panels. Missing columns of the last one stay 0. */
static const uint16_t *widen_panels(const uint16_t *from, size_t n_in, size_t n_out, float *to)
{
        for (size_t i = 0; i < n_in; i++)
                for (size_t j = 0; j < n_out; j++)
                        to[(j / KERNEL_PANEL * n_in + i) * KERNEL_PANEL + j % KERNEL_PANEL] =
                                half_value(*from++);
        return from;
}

static void fill_trained(struct model *m)
{
        size_t width = m->shape.width, ffn = m->shape.ffn_width, n;
        const uint16_t *first = trained_values(&n), *from = first;

        from = widen(from, MODEL_VOCAB * width, m->embedding);
        from = widen_panels(from, width, MODEL_VOCAB, m->w_logits);
        from = widen(from, width, m->norm_final);
        for (uint32_t i = 0; i < m->shape.n_layers; i++) {
                struct layer *l = &m->layers[i];

                from = widen(from, width, l->norm_attention);
                from = widen_panels(from, width, width, l->wq);
                from = widen_panels(from, width, m->kv_width, l->wk);
                from = widen_panels(from, width, m->kv_width, l->wv);
                from = widen_panels(from, width, width, l->wo);
                from = widen(from, width, l->norm_ffn);
                from = widen_panels(from, width, ffn, l->w_gate);
                from = widen_panels(from, width, ffn, l->w_up);
                from = widen_panels(from, ffn, width, l->w_down);
        }
        assert((size_t)(from - first) == n);
}

/* ---- memory ---------------------------------------------------------------------------------- */

static void place(float **field, float *base, size_t *used, size_t n)
{
        if (base)
                *field = base + *used;
        *used += (n + 15) / 16 * 16;
}

/* Places all parts from base on, or only counts with NULL. Returns the floats. */
static size_t place_all(struct model *m, float *base, size_t n_chunk)
{
        size_t width = m->shape.width, ffn = m->shape.ffn_width, used = 0;
        struct scratch *s = &m->s;

        place(&m->embedding, base, &used, VOCAB_ROWS * width);
        place(&m->norm_final, base, &used, width);
        place(&m->w_logits, base, &used, VOCAB_ROWS * width);
        for (uint32_t i = 0; i < m->shape.n_layers; i++) {
                struct layer *l = &m->layers[i];

                place(&l->norm_attention, base, &used, width);
                place(&l->wq, base, &used, width * width);
                place(&l->wk, base, &used, width * m->kv_width);
                place(&l->wv, base, &used, width * m->kv_width);
                place(&l->wo, base, &used, width * width);
                place(&l->norm_ffn, base, &used, width);
                place(&l->w_gate, base, &used, width * ffn);
                place(&l->w_up, base, &used, width * ffn);
                place(&l->w_down, base, &used, ffn * width);
        }
        place(&s->x, base, &used, n_chunk * width);
        place(&s->normed, base, &used, n_chunk * width);
        place(&s->q, base, &used, n_chunk * width);
        place(&s->k, base, &used, n_chunk * m->kv_width);
        place(&s->v, base, &used, n_chunk * m->kv_width);
        place(&s->mixed, base, &used, n_chunk * width);
        place(&s->gate, base, &used, n_chunk * ffn);
        place(&s->up, base, &used, n_chunk * ffn);
        place(&s->logits, base, &used, VOCAB_ROWS);
        return used;
}

struct model *model_new(const struct model_shape *shape, uint32_t page_tokens)
{
        struct model *m;

        assert(!model_shape_error(shape));
        m = calloc(1, sizeof(*m));
        if (!m)
                return NULL;
        m->shape = *shape;
        m->head_size = model_head_size(shape);
        m->kv_width = m->head_size * shape->n_kv_heads;
        m->layers = calloc(shape->n_layers, sizeof(*m->layers));
        if (m->layers)
                m->memory = calloc(place_all(m, NULL, page_tokens), sizeof(float));
        if (!m->memory) {
                model_free(m);
                return NULL;
        }
        place_all(m, m->memory, page_tokens);
        if (shape->seed == MODEL_TRAINED)
                fill_trained(m);
        else
                fill_random(m);
        return m;
}

void model_free(struct model *m)
{
        if (!m)
                return;
        free(m->memory);
        free(m->layers);
        free(m);
}

/* ---- forward --------------------------------------------------------------------------------- */

static void norm_rows(const struct model *m, const float *gain, uint32_t n_tokens)
{
        size_t width = m->shape.width;

        for (size_t t = 0; t < n_tokens; t++)
                kernel_rms_norm(m->s.x + t * width, gain, width, m->s.normed + t * width);
}

static void add_rows(float *x, const float *y, size_t n)
{
        for (size_t i = 0; i < n; i++)
                x[i] += y[i];
}

static int attention_block(
        struct model *m, struct model_kv *kv, uint32_t layer, uint32_t n_tokens, uint32_t position)
{
        const struct layer *l = &m->layers[layer];
        struct scratch *s = &m->s;
        size_t width = m->shape.width;
        int r;

        norm_rows(m, l->norm_attention, n_tokens);
        kernel_linear(s->normed, n_tokens, width, l->wq, width, s->q);
        kernel_linear(s->normed, n_tokens, width, l->wk, m->kv_width, s->k);
        kernel_linear(s->normed, n_tokens, width, l->wv, m->kv_width, s->v);

        r = kv->ops->append(kv, layer, position, n_tokens, s->k, s->v);
        if (!r)
                r = kv->ops->attend(kv, layer, position, n_tokens, s->q, s->mixed);
        if (r)
                return r;
        kernel_linear(s->mixed, n_tokens, width, l->wo, width, s->normed);
        add_rows(s->x, s->normed, n_tokens * width);
        return 0;
}

static void ffn_block(struct model *m, uint32_t layer, uint32_t n_tokens)
{
        const struct layer *l = &m->layers[layer];
        struct scratch *s = &m->s;
        size_t width = m->shape.width, ffn = m->shape.ffn_width;

        norm_rows(m, l->norm_ffn, n_tokens);
        kernel_linear(s->normed, n_tokens, width, l->w_gate, ffn, s->gate);
        kernel_linear(s->normed, n_tokens, width, l->w_up, ffn, s->up);
        kernel_swiglu(s->gate, s->up, n_tokens * ffn);
        kernel_linear(s->gate, n_tokens, ffn, l->w_down, width, s->normed);
        add_rows(s->x, s->normed, n_tokens * width);
}

int model_forward(struct model *m, struct model_kv *kv, const uint32_t *tokens, uint32_t n_tokens,
        uint32_t position, float *ret_logits)
{
        struct scratch *s = &m->s;
        size_t width = m->shape.width;

        assert(n_tokens > 0);
        assert(position / kv->page_tokens == (position + n_tokens - 1) / kv->page_tokens);

        for (size_t t = 0; t < n_tokens; t++) {
                assert(tokens[t] < MODEL_VOCAB);
                memcpy(s->x + t * width, m->embedding + tokens[t] * width, width * sizeof(*s->x));
        }
        for (uint32_t i = 0; i < m->shape.n_layers; i++) {
                int r = attention_block(m, kv, i, n_tokens, position);

                if (r)
                        return r;
                ffn_block(m, i, n_tokens);
        }
        if (ret_logits)
                model_logits(m, n_tokens - 1, ret_logits);
        return 0;
}

void model_logits(struct model *m, uint32_t i, float ret_logits[MODEL_VOCAB])
{
        struct scratch *s = &m->s;
        size_t width = m->shape.width;

        kernel_rms_norm(s->x + i * width, m->norm_final, width, s->normed);
        kernel_linear(s->normed, 1, width, m->w_logits, VOCAB_ROWS, s->logits);
        memcpy(ret_logits, s->logits, MODEL_VOCAB * sizeof(*ret_logits));
}
