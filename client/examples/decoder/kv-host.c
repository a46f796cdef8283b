#include "client/examples/decoder/kv-host.h"

#include <assert.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "client/examples/decoder/kernels.h"

struct kv_host {
        struct model_kv kv;
        size_t score_row;
        float *scores; /* [heads of one kv head][score_row] */
};

static float *tensor_of(
        const struct model_kv *kv, uint32_t layer, uint32_t is_v, size_t first_position)
{
        size_t page = first_position / kv->page_tokens;

        assert(page < kv->max_pages);
        return (float *)(void *)kv->tensors[page * 2 * kv->shape.n_layers + 2 * layer + is_v];
}

static int append(struct model_kv *kv, uint32_t layer, uint32_t position, uint32_t n_tokens,
        const float *k, const float *v)
{
        uint32_t head = model_head_size(&kv->shape), tokens = kv->page_tokens;
        uint32_t width = head * kv->shape.n_kv_heads, first = position % tokens;
        float *page_k = tensor_of(kv, layer, 0, position);
        float *page_v = tensor_of(kv, layer, 1, position);

        for (uint32_t t = 0; t < n_tokens; t++) {
                for (uint32_t e = 0; e < width; e++) {
                        uint32_t at = first + t;

                        page_k[(size_t)e * tokens + at] = k[(size_t)t * width + e];
                        page_v[((size_t)(e / head) * tokens + at) * head + e % head] =
                                v[(size_t)t * width + e];
                }
        }
        return 0;
}

/* Of the heads that share a kv head, for a token that sees n_visible positions. */
static void attend_group(struct kv_host *host, uint32_t layer, uint32_t kv_head, const float *q,
        uint32_t n_visible, float *out)
{
        const struct model_kv *kv = &host->kv;
        size_t head = model_head_size(&kv->shape), tokens = kv->page_tokens, row = host->score_row;
        size_t n_heads = kv->shape.n_heads / kv->shape.n_kv_heads, offset = kv_head * head * tokens;
        float *scores = host->scores, scale = 1.0f / sqrtf((float)head);

        for (size_t at = 0; at < n_visible; at += tokens) {
                size_t n = n_visible - at < tokens ? n_visible - at : tokens;
                const float *k = tensor_of(kv, layer, 0, at) + offset;

                for (size_t h = 0; h < n_heads; h++)
                        memset(scores + h * row + at, 0, n * sizeof(*scores));
                kernel_gemm(q, head, n_heads, k, tokens, head, n, scores + at, row);
        }
        for (size_t h = 0; h < n_heads; h++) {
                float inverse = 1.0f / kernel_exp_sum(scores + h * row, n_visible, scale);

                for (size_t i = 0; i < n_visible; i++)
                        scores[h * row + i] *= inverse;
        }
        memset(out, 0, n_heads * head * sizeof(*out));
        for (size_t at = 0; at < n_visible; at += tokens) {
                size_t n = n_visible - at < tokens ? n_visible - at : tokens;
                const float *v = tensor_of(kv, layer, 1, at) + offset;

                kernel_gemm(scores + at, row, n_heads, v, head, n, head, out, head);
        }
}

static int attend(struct model_kv *kv, uint32_t layer, uint32_t position, uint32_t n_tokens,
        const float *q, float *out)
{
        struct kv_host *host = (struct kv_host *)kv;
        size_t width = kv->shape.width, group = width / kv->shape.n_kv_heads;

        for (uint32_t h = 0; h < kv->shape.n_kv_heads; h++)
                for (uint32_t t = 0; t < n_tokens; t++)
                        attend_group(host, layer, h, q + t * width + h * group, position + t + 1,
                                out + t * width + h * group);
        return 0;
}

static void kv_host_free(struct model_kv *kv)
{
        struct kv_host *host = (struct kv_host *)kv;

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

        if (!host)
                return -ENOMEM;
        host->kv = (struct model_kv){
                .ops = &host_ops,
                .shape = *shape,
                .page_tokens = page_tokens,
                .max_pages = max_pages,
                .tensors = tensors,
        };
        host->score_row =
                ((size_t)max_pages * page_tokens + KERNEL_PANEL - 1) / KERNEL_PANEL * KERNEL_PANEL;
        host->scores = calloc(host->score_row * shape->n_heads / shape->n_kv_heads, sizeof(float));
        if (!host->scores) {
                free(host);
                return -ENOMEM;
        }
        *ret_kv = &host->kv;
        return 0;
}
