/*
 * The attention that pages get, layer by layer, which decides what pages a layer can do without.
 * Attention adds to it (struct model_kv.scores). For each token and head that is a sum over weights
 * computed anyway, and a logarithm for each page.
 *
 *   mass      of a page in a layer: the sum of the weights that its tokens got, of all heads and
 *             tokens since the page began, those of long ago counted less (scores_fade())
 *   entropy   of a layer: how many pages a head looks at. -sum(m ln m) over the masses m that one
 *             token and head gave to each page, in nats; its exponential is the number of pages
 *             that would get as much each
 *
 * Not thread-safe.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct scores;

/* Makes scores of n_layers layers and max_pages pages, all 0. Returns owned, NULL: no memory. */
struct scores *scores_new(uint32_t n_layers, uint32_t max_pages);
void scores_free(struct scores *scores);

/* Adds one token's and head's weights, of positions 0 to n - 1, whose sum is 1. O(n). */
void scores_add(struct scores *scores, uint32_t layer, const float *weights, size_t n,
        uint32_t page_tokens);

/* Multiplies all masses by `factor`, 0..1. Infinities and NaNs stay. */
void scores_fade(struct scores *scores, float factor);

/* Sets all masses to 0 for a new sequence. Entropies stay. */
void scores_clear(struct scores *scores);

/* Sets one mass, for example from sums over layers. */
void scores_set_mass(struct scores *scores, uint32_t layer, uint32_t page, float mass);

float scores_mass(const struct scores *scores, uint32_t layer, uint32_t page);

/* Returns the page below n_pages with the least mass, the oldest of equal ones. Only pages count
 * that is_kept has, at least two, without the newest quarter of them (at least one), which few
 * tokens have seen yet. O(n_pages). */
uint32_t scores_least(
        const struct scores *scores, uint32_t layer, const bool *is_kept, uint32_t n_pages);

/* Returns the mean entropy over all tokens and heads, in nats; 0 without any. */
double scores_entropy(const struct scores *scores, uint32_t layer);
