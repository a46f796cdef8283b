#include "lab/tune/curves.h"

#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>

static const uint32_t budgets[CURVES_N_BUDGETS] = CURVES_BUDGETS;

enum way_kind { ALIKE, BY_LAYER };

static const struct way {
        const char *name;
        enum way_kind kind;
        enum keep_rule rule;
        enum codec codec; /* BY_LAYER: anything but NONE for all codecs */
} ways[CURVES_N_WAYS] = {
        {"last-k", ALIKE, KEEP_LAST, CODEC_NONE},
        {"window", ALIKE, KEEP_WINDOW, CODEC_NONE},
        {"stride", ALIKE, KEEP_STRIDE, CODEC_NONE},
        {"int8", ALIKE, KEEP_WINDOW, CODEC_INT8},
        {"int4", ALIKE, KEEP_WINDOW, CODEC_INT4},
        {"layers by attention", BY_LAYER, KEEP_ATTENTION, CODEC_NONE},
        {"layers and codecs", BY_LAYER, KEEP_ATTENTION, CODEC_INT8},
};

/* The largest share of pages whose bytes are within the budget. */
static uint32_t share_within(const struct search *s, enum codec codec, uint32_t budget)
{
        struct plan plan = plan_uniform(s->shape.n_layers, KEEP_LAST, 100, codec);
        double percent = budget / plan_part(&plan, &s->shape, s->page_tokens);

        return percent < 100 ? (uint32_t)percent : 100;
}

static int plan_of(const struct search *s, const struct way *way, uint32_t budget, struct plan *ret)
{
        if (way->kind == ALIKE) {
                *ret = plan_uniform(s->shape.n_layers, way->rule,
                        share_within(s, way->codec, budget), way->codec);
                return 0;
        }
        return search_by_bytes(s, way->codec != CODEC_NONE, budget / 100.0, ret, NULL) ? 0
                                                                                       : -ENOENT;
}

/* text->reference is known. */
static int measure_ways(const struct search *search, const struct text *text,
        void (*said)(uint32_t n_done, uint32_t n_all), struct curves *ret)
{
        uint32_t n_all = CURVES_N_WAYS * CURVES_N_BUDGETS;
        int r = 0;

        for (uint32_t i = 0; !r && i < n_all; i++) {
                const struct way *way = &ways[i / CURVES_N_BUDGETS];
                struct curve *curve = &ret->ways[i / CURVES_N_BUDGETS];
                struct curve_point *point = &curve->points[i % CURVES_N_BUDGETS];

                curve->name = way->name;
                r = plan_of(search, way, budgets[i % CURVES_N_BUDGETS], &point->plan);
                if (!r)
                        r = reading_measure(
                                text, search->page_tokens, &point->plan, &point->reading, NULL);
                if (!r && said)
                        said(i + 1, n_all);
        }
        return r;
}

int curves_measure(const struct search *search, const struct text *text,
        void (*said)(uint32_t n_done, uint32_t n_all), struct curves *ret)
{
        struct plan everything = plan_everything(search->shape.n_layers);
        struct byte_reading *bytes = calloc(text->n_bytes, sizeof(*bytes));
        struct text known = *text;
        int r = -ENOMEM;

        known.reference = NULL;
        if (bytes)
                r = reading_measure(&known, search->page_tokens, &everything, &ret->exact, bytes);
        known.reference = bytes;
        if (!r)
                r = measure_ways(search, &known, said, ret);
        free(bytes);
        return r;
}

/* Change of perplexity against keeping everything, in percent, and its standard error. */
static double change_of(const struct reading *r)
{
        return 100 * expm1(r->lost);
}

static double change_error(const struct reading *r)
{
        return 100 * r->lost_error * exp(r->lost);
}

static double percent_of_bytes(const struct reading *r)
{
        return 100.0 * (double)r->bytes / (double)r->whole_bytes;
}

/* ---- table ----------------------------------------------------------------------------------- */

static void print_row(const char *name, const struct reading *r, const struct plan *plan, FILE *to)
{
        char text[PLAN_TEXT_MAX];

        plan_print(plan, text);
        fprintf(to, "| %s | %.1f %% | %.4f | %+.2f ± %.2f %% | %.1f %% |", name,
                percent_of_bytes(r), exp(r->nats), change_of(r), change_error(r), 100 * r->agreed);
        if (r->n_copies > 0)
                fprintf(to, " %.1f %% |", 100 * r->copied);
        fprintf(to, " `%s` |\n", text);
}

void curves_print_table(const struct curves *c, FILE *to)
{
        struct plan everything = plan_everything(c->ways[0].points[0].plan.n_layers);

        bool has_copies = c->exact.n_copies > 0;

        fprintf(to,
                "| kept | bytes | perplexity | change | same byte likeliest |%s layers: pages kept (%%) and codec |\n|---|---|---|---|---|---|%s\n",
                has_copies ? " exact copies right |" : "", has_copies ? "---|" : "");
        print_row("everything", &c->exact, &everything, to);
        for (unsigned w = 0; w < CURVES_N_WAYS; w++) {
                for (unsigned b = 0; b < CURVES_N_BUDGETS; b++) {
                        const struct curve_point *p = &c->ways[w].points[b];

                        print_row(c->ways[w].name, &p->reading, &p->plan, to);
                }
        }
}

/* ---- picture --------------------------------------------------------------------------------- */

/* The axes, in pixels: bytes from 20 to 80 percent, and the logarithm of changes. Changes below
 * LEAST, also negative ones, lie on the lower edge. */
