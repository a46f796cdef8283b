/*
 * What it takes to compute tokens of a text again, by where in the text they are. PURE.
 *
 * One token at position n of a text takes
 *
 *   2 P + 4 L H Q n   floating-point operations
 *
 * in a forward pass of a decoder with P parameters, L layers and H query heads of Q elements: each
 * parameter is multiplied and added once, and in each layer every head multiplies the token's query
 * with n keys, and n weights with n values (Chowdhery et al.: PaLM, 2022, appendix B, which has
 * three times as much for forward and backward passes together; the softmax is left out there, and
 * here). With
 *
 *   crossover = P / (2 L H Q)   tokens
 *
 * that is 2 P (1 + n / crossover): at the position `crossover` attention takes as much as all the
 * rest. So costs are in units of a token at the beginning of its text, and the crossover is all
 * that they need to know of a model. The first n tokens cost n + n^2 / (2 crossover), and each of
 * them 1 + n / (2 crossover) in the mean.
 */
#ifndef KVL_POLICY_RECOMPUTE_H
#define KVL_POLICY_RECOMPUTE_H

#include <stdint.h>

/* Of a model with 8.03e9 parameters and 32 layers of 32 heads of 128 (Llama 3 8B).
 * Other models' are between 20,000 and 60,000. */
#define RECOMPUTE_CROSSOVER UINT32_C(30632)

/* In tokens. Far beyond any model: there attention costs nothing in any text. */
#define RECOMPUTE_CROSSOVER_MOST (UINT32_C(1) << 24)

/* The first n tokens of a text. crossover: in tokens; 0: each costs the same. */
double recompute_prefix(uint64_t n_tokens, uint32_t crossover);

/* What a token costs in the mean, in bins of half an octave: bin b begins at 2^(b/2), the last one
 * has all that is more. Not tuned. */
#define RECOMPUTE_BINS UINT32_C(8)

/* The bin of texts of so many tokens. crossover > 0, in tokens. */
uint32_t recompute_bin(uint64_t n_tokens, uint32_t crossover);

/* What a token of such a text costs: the middle of the bin, by ratio. */
double recompute_bin_cost(uint32_t bin);

/* Lengths of texts, as far as costs tell them apart: up to a quarter of the crossover, up to the
 * crossover, up to twice that, more. */
#define RECOMPUTE_LENGTHS 4
uint32_t recompute_length(uint64_t n_tokens, uint32_t crossover);

#endif
