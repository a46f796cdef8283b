#include "client/examples/decoder/kv-host.h"

#include <assert.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "client/examples/decoder/attention.h"
#include "client/examples/decoder/half.h"
#include "client/examples/decoder/kernels.h"
#include "client/examples/decoder/scores.h"

#define SCORES_BYTES ((size_t)64 << 20) /* limits the tokens of one pass; not tuned */

struct kv_host {
        struct model_kv kv;
        size_t score_row;
        uint32_t score_tokens; /* tokens with scores */
        float *scores;         /* [token][head][score_row] */
        float *wide;           /* K or V of a page and a kv head, as floats */
};

/* Tokens that attend together, all in one page. */
struct span {
        uint32_t layer, position, n_tokens;
        const float *q;
        float *out;
};

static int append(struct model_kv *kv, uint32_t layer, uint32_t position, uint32_t n_tokens,
        const float *k, const float *v)
{
        uint32_t head = model_head_size(&kv->shape), tokens = kv->page_tokens;
        uint32_t width = head * kv->shape.n_kv_heads, first = position % tokens;
        unsigned char *const *row = model_kv_row(kv, position / tokens);
        uint16_t *page_k = (uint16_t *)(void *)row[2 * layer];
        uint16_t *page_v = (uint16_t *)(void *)row[2 * layer + 1];

        for (uint32_t t = 0; t < n_tokens; t++) {
                for (uint32_t e = 0; e < width; e++) {
                        uint32_t at = first + t;

                        page_k[(size_t)e * tokens + at] = half_of(k[(size_t)t * width + e]);
                        page_v[((size_t)(e / head) * tokens + at) * head + e % head] =
                                half_of(v[(size_t)t * width + e]);
                }
        }
        return 0;
}

/* ---- attention ------------------------------------------------------------------------------- */

/* Skips a page that was given up: no token sees it. */
static void pass_over_page(struct kv_host *host, const struct span *s, size_t first, size_t n)
{
        for (size_t i = 0; i < (size_t)s->n_tokens * host->kv.shape.n_heads; i++)
                for (size_t j = 0; j < n; j++)
                        host->scores[i * host->score_row + first + j] = -INFINITY;
}

/* Computes the scores of a page's positions first.. for all tokens, including earlier ones. */
static void score_page(struct kv_host *host, const struct span *s, size_t first, const uint16_t *k)
{
        const struct model_shape *shape = &host->kv.shape;
        size_t head = model_head_size(shape), tokens = host->kv.page_tokens, row = host->score_row;
        size_t end = s->position + s->n_tokens, n = end - first < tokens ? end - first : tokens;

        if (!k) {
                pass_over_page(host, s, first, n);
                return;
        }
        for (size_t h = 0; h < shape->n_heads; h++) {
                size_t group = shape->n_heads / shape->n_kv_heads;
                float *scores = host->scores + h * row + first;

                if (h % group == 0)
                        kernel_widen(k + h / group * head * tokens, head * tokens, host->wide);
                for (size_t t = 0; t < s->n_tokens; t++)
                        memset(scores + t * shape->n_heads * row, 0, n * sizeof(*scores));
                kernel_gemm(s->q + h * head, shape->width, s->n_tokens, host->wide, tokens, head, n,
                        scores, shape->n_heads * row);
        }
}

/* Turns scores into weights, whose sum is 1. */
static void weigh(struct kv_host *host, const struct span *s)
{
        const struct model_shape *shape = &host->kv.shape;
        float scale = 1.0f / sqrtf((float)model_head_size(shape));

        for (size_t t = 0; t < s->n_tokens; t++) {
                for (uint32_t h = 0; h < shape->n_heads; h++) {
                        float *scores = host->scores + (t * shape->n_heads + h) * host->score_row;
                        size_t n = s->position + t + 1;
                        float slope = attention_slope(h, shape->n_heads);
                        float inverse = 1.0f / kernel_exp_sum(scores, n, scale, slope);

                        for (size_t i = 0; i < n; i++)
                                scores[i] *= inverse;
                        if (host->kv.scores)
                                scores_add(
                                        host->kv.scores, s->layer, scores, n, host->kv.page_tokens);
                }
        }
}

