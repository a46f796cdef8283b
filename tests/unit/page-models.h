/* The models of docs/reference/PAGES.md. */
#ifndef KVL_TESTS_PAGE_MODELS_H
#define KVL_TESTS_PAGE_MODELS_H

#include <stdint.h>

/* From the models' published configurations, for one rank; all layers in one plane. */
static const struct page_model {
        const char *name, *dtype;
        uint32_t number_bytes, block_tokens, n_layers, n_kv_heads, head_size;
        uint32_t n_matrices; /* of a layer: K and V; 1: one for both (MLA) */
} page_models[] = {
        {"Llama 3.1 8B", "bf16", 2, 16, 32, 8, 128, 2},
        {"Llama 3.2 3B", "bf16", 2, 16, 28, 8, 128, 2},
        {"Llama 3.1 405B, a rank of 8", "f8e4m3", 1, 16, 126, 1, 128, 2},
        {"Qwen2.5 7B", "bf16", 2, 16, 28, 4, 128, 2},
        {"Qwen2.5 14B", "bf16", 2, 16, 48, 8, 128, 2},
        {"Qwen3 235B A22B, a rank of 4", "bf16", 2, 16, 94, 1, 128, 2},
        {"Gemma 2 9B", "bf16", 2, 16, 42, 8, 256, 2},
        {"Gemma 3 27B", "bf16", 2, 16, 62, 16, 128, 2},
        {"Phi-3 mini", "bf16", 2, 16, 32, 32, 96, 2},
        {"Phi-4", "bf16", 2, 16, 40, 10, 128, 2},
        {"gpt-oss 120B", "bf16", 2, 16, 36, 8, 64, 2},
        {"DeepSeek V3 (MLA)", "bf16", 2, 64, 61, 1, 576, 1},
};

static inline uint64_t page_model_bytes(const struct page_model *m)
{
        return (uint64_t)m->n_matrices * m->number_bytes * m->block_tokens * m->n_layers *
               m->n_kv_heads * m->head_size;
}

#endif
