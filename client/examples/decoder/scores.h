/*
 * How much attention pages get, layer by layer: what decides which of them a layer can do without.
 * Attention adds to it as it goes (struct model_kv.scores): for each token and head a sum over
 * weights that it has computed anyway, and a logarithm for each page.
 *
 *   mass      of a page in a layer: the sum of the weights that its tokens got, of all heads and
 *             tokens since the page began, those of long ago counted less (scores_fade())
 *   entropy   of a layer: how many pages a head looks at. -sum(m ln m) over the masses m that one
 *             token and head gave to each page, in nats; its exponential is the number of pages
 *             that would get as much each
 *
 * One thread.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

struct scores;

/* Of n_layers layers and max_pages pages, all 0. Returns owned, NULL: no memory. */
struct scores *scores_new(uint32_t n_layers, uint32_t max_pages);
void scores_free(struct scores *scores);

/* One token's and head's weights, of positions 0 to n - 1, whose sum is 1. O(n). */
void scores_add(struct scores *scores, uint32_t layer, const float *weights, size_t n,
        uint32_t page_tokens);

/* Multiplies all masses by `factor`, 0..1. What is infinite, or no number, stays that. */
void scores_fade(struct scores *scores, float factor);

/* Sets all masses to 0, whatever they were: a text begins. Entropies stay. */
void scores_clear(struct scores *scores);

/* Sets one, as of masses that were added up elsewhere. */
void scores_set_mass(struct scores *scores, uint32_t layer, uint32_t page, float mass);

float scores_mass(const struct scores *scores, uint32_t layer, uint32_t page);

/* The mean over all tokens and heads, nats; 0 where there were none. */
double scores_entropy(const struct scores *scores, uint32_t layer);
