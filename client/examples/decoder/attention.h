/* Arguments of the kernels of attention.cu: each takes one of these structs by value. Addresses are
 * the device's. The layout is the same for nvcc and the host's compiler: wide members first. */
#pragma once

#include <stdint.h>

#ifdef __CUDACC__
#define ATTENTION_INLINE static inline __device__
#else
#define ATTENTION_INLINE static inline
#endif

/* Threads of a block, all kernels, one dimension; not tuned. */
#define ATTENTION_BLOCK 128

/* Lanes of the sum over weights: KERNEL_PANEL, so that it equals kernel_exp_sum()'s. */
#define ATTENTION_LANES 8

/* write_kv: a thread for each token and element. */
struct write_kv_launch {
        uint64_t page_k, page_v; /* K and V of one layer of the page */
        uint64_t k, v;           /* float[n_tokens][width] */
        uint32_t page_tokens, first, n_tokens;
        uint32_t width, head_size; /* of all kv heads; of one head */
};

/* attention_scores, _weights and _mix: attention of n_tokens tokens from `position` on. Scores of
 * all chunks, then weights, then the mix of all chunks; chunks in ascending order. */
struct attention_launch {
        uint64_t tensors; /* uint64_t[page][n_tensors]: addresses, the page table of model.h */
        uint64_t q, out;  /* float[n_tokens][n_heads][head_size] */
        uint64_t scores;  /* float[n_tokens][n_heads][row], row > position + n_tokens - 1 */
        uint64_t row;
        uint32_t n_tensors, layer, page_tokens;
        uint32_t n_tokens, position;
        uint32_t n_heads, n_kv_heads, head_size;
        float scale;
        uint32_t first, end; /* _scores and _mix: positions of this chunk, from a page's first */
};

/* The loss of a head's scores per token of distance: powers of two. It is 1/4 for the first head,
 * which sees the nearest tokens, and 1/2048 for the last, which sees thousands of tokens back. */
ATTENTION_INLINE float attention_slope(uint32_t head, uint32_t n_heads)
{
        return 1.0f / (float)(4u << (n_heads > 1 ? 9 * head / (n_heads - 1) : 9));
}