#define LEFT      70.0
#define RIGHT     560.0
#define TOP       50.0
#define BOTTOM    370.0
#define X_MIN     20.0
#define X_MAX     80.0
#define LEAST     0.01 /* percent */
#define N_DECADES 5    /* up to 1000 percent */
#define WIDTH     760
#define HEIGHT    420

static const char *const colours[CURVES_N_WAYS] = {
        "#8a94a3", "#5f6b7a", "#b08a3e", "#4f86c6", "#2f5d94", "#3f9a6b", "#c2452d"};

static double place_x(double percent)
{
        return LEFT + (percent - X_MIN) / (X_MAX - X_MIN) * (RIGHT - LEFT);
}

/* Ordinate of a part, 0..1, from the lower to the upper edge. */
static double place_part(double part)
{
        return BOTTOM - part * (BOTTOM - TOP);
}

static double place_change(double percent)
{
        double decades = log10(fmax(percent, LEAST) / LEAST);

        return place_part(fmin(decades, N_DECADES) / N_DECADES);
}

/* The value that the picture shows. */
static double value_of(const struct reading *r)
{
        return r->n_copies > 0 ? 100 * r->copied : change_of(r);
}

static double place_y(const struct reading *r)
{
        return r->n_copies > 0 ? place_part(r->copied) : place_change(change_of(r));
}

static void draw_axes(bool of_copies, FILE *to)
{
        static const char *const changes[N_DECADES + 1] = {
                "0.01 %", "0.1 %", "1 %", "10 %", "100 %", "1000 %"};
        static const char *const parts[N_DECADES + 1] = {
                "0 %", "20 %", "40 %", "60 %", "80 %", "100 %"};

        for (unsigned i = 0; i <= N_DECADES; i++) {
                double y = place_part((double)i / N_DECADES);

                fprintf(to, "<path class=\"g\" d=\"M%.0f %.1fH%.0f\"/>", LEFT, y, RIGHT);
                fprintf(to,
                        "<text class=\"s\" x=\"%.0f\" y=\"%.1f\" text-anchor=\"end\">%s</text>\n",
                        LEFT - 6, i == 0 ? y + 14 : y + 4, of_copies ? parts[i] : changes[i]);
        }
        for (unsigned i = 0; i < CURVES_N_BUDGETS; i++) {
                double x = place_x(budgets[i]);

                fprintf(to, "<path class=\"g\" d=\"M%.1f %.0fV%.0f\"/>", x, TOP, BOTTOM);
                fprintf(to,
                        "<text class=\"s\" x=\"%.1f\" y=\"%.0f\" text-anchor=\"middle\">%u %%</text>\n",
                        x, BOTTOM + 16, budgets[i]);
        }
        fprintf(to,
                "<text class=\"s\" x=\"%.0f\" y=\"%.0f\" text-anchor=\"middle\">bytes of K and V, of what everything takes</text>\n",
                (LEFT + RIGHT) / 2, BOTTOM + 38);
}

static void draw_curve(const struct curves *c, unsigned w, FILE *to)
{
        const struct curve *curve = &c->ways[w];
        double y = TOP + 10 + 22.0 * w;

        fprintf(to, "<polyline fill=\"none\" stroke=\"%s\" stroke-width=\"2\" points=\"",
                colours[w]);
        for (unsigned b = 0; b < CURVES_N_BUDGETS; b++) {
                const struct reading *r = &curve->points[b].reading;

                fprintf(to, "%s%.1f,%.1f", b ? " " : "", place_x(percent_of_bytes(r)), place_y(r));
        }
        fprintf(to, "\"/>\n");
        for (unsigned b = 0; b < CURVES_N_BUDGETS; b++) {
                const struct reading *r = &curve->points[b].reading;

                fprintf(to,
                        "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"4\" fill=\"%s\"><title>%s: %.1f %% of the bytes, %+.2f %%</title></circle>\n",
                        place_x(percent_of_bytes(r)), place_y(r), colours[w], curve->name,
                        percent_of_bytes(r), value_of(r));
        }
        fprintf(to, "<path stroke=\"%s\" stroke-width=\"2\" d=\"M%.0f %.1fh18\"/>", colours[w],
                RIGHT + 14, y);
        fprintf(to, "<text class=\"l\" x=\"%.0f\" y=\"%.1f\">%s</text>\n", RIGHT + 38, y + 4,
                curve->name);
}

void curves_draw(const struct curves *c, FILE *to)
{
        bool of_copies = c->exact.n_copies > 0;

        fprintf(to,
                "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" role=\"img\">\n"
                "<title>%s against bytes</title>\n"
                "<style>text{font-family:system-ui,sans-serif;fill:#16202c}.t{font-size:16px;"
                "font-weight:600}.s{font-size:12px;fill:#4a5a6d}.l{font-size:13px}.g{stroke:#d5dce5;fill:none}</style>\n"
                "<rect width=\"%d\" height=\"%d\" fill=\"#fff\"/>\n"
                "<text class=\"t\" x=\"%.0f\" y=\"26\">%s, by what is kept</text>\n",
                WIDTH, HEIGHT, of_copies ? "Exact copies" : "Perplexity", WIDTH, HEIGHT, LEFT,
                of_copies ? "Bytes of exact copies that are found" : "How much more perplexity");
        draw_axes(of_copies, to);
        for (unsigned w = 0; w < CURVES_N_WAYS; w++)
                draw_curve(c, w, to);
        fprintf(to, "</svg>\n");
}
