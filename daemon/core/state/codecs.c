#include "daemon/core/state/codecs.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/macros.h"
#include "base/parse.h"
#include "daemon/core/state/detail.h"

struct codec_layers codec_layers_all(enum codec codec)
{
        struct codec_layers l = {0};

        if (codec != CODEC_NONE) {
                l.n = 1;
                l.at[0].codec = codec;
        }
        return l;
}

bool codec_layers_equal(const struct codec_layers *a, const struct codec_layers *b)
{
        if (a->n != b->n)
                return false;
        for (uint32_t i = 0; i < a->n; i++)
                if (a->at[i].first_layer != b->at[i].first_layer ||
                        a->at[i].codec != b->at[i].codec)
                        return false;
        return true;
}

uint32_t codec_layers_number(const struct codec_layers *l)
{
        if (l->n == 0)
                return CODEC_NONE;
        return l->n == 1 ? l->at[0].codec : CODEC_BY_LAYER;
}

/* ---- text ------------------------------------------------------------------------------------ */

#define RANGE_TEXT_MAX 64

/* A range as text, and its parsed values. */
struct range_text {
        char text[RANGE_TEXT_MAX];
        uint32_t n_layers; /* the layout's */
        uint32_t first, last;
        enum codec codec;
};

static bool find_codec(const char *name, enum codec *ret_codec)
{
        for (unsigned i = 0; i < N_CODECS; i++)
                if (strcmp(name, codec_name((enum codec)i)) == 0) {
                        *ret_codec = (enum codec)i;
                        return true;
                }
        return false;
}

static int refuse_name(const char *name, struct detail *d)
{
        char excerpt[FORMAT_EXCERPT_MAX];

        return detail_set(d, -EINVAL, "codec '%s' isn't known: none, int8, fp8 and int4 are",
                format_excerpt(name, strlen(name), excerpt));
}

static int refuse_range(const char *range, const char *why, struct detail *d)
{
        char excerpt[FORMAT_EXCERPT_MAX];

        return detail_set(d, -EINVAL,
                "'%s' is no range of layers with its codec: %s; ranges are written as in 0-7:none,8-23:int8,24-:int4",
                format_excerpt(range, strlen(range), excerpt), why);
}

static bool read_layer(const char *text, uint32_t *ret_layer)
{
        uint64_t n;

        if (parse_u64(text, &n) < 0 || n >= UINT32_MAX)
                return false;
        *ret_layer = (uint32_t)n;
        return true;
}

/* Parses "8-23:int8", "24-:int4", "5:int8". */
static int read_range(struct range_text *r, struct detail *d)
{
        char copy[RANGE_TEXT_MAX], *name, *last;

        memcpy(copy, r->text, sizeof(copy));
        name = strchr(copy, ':');
        if (!name)
                return refuse_range(r->text, "it has no colon", d);
        *name++ = '\0';
        if (!find_codec(name, &r->codec))
                return refuse_name(name, d);
        last = strchr(copy, '-');
        if (last)
                *last++ = '\0';
        if (!read_layer(copy, &r->first))
                return refuse_range(r->text, "its first layer isn't a number", d);
        if (!last)
                r->last = r->first;
        else if (*last == '\0')
                r->last = r->n_layers - 1;
        else if (!read_layer(last, &r->last))
                return refuse_range(r->text, "its last layer isn't a number", d);
        return 0;
}

/* `next`: the layer at which the range must begin. */
static int check_range(const struct range_text *r, uint32_t next, struct detail *d)
{
        if (r->first != next)
                return detail_set(d, -EINVAL,
                        "codecs by layer: '%s' begins at layer %u, and layer %u is the next one: "
                        "ranges go from layer 0 to the last one, in order and without a gap",
                        r->text, r->first, next);
        if (r->first >= r->n_layers || r->last >= r->n_layers)
                return detail_set(d, -EINVAL,
                        "codecs by layer: '%s' goes beyond the layout's %u layers, which are 0 to "
                        "%u; a last range without its end, as in 24-:int4, goes to the last one",
                        r->text, r->n_layers, r->n_layers - 1);
        if (r->last < r->first)
                return refuse_range(r->text, "its last layer is before its first one", d);
        return 0;
}

static int add_range(struct codec_layers *l, const struct range_text *r, struct detail *d)
{
        if (l->n > 0 && l->at[l->n - 1].codec == (uint32_t)r->codec)
                return 0;
        if (l->n == CODEC_RANGES_MAX)
                return detail_set(d, -EINVAL,
                        "codecs by layer change more than %d times: merge ranges",
                        CODEC_RANGES_MAX - 1);
        l->at[l->n++] = (struct codec_range){.first_layer = r->first, .codec = r->codec};
        return 0;
}

