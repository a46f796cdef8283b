#include "lab/tune/search.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "client/examples/decoder/trained.h"

#define UNITS 256 /* of a layer's bytes, in which plans are counted; rounded up */

static const uint32_t shares[SEARCH_N_SHARES] = SEARCH_SHARES;

/* ---- learning -------------------------------------------------------------------------------- */

struct lesson {
        struct text text;
        void (*said)(uint32_t n_done, uint32_t n_all);
        struct search *search;
        uint32_t n_done, n_all;
};

/* Measures the loss of a plan in which one layer differs from keeping everything. */
static int try_layer(struct lesson *l, uint32_t layer, struct plan_layer alone, double *ret_loss)
{
        struct plan plan = plan_everything(l->search->shape.n_layers);
        struct reading reading;
        int r;

        plan.layers[layer] = alone;
        r = reading_measure(&l->text, l->search->page_tokens, &plan, &reading, NULL);
        if (r)
                return r;
        *ret_loss = fmax(0, reading.lost) + reading.lost_error;
        if (l->said)
                l->said(++l->n_done, l->n_all);
        return 0;
}

static int learn_layer(struct lesson *l, uint32_t layer)
{
        struct search *s = l->search;
        int r = 0;

        for (unsigned i = 1; !r && i < SEARCH_N_SHARES; i++)
                r = try_layer(l, layer, (struct plan_layer){shares[i], CODEC_NONE},
                        &s->share_loss[layer][i]);
        for (unsigned c = CODEC_NONE + 1; !r && c < N_CODECS; c++)
                r = try_layer(l, layer, (struct plan_layer){100, (enum codec)c},
                        &s->codec_loss[layer][c]);
        return r;
}

int search_learn(const struct text *text, uint32_t page_tokens,
        void (*said)(uint32_t n_done, uint32_t n_all), struct search *ret)
{
        struct byte_reading *bytes = calloc(text->n_bytes, sizeof(*bytes));
        struct search search = {.page_tokens = page_tokens};
        struct lesson lesson = {.text = *text, .said = said, .search = &search};
        struct plan everything;
        int r = -ENOMEM;

        trained_shape(&search.shape);
        lesson.n_all = search.shape.n_layers * (SEARCH_N_SHARES - 1 + N_CODECS - 1);
        everything = plan_everything(search.shape.n_layers);
        lesson.text.reference = NULL;
        if (bytes)
                r = reading_measure(&lesson.text, page_tokens, &everything, &search.exact, bytes);
        lesson.text.reference = bytes;
        for (uint32_t i = 0; !r && i < search.shape.n_layers; i++)
                r = learn_layer(&lesson, i);
        if (!r)
                *ret = search;
        free(bytes);
        return r;
}

/* ---- choosing -------------------------------------------------------------------------------- */

#define N_OPTIONS (SEARCH_N_SHARES * N_CODECS)

/* An option of one layer: [share][codec]. */
struct option {
        struct plan_layer layer;
        uint32_t units;
        double loss;
};

/* best[l * row + u]: the least loss of the layers before l in at most u units, and the option of
 * the last of them. */
struct cell {
        double loss;
        uint32_t option;
};

struct table {
        const struct search *search;
        uint32_t n_units, row;
        struct cell *cells;
};

static struct option option_of(const struct search *s, uint32_t layer, uint32_t i)
{
        enum codec codec = (enum codec)(i % N_CODECS);
        uint32_t share = i / N_CODECS;
        double part = (double)plan_page_bytes(&s->shape, s->page_tokens, codec) /
                      (double)plan_page_bytes(&s->shape, s->page_tokens, CODEC_NONE);

        return (struct option){
                .layer = {shares[share], codec},
                .units = (uint32_t)ceil(part * shares[share] / 100 * UNITS),
                .loss = s->share_loss[layer][share] + s->codec_loss[layer][codec],
        };
}

static void fill_row(struct table *t, uint32_t layer, bool with_codecs)
{
        struct cell *from = t->cells + (size_t)layer * t->row, *to = from + t->row;

        for (uint32_t u = 0; u < t->row; u++)
                to[u] = (struct cell){.loss = INFINITY};
        for (uint32_t i = 0; i < N_OPTIONS; i++) {
                struct option o = option_of(t->search, layer, i);

                if (!with_codecs && o.layer.codec != CODEC_NONE)
                        continue;
                for (uint32_t u = o.units; u < t->row; u++)
                        if (from[u - o.units].loss + o.loss < to[u].loss)
                                to[u] = (struct cell){from[u - o.units].loss + o.loss, i};
        }
}

static bool table_fill(const struct search *s, bool with_codecs, struct table *t)
{
        uint32_t n_layers = s->shape.n_layers;

        *t = (struct table){.search = s, .n_units = n_layers * UNITS};
        t->row = t->n_units + 1;
        t->cells = calloc((size_t)t->row * (n_layers + 1), sizeof(*t->cells));
        if (!t->cells)
                return false;
        for (uint32_t i = 0; i < n_layers; i++)
                fill_row(t, i, with_codecs);
        return true;
}

/* The least that is lost in `units`. */
static double loss_within(const struct table *t, uint32_t units)
{
        return t->cells[(size_t)t->search->shape.n_layers * t->row + units].loss;
}

static struct plan plan_within(const struct table *t, uint32_t units)
{
        struct plan plan = plan_everything(t->search->shape.n_layers);

        for (uint32_t i = plan.n_layers; i > 0; i--) {
                const struct cell *cell = &t->cells[(size_t)i * t->row + units];
                struct option o = option_of(t->search, i - 1, cell->option);

                plan.layers[i - 1] = o.layer;
                units -= o.units;
        }
        return plan;
}

static bool choose(const struct table *t, uint32_t units, struct plan *ret_plan, double *ret_loss)
{
        double loss = loss_within(t, units);

        if (!isfinite(loss))
                return false;
        *ret_plan = plan_within(t, units);
        if (ret_loss)
                *ret_loss = loss;
        return true;
}

bool search_by_bytes(const struct search *s, bool with_codecs, double part, struct plan *ret_plan,
        double *ret_loss)
{
        struct table t;
        bool found = false;

        if (!table_fill(s, with_codecs, &t))
                return false;
        if (part >= 0 && part <= 1)
                found = choose(&t, (uint32_t)(part * t.n_units), ret_plan, ret_loss);
        free(t.cells);
        return found;
}

bool search_by_loss(const struct search *s, bool with_codecs, double loss, struct plan *ret_plan,
        double *ret_loss)
{
        uint32_t percent = 0;
        struct table t;
        bool found;

        if (!table_fill(s, with_codecs, &t))
                return false;
        while (percent < 100 && loss_within(&t, t.n_units * percent / 100) > loss)
                percent++;
        found = choose(&t, t.n_units * percent / 100, ret_plan, ret_loss);
        free(t.cells);
        return found;
}
