/*
 * Cost of computing tokens of a text again, by their position in it. PURE.
 *
 * In a forward pass of a decoder, one token at position n of a text takes
 *
 *   2 P + 4 L H Q n   floating-point operations
 *
 * with P parameters, L layers and H query heads of Q elements. Each parameter is multiplied and
 * added once. In each layer every head multiplies the token's query with n keys, and n weights with
 * n values. Source: Chowdhery et al.: PaLM, 2022, appendix B. Its figures are three times as large,
 * for forward and backward passes together, and also leave out the softmax. With
 *
 *   crossover = P / (2 L H Q)   tokens
 *
 * that is 2 P (1 + n / crossover): at the position `crossover` attention costs as much as all the
 * rest. Costs are in units of a token at the beginning of its text, so no other property of a model
 * is needed. The first n tokens cost n + n^2 / (2 crossover), and each of them 1 + n / (2
 * crossover) on average.
 */
#ifndef KVL_POLICY_RECOMPUTE_H
#define KVL_POLICY_RECOMPUTE_H

#include <stdint.h>

/* The crossover of a model with 8.03e9 parameters and 32 layers of 32 heads of 128 (Llama 3 8B).
 * Other models have 20,000 to 60,000. */
#define RECOMPUTE_CROSSOVER UINT32_C(30632)

/* Bound, in tokens, far beyond any model: attention is then negligible in any text. */
#define RECOMPUTE_CROSSOVER_MOST (UINT32_C(1) << 24)

/* Cost of the first n tokens of a text. crossover: in tokens; 0: each token costs the same. */
double recompute_prefix(uint64_t n_tokens, uint32_t crossover);

/* Bins of the mean cost of a token, of half an octave: bin b begins at 2^(b/2), the last one is
 * open. Not tuned. */
#define RECOMPUTE_BINS UINT32_C(8)

/* The bin of texts of n tokens. crossover > 0, in tokens. */
uint32_t recompute_bin(uint64_t n_tokens, uint32_t crossover);

/* The cost of a token of such a text: the bin's geometric middle. */
double recompute_bin_cost(uint32_t bin);

/* Classes of text lengths with different costs: up to a quarter of the crossover, up to the
 * crossover, up to twice that, more. */
#define RECOMPUTE_LENGTHS 4
uint32_t recompute_length(uint64_t n_tokens, uint32_t crossover);

#endif