static int read_ranges(
        const char *text, uint32_t n_layers, struct codec_layers *l, struct detail *d)
{
        struct range_text range = {.n_layers = n_layers > 0 ? n_layers : UINT32_MAX};
        uint32_t next = 0;
        int r = 0;

        while (r == 0) {
                size_t len = strcspn(text, ",");

                if (len == 0 || len >= sizeof(range.text))
                        return refuse_range(text, "it is empty, or too long", d);
                memcpy(range.text, text, len);
                range.text[len] = '\0';
                r = read_range(&range, d);
                if (r == 0)
                        r = check_range(&range, next, d);
                if (r == 0)
                        r = add_range(l, &range, d);
                next = range.last + 1;
                text += len;
                if (*text == '\0')
                        break;
                text++;
        }
        if (r == 0 && n_layers > 0 && next != n_layers)
                return detail_set(d, -EINVAL,
                        "codecs by layer end at layer %u of the layout's %u: the last range may leave its end out, as in 24-:int4",
                        next - 1, n_layers);
        return r;
}

/* n_layers 0: any number. */
static int read_layers(
        const char *text, uint32_t n_layers, struct codec_layers *ret_layers, struct detail *d)
{
        struct codec_layers l = {0};
        enum codec codec;
        int r;

        if (find_codec(text, &codec)) {
                *ret_layers = codec_layers_all(codec);
                return 0;
        }
        if (!strchr(text, ':'))
                return refuse_name(text, d);
        r = read_ranges(text, n_layers, &l, d);
        if (r < 0)
                return r;
        *ret_layers = l.n == 1 ? codec_layers_all((enum codec)l.at[0].codec) : l;
        return 0;
}

int codec_layers_parse(
        const char *text, uint32_t n_layers, struct codec_layers *ret_layers, struct detail *d)
{
        if (n_layers == 0)
                return detail_set(d, -EINVAL, "codecs need a layout with n_layers");
        return read_layers(text, n_layers, ret_layers, d);
}

int codec_layers_check(const char *text, struct detail *d)
{
        struct codec_layers l;

        return read_layers(text, 0, &l, d);
}

/* Returns the first layer behind the range. */
static uint32_t range_end(const struct codec_layers *l, uint32_t i, uint32_t n_layers)
{
        return i + 1 < l->n ? l->at[i + 1].first_layer : n_layers;
}

uint32_t codec_range_last(const struct codec_layers *l, uint32_t range, uint32_t n_layers)
{
        return range_end(l, range, n_layers) - 1;
}

char *codec_layers_format(
        const struct codec_layers *l, uint32_t n_layers, char buf[CODEC_LAYERS_TEXT_MAX])
{
        size_t at = 0;

        if (l->n <= 1) {
                snprintf(buf, CODEC_LAYERS_TEXT_MAX, "%s",
                        codec_name((enum codec)codec_layers_number(l)));
                return buf;
        }
        for (uint32_t i = 0; i < l->n; i++) {
                uint32_t first = l->at[i].first_layer, last = codec_range_last(l, i, n_layers);
                const char *name = codec_name((enum codec)l->at[i].codec);
                const char *comma = i > 0 ? "," : "";
                int n = first == last ? snprintf(buf + at, CODEC_LAYERS_TEXT_MAX - at, "%s%u:%s",
                                                comma, first, name)
                                      : snprintf(buf + at, CODEC_LAYERS_TEXT_MAX - at, "%s%u-%u:%s",
                                                comma, first, last, name);

                at += (size_t)n;
        }
        return buf;
}

/* ---- pages ----------------------------------------------------------------------------------- */

static uint64_t matrix_bytes(const struct codec_shape *plane)
{
        return codec_plain_bytes(plane) / plane->n_matrices;
}

static uint64_t n_matrices(const struct page_codecs *c, const struct ns_layout *layout)
{
        return (uint64_t)c->shape.n_matrices * layout->n_planes;
}

/* Are these valid ranges of the layout's layers (struct codec_layers)? */
static bool ranges_hold(const struct codec_layers *l, uint32_t n_layers)
{
        if (l->n > CODEC_RANGES_MAX)
                return false;
        for (uint32_t i = 0; i < l->n; i++)
                if (l->at[i].codec >= N_CODECS || l->at[i].first_layer >= n_layers ||
                        (i == 0 ? l->at[i].first_layer != 0
                                : l->at[i].first_layer <= l->at[i - 1].first_layer ||
                                                l->at[i].codec == l->at[i - 1].codec))
                        return false;
        return l->n != 1 || l->at[0].codec != CODEC_NONE;
}

