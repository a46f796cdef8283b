#include "lab/tune/plan.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct plan plan_uniform(uint32_t n_layers, enum keep_rule rule, uint32_t percent, enum codec codec)
{
        struct plan plan = {.n_layers = n_layers, .rule = rule};

        for (uint32_t i = 0; i < n_layers; i++)
                plan.layers[i] = (struct plan_layer){percent, codec};
        return plan;
}

struct plan plan_everything(uint32_t n_layers)
{
        return plan_uniform(n_layers, KEEP_ATTENTION, 100, CODEC_NONE);
}

uint32_t plan_pages(const struct plan_layer *layer, uint32_t n_pages)
{
        uint32_t n = (uint32_t)((uint64_t)n_pages * layer->percent / 100);

        if (n < PLAN_LEAST_PAGES)
                n = PLAN_LEAST_PAGES;
        return n < n_pages ? n : n_pages;
}

struct codec_shape plan_tensor_shape(
        const struct model_shape *shape, uint32_t page_tokens, uint32_t is_v)
{
        return (struct codec_shape){
                .number = CODEC_F16,
                .channels_first = !is_v,
                .n_matrices = shape->n_kv_heads,
                .n_tokens = page_tokens,
                .n_channels = model_head_size(shape),
        };
}

size_t plan_page_bytes(const struct model_shape *shape, uint32_t page_tokens, enum codec codec)
{
        struct codec_shape k = plan_tensor_shape(shape, page_tokens, 0);
        struct codec_shape v = plan_tensor_shape(shape, page_tokens, 1);

        return codec_encoded_bytes(codec, &k) + codec_encoded_bytes(codec, &v);
}

double plan_part(const struct plan *plan, const struct model_shape *shape, uint32_t page_tokens)
{
        double bytes = 0, whole = (double)plan_page_bytes(shape, page_tokens, CODEC_NONE);

        for (uint32_t i = 0; i < plan->n_layers; i++)
                bytes += (double)plan_page_bytes(shape, page_tokens, plan->layers[i].codec) *
                         plan->layers[i].percent / 100;
        return bytes / whole / plan->n_layers;
}

/* ---- as text --------------------------------------------------------------------------------- */

void plan_print(const struct plan *plan, char ret_text[PLAN_TEXT_MAX])
{
        size_t at = 0;

        for (uint32_t i = 0, end; i < plan->n_layers; i = end) {
                const struct plan_layer *layer = &plan->layers[i];
                char range[24];

                for (end = i + 1; end < plan->n_layers; end++)
                        if (plan->layers[end].percent != layer->percent ||
                                plan->layers[end].codec != layer->codec)
                                break;
                if (end == i + 1)
                        snprintf(range, sizeof(range), "%u", i);
                else
                        snprintf(range, sizeof(range), "%u-%u", i, end - 1);
                at += (size_t)snprintf(ret_text + at, PLAN_TEXT_MAX - at, "%s%s:%u:%s",
                        i ? "," : "", range, layer->percent, codec_name(layer->codec));
        }
}

/* A number of at most three digits at *at, which moves behind it. */
static bool read_number(const char **at, uint32_t *ret)
{
        uint32_t value = 0, n = 0;

        for (; isdigit((unsigned char)**at) && n < 3; n++)
                value = value * 10 + (uint32_t)(*(*at)++ - '0');
        *ret = value;
        return n > 0;
}

static bool read_word(const char **at, const char *word)
{
        size_t n = strlen(word);

        if (strncmp(*at, word, n) != 0)
                return false;
        *at += n;
        return true;
}

static bool read_codec(const char **at, enum codec *ret)
{
        for (unsigned i = 0; i < N_CODECS; i++) {
                if (read_word(at, codec_name((enum codec)i))) {
                        *ret = (enum codec)i;
                        return true;
                }
        }
        return false;
}

/* One range, "2-3:50:int8", which begins at layer `first`. */
static const char *read_range(
        const char **at, uint32_t first, uint32_t n_layers, struct plan *plan, uint32_t *ret_end)
{
        struct plan_layer layer;
        uint32_t begin, last;

        if (!read_number(at, &begin))
                return "a range begins with the number of a layer, as in 0-1:100:none";
        last = begin;
        if (read_word(at, "-") && !read_number(at, &last))
                return "a range ends with the number of a layer, as in 0-1:100:none";
        if (begin != first || last < begin)
                return "ranges begin at layer 0 and follow each other without a gap";
        if (last >= n_layers)
                return "the model has fewer layers";
        if (!read_word(at, ":") || !read_number(at, &layer.percent) || layer.percent < 1 ||
                layer.percent > 100)
                return "behind a range stands how much of its pages is kept, :1 to :100 (percent)";
        if (!read_word(at, ":") || !read_codec(at, &layer.codec))
                return "behind the percentage stands a codec, :none, :int8, :fp8 or :int4";
        for (uint32_t i = begin; i <= last; i++)
                plan->layers[i] = layer;
        *ret_end = last + 1;
        return NULL;
}

const char *plan_parse(const char *text, uint32_t n_layers, struct plan *plan)
{
        struct plan read = {.n_layers = n_layers, .rule = plan->rule};
        uint32_t next = 0;

        do {
                const char *wrong = read_range(&text, next, n_layers, &read, &next);

                if (wrong)
                        return wrong;
        } while (read_word(&text, ","));
        if (*text)
                return "ranges are separated by commas";
        if (next != n_layers)
                return "the last range ends before the last layer";
        *plan = read;
        return NULL;
}
