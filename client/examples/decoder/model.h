/*
 * A decoder-only transformer: RMSNorm, rotary positions, grouped-query attention, SwiGLU. The
 * weights come from a seeded generator, so it has nothing to say, but it computes like one that
 * does: the K and V of a token depend on every token before it.
 *
 * It holds no K and no V, and doesn't look at them: struct model_kv stores them and computes
 * attention over them, on the CPU (kv-host.h) or on a GPU (gpu.h), in the same order of operations.
 * They live in pages somebody else owns, found through a page table as in any engine with paged
 * attention: page i of the table has positions [i * page_tokens, (i + 1) * page_tokens).
 *
 *   K of a page: [kv head][element][token]   (scores of a page's tokens are one product)
 *   V of a page: [kv head][token][element]
 *
 * One thread at a time: the model owns its scratch memory.
 */
#pragma once

#include <stdint.h>

#define MODEL_BOS   256u /* tokens 0..255 are bytes */
#define MODEL_VOCAB 257u

struct model_shape {
        uint64_t seed;
        uint32_t n_layers;
        uint32_t width; /* elements of a token's vector */
        uint32_t n_heads;
        uint32_t n_kv_heads;
        uint32_t ffn_width;
};

struct model_kv;

/* Both: 0, or -EIO, the device doesn't work any more (only free() makes sense then). */
struct model_kv_ops {
        /* K and V of n_tokens tokens, all in the page of `position`: [token][kv head][element]. */
        int (*append)(struct model_kv *kv, uint32_t layer, uint32_t position, uint32_t n_tokens,
                const float *k, const float *v);

        /* Attention of each of n_tokens tokens, appended before, over all positions up to its own.
         * q, out: [token][head][element]. */
        int (*attend)(struct model_kv *kv, uint32_t layer, uint32_t position, uint32_t n_tokens,
                const float *q, float *out);

        void (*free)(struct model_kv *kv);
};

/* Embedded first in the struct of who implements it. */
struct model_kv {
        const struct model_kv_ops *ops;
        struct model_shape shape;
        uint32_t page_tokens, max_pages;
        /*
         * The page table, [page][2 * layer + (0: K, 1: V)]: where it lies, for the CPU or the GPU.
         * Borrowed; its owner changes it between calls.
         */
        unsigned char *const *tensors;
};

struct model;

/* Elements of one head. */
static inline uint32_t model_head_size(const struct model_shape *shape)
{
        return shape->width / shape->n_heads;
}

/* NULL if a model of this shape can be made, else what is wrong with it. */
const char *model_shape_error(const struct model_shape *shape);

/* Names the weights: equal for equal shapes, seeds and arithmetic. */
uint64_t model_version(const struct model_shape *shape);

/* page_tokens: most tokens in one call. Returns owned, NULL: no memory. */
struct model *model_new(const struct model_shape *shape, uint32_t page_tokens);
void model_free(struct model *model);

/*
 * Computes n_tokens tokens at positions position.., all in one page, whose predecessors' K and V
 * are in place; writes theirs. ret_logits: NULL, or room for MODEL_VOCAB: logits after the last of
 * them. 0; -EIO as of struct model_kv_ops.
 */
int model_forward(struct model *model, struct model_kv *kv, const uint32_t *tokens,
        uint32_t n_tokens, uint32_t position, float *ret_logits);