static int check_layers(const struct page_codecs *c, const struct ns_layout *layout,
        const struct codec_layers *l, struct detail *d)
{
        if (!ranges_hold(l, layout->n_layers))
                return detail_set(
                        d, -EINVAL, "codecs aren't of the layout's %u layers", layout->n_layers);
        if (l->n > 1 && n_matrices(c, layout) % layout->n_layers != 0)
                return detail_set(d, -EINVAL,
                        "codecs by layer need pages in which all layers are equally large: this "
                        "layout's have %llu matrices of page_tokens by n_kv_heads times head_size "
                        "numbers, which is no multiple of n_layers %u; use one codec for all layers",
                        (unsigned long long)n_matrices(c, layout), layout->n_layers);
        return 0;
}

static uint64_t sum_stored_bytes(
        const struct page_codecs *c, const struct ns_layout *layout, enum tier_kind kind)
{
        struct page_part part = {0};
        uint64_t n = 0;

        while (page_part_next(c, layout, kind, &part))
                n += part.stored_bytes;
        return n;
}

int page_codecs_init(struct page_codecs *c, const struct ns_layout *layout,
        const struct codec_layers tiers[TIER_COUNT], struct detail *d)
{
        *c = (struct page_codecs){0};
        for (unsigned kind = TIER_HOST; kind < TIER_COUNT; kind++) {
                int r = 0;

                c->tiers[kind] = tiers[kind];
                if (tiers[kind].n > 0)
                        r = ns_codec_shape(layout, &c->shape, d);
                if (r == 0)
                        r = check_layers(c, layout, &tiers[kind], d);
                if (r < 0)
                        return r;
        }
        for (unsigned kind = 0; kind < TIER_COUNT; kind++)
                c->stored_bytes[kind] = sum_stored_bytes(c, layout, (enum tier_kind)kind);
        return 0;
}

static uint32_t find_range(const struct codec_layers *l, uint64_t layer)
{
        uint32_t i = l->n - 1;

        while (i > 0 && l->at[i].first_layer > layer)
                i--;
        return i;
}

/* Finds how many of the plane's bytes from plain_at on have one codec, and which. */
static void measure_part(const struct page_codecs *c, const struct ns_layout *layout,
        const struct codec_layers *l, struct page_part *part)
{
        uint64_t bytes, at, end, rest;
        uint32_t layer_matrices, range;

        part->range = 0;
        part->codec = l->n > 0 ? (enum codec)l->at[0].codec : CODEC_NONE;
        part->plain_bytes = layout->plane_page_bytes;
        if (l->n <= 1)
                return;
        bytes = matrix_bytes(&c->shape);
        layer_matrices = (uint32_t)(n_matrices(c, layout) / layout->n_layers);
        at = (uint64_t)part->plane * c->shape.n_matrices + part->plain_at / bytes;
        range = find_range(l, at / layer_matrices);
        end = (uint64_t)range_end(l, range, layout->n_layers) * layer_matrices;
        rest = c->shape.n_matrices - part->plain_at / bytes;
        part->range = range;
        part->codec = (enum codec)l->at[range].codec;
        part->plain_bytes = MIN(end - at, rest) * bytes;
}

bool page_part_next(const struct page_codecs *c, const struct ns_layout *layout,
        enum tier_kind kind, struct page_part *part)
{
        part->plain_at += part->plain_bytes;
        part->stored_at += part->stored_bytes;
        if (part->plain_at == layout->plane_page_bytes) {
                part->plane++;
                part->plain_at = 0;
        }
        if (part->plane == layout->n_planes)
                return false;
        measure_part(c, layout, &c->tiers[kind], part);
        part->stored_bytes = part->plain_bytes;
        if (part->codec != CODEC_NONE) {
                struct codec_shape shape = c->shape;

                shape.n_matrices = (uint32_t)(part->plain_bytes / matrix_bytes(&c->shape));
                part->stored_bytes = codec_encoded_bytes(part->codec, &shape);
        }
        return true;
}

uint32_t page_parts_count(
        const struct page_codecs *c, const struct ns_layout *layout, enum tier_kind kind)
{
        struct page_part part = {0};
        uint32_t n = 0;

        while (page_part_next(c, layout, kind, &part))
                n++;
        return n;
}

struct range_bytes page_range_bytes(const struct page_codecs *c, const struct ns_layout *layout,
        enum tier_kind kind, uint32_t range)
{
        struct page_part part = {0};
        struct range_bytes n = {0};

        while (page_part_next(c, layout, kind, &part))
                if (part.range == range) {
                        n.plain += part.plain_bytes;
                        n.stored += part.stored_bytes;
                }
        return n;
}
