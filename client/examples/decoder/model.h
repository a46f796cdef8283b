/*
 * A decoder-only transformer: RMSNorm, rotary positions, grouped-query attention, SwiGLU. The
 * weights come from a seeded generator, so it has nothing to say, but it computes like one that
 * does: the K and V of a token depend on every token before it.
 *
 * It holds no K and no V. They live in pages somebody else owns, found through a page table as in
 * any engine with paged attention: the page of positions [i * page_tokens, (i + 1) * page_tokens)
 * has index pages[i], and lies in the tensor of a layer at base + index * page_bytes.
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

/* Borrowed by model_forward(). */
struct model_kv {
        unsigned char **k; /* per layer: where page 0 of its K would lie */
        unsigned char **v;
        uint64_t page_bytes; /* from one page to the next */
        uint32_t page_tokens;
        const uint32_t *pages;
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

/* max_tokens: positions it will ever see; page_tokens: most tokens in one call. Returns owned,
 * NULL: no memory. */
struct model *model_new(const struct model_shape *shape, uint32_t max_tokens, uint32_t page_tokens);
void model_free(struct model *model);

/*
 * Computes n_tokens tokens at positions position.., all in one page, whose predecessors' K and V
 * are in place; writes theirs. ret_logits: NULL, or room for MODEL_VOCAB: logits after the last of
 * them.
 */
void model_forward(struct model *model, const struct model_kv *kv, const uint32_t *tokens,
        uint32_t n_tokens, uint32_t position, float *ret_logits);