/* Adds the contribution of a page's positions first.. to each token that sees them. */
static void mix_page(struct kv_host *host, const struct span *s, size_t first, const uint16_t *v)
{
        const struct model_shape *shape = &host->kv.shape;
        size_t head = model_head_size(shape), tokens = host->kv.page_tokens;
        size_t stride = shape->n_heads * host->score_row, visible = s->position + 1 - first;
        size_t group = shape->n_heads / shape->n_kv_heads;

        if (!v)
                return;
        for (size_t h = 0; h < shape->n_heads; h++) {
                const float *weights = host->scores + h * host->score_row + first;
                float *out = s->out + h * head;

                if (h % group == 0)
                        kernel_widen(v + h / group * head * tokens, head * tokens, host->wide);
                if (visible >= tokens) {
                        kernel_gemm(weights, stride, s->n_tokens, host->wide, head, tokens, head,
                                out, shape->width);
                        continue;
                }
                for (size_t t = 0; t < s->n_tokens; t++)
                        kernel_gemm(weights + t * stride, stride, 1, host->wide, head, visible + t,
                                head, out + t * shape->width, shape->width);
        }
}

typedef void (*page_fn)(
        struct kv_host *host, const struct span *s, size_t first, const uint16_t *tensor);

/* Calls fn for K (is_v 0) or V (1) of all pages that the span sees, in ascending order. */
static int for_each_page(struct kv_host *host, const struct span *s, uint32_t is_v, page_fn fn)
{
        struct model_kv *kv = &host->kv;
        uint32_t n_pages = s->position / kv->page_tokens + 1, n;

        for (uint32_t page = 0; page < n_pages; page += n) {
                unsigned char *const *rows;
                int r = model_kv_take(kv, s->layer, is_v, page, n_pages - page, &rows, &n);

                if (r)
                        return r;
                assert(n > 0 && n <= n_pages - page);
                for (uint32_t i = 0; i < n; i++)
                        fn(host, s, (size_t)(page + i) * kv->page_tokens,
                                (const uint16_t *)(void *)rows[(size_t)i * 2 * kv->shape.n_layers +
                                                               2 * s->layer + is_v]);
        }
        return 0;
}

static int attend_some(struct kv_host *host, const struct span *s)
{
        int r = for_each_page(host, s, 0, score_page);

        if (r)
                return r;
        weigh(host, s);
        memset(s->out, 0, (size_t)s->n_tokens * host->kv.shape.width * sizeof(*s->out));
        return for_each_page(host, s, 1, mix_page);
}

static int attend(struct model_kv *kv, uint32_t layer, uint32_t position, uint32_t n_tokens,
        const float *q, float *out)
{
        struct kv_host *host = (struct kv_host *)kv;
        size_t width = kv->shape.width;
        int r = 0;

        assert(position / kv->page_tokens == (position + n_tokens - 1) / kv->page_tokens);
        for (uint32_t n, i = 0; !r && i < n_tokens; i += n) {
                struct span span = {layer, position + i, 0, q + i * width, out + i * width};

                n = n_tokens - i < host->score_tokens ? n_tokens - i : host->score_tokens;
                span.n_tokens = n;
                r = attend_some(host, &span);
        }
        return r;
}

/* ---- lifetime -------------------------------------------------------------------------------- */

static void kv_host_free(struct model_kv *kv)
{
        struct kv_host *host = (struct kv_host *)kv;

        free(host->wide);
        free(host->scores);
        free(host);
}

static const struct model_kv_ops host_ops = {
        .append = append,
        .attend = attend,
        .free = kv_host_free,
};

int kv_host_new(const struct model_shape *shape, uint32_t page_tokens, uint32_t max_pages,
        unsigned char *const *tensors, struct model_kv **ret_kv)
{
        struct kv_host *host = calloc(1, sizeof(*host));
        size_t row, row_bytes;

        if (!host)
                return -ENOMEM;
        host->kv = (struct model_kv){
                .ops = &host_ops,
                .shape = *shape,
                .page_tokens = page_tokens,
                .max_pages = max_pages,
                .tensors = tensors,
        };
        row = (size_t)max_pages * page_tokens + KERNEL_PANEL - 1;
        host->score_row = row / KERNEL_PANEL * KERNEL_PANEL;
        row_bytes = host->score_row * shape->n_heads * sizeof(float);
        host->score_tokens = page_tokens;
        if (host->score_tokens > SCORES_BYTES / row_bytes)
                host->score_tokens = (uint32_t)(SCORES_BYTES / row_bytes);
        if (host->score_tokens == 0)
                host->score_tokens = 1;
        host->scores = calloc(host->score_tokens, row_bytes);
        host->wide = calloc((size_t)model_head_size(shape) * page_tokens, sizeof(float));
        if (!host->scores || !host->wide) {
                kv_host_free(&host->kv);
                return -ENOMEM;
        }
        *ret_kv = &host->kv;
        return 0;
}
