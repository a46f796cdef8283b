/*
 * The decoder's kernels: K and V into a page, and attention over pages found by their addresses.
 *
 * Every thread works by itself: nothing is shared, no thread waits for another, and each element of
 * a result is one thread's, computed in one order whatever is computed at the same time. With
 * -fmad=false these are the operations of kv-host.c, bit for bit.
 *
 * Compiled twice: by nvcc, and as C for the tests' driver double, which defines before:
 *   KERNEL(name, type)          the head of a kernel with one parameter `struct type a`
 *   AT(type, address, n)        a pointer to n elements at a device's address
 *   READ(type, address, n)      the same, to be read only
 *   blockIdx, blockDim, threadIdx
 */
#include "client/examples/decoder/attention.h"
#include "client/examples/decoder/fast-exp.h"
#include "client/examples/decoder/half.h"

#ifdef __CUDACC__
#define KERNEL(name, type)     extern "C" __global__ void name(struct type a)
#define AT(type, address, n)   ((void)(n), (type *)(address))
#define READ(type, address, n) ((void)(n), (const type *)(address))
#define DEVICE                 static __device__
#else
#define DEVICE static
#endif

#define THREAD_INDEX ((uint64_t)blockIdx.x * blockDim.x + threadIdx.x)

KERNEL(write_kv, write_kv_launch)
{
        uint64_t width = a.width, i = THREAD_INDEX, token = i / width, element = i % width;
        uint64_t at = a.first + token, head = element / a.head_size, e = element % a.head_size;
        const float *k, *v;
        uint16_t *page_k, *page_v;

        if (token >= a.n_tokens)
                return;
        k = READ(float, a.k, (a.n_tokens * width));
        v = READ(float, a.v, (a.n_tokens * width));
        page_k = AT(uint16_t, a.page_k, (a.page_tokens * width));
        page_v = AT(uint16_t, a.page_v, (a.page_tokens * width));
        page_k[element * a.page_tokens + at] = half_of(k[i]);
        page_v[(head * a.page_tokens + at) * a.head_size + e] = half_of(v[i]);
}

/* K (0) or V (1) of a page, for a query head. */
DEVICE const uint16_t *head_of(
        const struct attention_launch *a, uint64_t page, int is_v, uint64_t head)
{
        uint64_t kv_head = head / (a->n_heads / a->n_kv_heads);
        uint64_t n = (uint64_t)a->head_size * a->page_tokens;
        uint64_t row = a->tensors + page * a->n_tensors * sizeof(uint64_t);
        uint64_t tensor = READ(uint64_t, row, a->n_tensors)[2 * a->layer + is_v];

        return READ(uint16_t, tensor + kv_head * n * sizeof(uint16_t), n);
}

/* The scores of a row: a token and a head. */
DEVICE float *scores_of(const struct attention_launch *a, uint64_t row)
{
        return AT(float, a->scores + row * a->row * sizeof(float), a->row);
}

/* A thread for each token, head and position of the chunk: q * k, and what distance takes away. */
KERNEL(attention_scores, attention_launch)
{
        uint64_t n_positions = a.end - a.first, head = a.head_size, i = THREAD_INDEX;
        uint64_t at = a.first + i % n_positions, row = i / n_positions;
        uint64_t token = row / a.n_heads, visible = a.position + token, stride = a.page_tokens;
        const uint16_t *k;
        const float *q;
        float sum = 0, slope = attention_slope((uint32_t)(row % a.n_heads), a.n_heads);

        if (token >= a.n_tokens || at > visible)
                return;
        k = head_of(&a, at / stride, 0, row % a.n_heads) + at % stride;
        q = READ(float, a.q + row * head * sizeof(float), head);
        for (uint64_t e = 0; e < head; e++)
                sum += q[e] * half_value(k[e * stride]);
        scores_of(&a, row)[at] = sum * a.scale + slope * (float)((int32_t)at - (int32_t)visible);
}

/* A thread for each token and head: the scores become weights, whose sum is 1. */
KERNEL(attention_weights, attention_launch)
{
        uint64_t row = THREAD_INDEX, token = row / a.n_heads, n = a.position + token + 1, i;
        float lanes[ATTENTION_LANES] = {0}, max, sum = 0, inverse;
        float *scores;

        if (token >= a.n_tokens)
                return;
        scores = scores_of(&a, row);
        max = scores[0];
        for (i = 1; i < n; i++)
                max = scores[i] > max ? scores[i] : max;
        for (i = 0; i + ATTENTION_LANES <= n; i += ATTENTION_LANES) {
                for (uint32_t j = 0; j < ATTENTION_LANES; j++) {
                        scores[i + j] = fast_exp(scores[i + j] - max);
                        lanes[j] += scores[i + j];
                }
        }
        for (uint32_t j = 0; j < ATTENTION_LANES; j++) {
                if (i + j < n) {
                        scores[i + j] = fast_exp(scores[i + j] - max);
                        lanes[j] += scores[i + j];
                }
        }
        for (uint32_t j = 0; j < ATTENTION_LANES; j++)
                sum += lanes[j];
        inverse = 1.0f / sum;
        for (i = 0; i < n; i++)
                scores[i] *= inverse;
}

/* A thread for each token, head and element: adds weights * v of the chunk. */
KERNEL(attention_mix, attention_launch)
{
        uint64_t head = a.head_size, i = THREAD_INDEX, e = i % head, row = i / head;
        uint64_t token = row / a.n_heads, n = a.position + token + 1, tokens = a.page_tokens;
        const float *weights;
        float *out, sum;

        if (token >= a.n_tokens)
                return;
        n = n < a.end ? n : a.end;
        weights = scores_of(&a, row);
        out = AT(float, a.out + row * head * sizeof(float), head) + e;
        sum = a.first > 0 ? *out : 0;
        for (uint64_t first = a.first; first < n; first += tokens) {
                const uint16_t *v = head_of(&a, first / tokens, 1, row % a.n_heads) + e;

                for (uint64_t p = 0; p < tokens && first + p < n; p++)
                        sum += weights[first + p] * half_value(v[p * head]);
        }
        *out = sum;
}
