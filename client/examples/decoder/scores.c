#include "client/examples/decoder/scores.h"

#include <math.h>
#include <stdlib.h>

#include "client/examples/decoder/kernels.h"

struct layer_scores {
        double entropy; /* the sum over all rows */
        uint64_t n_rows;
};

struct scores {
        uint32_t n_layers, max_pages;
        struct layer_scores *layers;
        float *mass; /* [layer][page] */
};

struct scores *scores_new(uint32_t n_layers, uint32_t max_pages)
{
        struct scores *s = calloc(1, sizeof(*s));

        if (!s)
                return NULL;
        s->n_layers = n_layers;
        s->max_pages = max_pages;
        s->layers = calloc(n_layers, sizeof(*s->layers));
        s->mass = calloc((size_t)n_layers * max_pages, sizeof(*s->mass));
        if (s->layers && s->mass)
                return s;
        scores_free(s);
        return NULL;
}

void scores_free(struct scores *s)
{
        if (!s)
                return;
        free(s->mass);
        free(s->layers);
        free(s);
}

/* Sums in lanes, so that it is vectorized. */
static float sum_of(const float *x, size_t n)
{
        float lanes[KERNEL_PANEL] = {0}, sum = 0;
        size_t i = 0;

        for (; i + KERNEL_PANEL <= n; i += KERNEL_PANEL)
                for (size_t j = 0; j < KERNEL_PANEL; j++)
                        lanes[j] += x[i + j];
        for (; i < n; i++)
                sum += x[i];
        for (size_t j = 0; j < KERNEL_PANEL; j++)
                sum += lanes[j];
        return sum;
}

void scores_add(
        struct scores *s, uint32_t layer, const float *weights, size_t n, uint32_t page_tokens)
{
        float *mass = s->mass + (size_t)layer * s->max_pages, entropy = 0;

        for (size_t first = 0; first < n; first += page_tokens) {
                size_t n_page = n - first < page_tokens ? n - first : page_tokens;
                float m = sum_of(weights + first, n_page);

                mass[first / page_tokens] += m;
                if (m > 0)
                        entropy -= m * logf(m);
        }
        s->layers[layer].entropy += (double)entropy;
        s->layers[layer].n_rows++;
}

void scores_fade(struct scores *s, float factor)
{
        for (size_t i = 0; i < (size_t)s->n_layers * s->max_pages; i++)
                s->mass[i] *= factor;
}

void scores_clear(struct scores *s)
{
        for (size_t i = 0; i < (size_t)s->n_layers * s->max_pages; i++)
                s->mass[i] = 0;
}

void scores_set_mass(struct scores *s, uint32_t layer, uint32_t page, float mass)
{
        s->mass[(size_t)layer * s->max_pages + page] = mass;
}

float scores_mass(const struct scores *s, uint32_t layer, uint32_t page)
{
        return s->mass[(size_t)layer * s->max_pages + page];
}

uint32_t scores_least(const struct scores *s, uint32_t layer, const bool *is_kept, uint32_t n_pages)
{
        uint32_t n_kept = 0, n_old, best = n_pages;
        float least = INFINITY, mass;

        for (uint32_t page = 0; page < n_pages; page++)
                n_kept += is_kept[page];
        n_old = n_kept - (n_kept / 4 ? n_kept / 4 : 1);
        for (uint32_t page = 0; n_old > 0; page++) {
                if (!is_kept[page])
                        continue;
                mass = scores_mass(s, layer, page);
                if (mass < least || best == n_pages)
                        best = page;
                least = fminf(least, mass);
                n_old--;
        }
        return best;
}

double scores_entropy(const struct scores *s, uint32_t layer)
{
        const struct layer_scores *l = &s->layers[layer];

        return l->n_rows ? l->entropy / (double)l->n_rows : 0;
}
