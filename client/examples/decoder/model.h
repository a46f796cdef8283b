/*
 * A decoder-only transformer: RMSNorm, grouped-query attention with linear biases, SwiGLU. Its
 * weights are the built-in, trained ones (trained.h), or come from a seeded generator. Seeded
 * weights make no sense, but compute in the same way, in any shape. A token's K and V depend on
 * every token before it.
 *
 * The model holds no K and V and doesn't read them. struct model_kv stores them and computes
 * attention over them, on the CPU (kv-host.h) or on a GPU (gpu.h), in the same order of operations.
 * They are in pages with other owners, found through a page table as in any engine with paged
 * attention. Page i of the table has positions [i * page_tokens, (i + 1) * page_tokens).
 *
 *   K of a page: [kv head][element][token]   (scores of a page's tokens are one product)
 *   V of a page: [kv head][token][element]
 *
 * in fp16 (half.h). A context larger than the memory for its pages is attended chunk by chunk
 * (page-source.h).
 *
 * Not thread-safe: the model owns its scratch memory.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "client/examples/decoder/page-source.h"

#define MODEL_BOS     256u /* tokens 0..255 are bytes */
#define MODEL_VOCAB   257u
#define MODEL_TRAINED 0u /* as a seed */

struct model_shape {
        uint64_t seed; /* of the weights; MODEL_TRAINED: the built-in ones */
        uint32_t n_layers;
        uint32_t width; /* elements of a token's vector */
        uint32_t n_heads;
        uint32_t n_kv_heads;
        uint32_t ffn_width;
};

struct model_kv;
struct scores;

/* Both return 0; -EIO: the device failed (only free() makes sense then). attend() also returns the
 * page source's code, and may then be repeated. */
struct model_kv_ops {
        /* Stores K and V of n_tokens tokens, all in the page of `position`: [token][kv
         * head][element]. */
        int (*append)(struct model_kv *kv, uint32_t layer, uint32_t position, uint32_t n_tokens,
                const float *k, const float *v);

        /* Computes attention of each of n_tokens tokens, appended before, over all positions up to
         * its own. q, out: [token][head][element]. */
        int (*attend)(struct model_kv *kv, uint32_t layer, uint32_t position, uint32_t n_tokens,
                const float *q, float *out);

        void (*free)(struct model_kv *kv);
};

/* Embedded first in the implementation's struct. */
struct model_kv {
        const struct model_kv_ops *ops;
        struct model_shape shape;
        uint32_t page_tokens, max_pages;
        /*
         * The page table, [page][2 * layer + (0: K, 1: V)]: addresses on the CPU or the GPU. NULL,
         * for both K and V of a layer: the page was given up there, and no token attends to it;
         * positions don't change. Only on the CPU, and not for the page of the attending tokens.
         * Borrowed; its owner changes it between calls.
         */
        unsigned char *const *tensors;
        /* Attention's source of pages. NULL: the table, with all pages in place. Borrowed; its
         * owner sets it. With a source only pages that are appended to need be in the table. */
        struct page_source *source;
        /* Counts the attention of pages, only on the CPU. NULL: not counted. Borrowed; its owner
         * sets it. */
        struct scores *scores;
};

struct model;

/* Returns the elements of one head. */
static inline uint32_t model_head_size(const struct model_shape *shape)
{
        return shape->width / shape->n_heads;
}

/* Returns a row of the page table. */
static inline unsigned char *const *model_kv_row(const struct model_kv *kv, uint32_t page)
{
        return kv->tensors + (size_t)page * 2 * kv->shape.n_layers;
}

/* Does page_source.take(), or takes from the table. */
static inline int model_kv_take(const struct model_kv *kv, uint32_t layer, uint32_t is_v,
        uint32_t first_page, uint32_t n_pages, unsigned char *const **ret_tensors,
        uint32_t *ret_n_pages)
{
        if (kv->source)
                return kv->source->take(
                        kv->source, layer, is_v, first_page, n_pages, ret_tensors, ret_n_pages);
        *ret_tensors = model_kv_row(kv, first_page);
        *ret_n_pages = n_pages;
        return 0;
}

/* Returns NULL if a model of this shape can be made, else what is wrong with it. */
const char *model_shape_error(const struct model_shape *shape);

/* Returns a number of the weights: equal for equal shapes, seeds (or trained weights) and
 * arithmetic. */
uint64_t model_version(const struct model_shape *shape);

/* Makes a model. page_tokens: most tokens in one call. Returns owned, NULL: no memory. */
struct model *model_new(const struct model_shape *shape, uint32_t page_tokens);
void model_free(struct model *model);

/* Computes n_tokens tokens at positions position.., all in one page, and writes their K and V.
 * Those of their predecessors must be in place. ret_logits: NULL, or MODEL_VOCAB entries: logits
 * after the last token. Returns 0, or a code of struct model_kv_ops. */
int model_forward(struct model *model, struct model_kv *kv, const uint32_t *tokens,
        uint32_t n_tokens, uint32_t position, float *ret_logits);

/* Writes the logits after the i-th token of the last model_forward(), which must have succeeded. */
void model_logits(struct model *model, uint32_t i, float ret_logits[MODEL_VOCAB]);
