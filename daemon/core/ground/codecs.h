/*
 * In how many bytes pages lie below the device: a codec for all layers, or one for each range of
 * them. A page consists of *parts*: what one plane has of layers with one codec.
 *
 * Which bytes are a layer's follows from the layout alone: pages are matrices of [page_tokens]
 * [n_kv_heads * head_size] numbers, plane after plane, and layers are equally many of them, in
 * order. So a layout with a plane per layer, one with two (K, V) per layer, and one plane with all
 * layers one behind the other are told apart; a layout that has all layers' K before all layers' V
 * isn't what a codec by layer is for.
 */
#ifndef KVL_CORE_CODECS_H
#define KVL_CORE_CODECS_H

#include <assert.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/codec/codec.h"
#include "daemon/core/ground/geometry.h"
#include "policy/tier.h"

struct detail;

/* Not tuned: a range for every five layers of a model with 80. */
#define CODEC_RANGES_MAX 16

/* From first_layer to the layer before the next range's, or to the last one. */
struct codec_range {
        uint32_t first_layer;
        uint32_t codec; /* enum codec */
};

/* The first range begins at layer 0; neighbours have different codecs. n 0: all layers are as they
 * are; a single range of CODEC_NONE is never there. Lies in records as it is here. */
struct codec_layers {
        uint32_t n;
        struct codec_range at[CODEC_RANGES_MAX];
};
static_assert(sizeof(struct codec_layers) == 4 + 8 * CODEC_RANGES_MAX, "layout");

/* All layers with this one. */
struct codec_layers codec_layers_all(enum codec codec);

/*
 * Reads "int4", or "0-7:none,8-23:int8,24-:int4": a codec's name for all layers, or ranges of
 * layers in order, without a gap, from layer 0 to the last one, whose number the last range may
 * leave out ("24-") and a range of one layer needn't repeat ("5:int8"). 0, or -EINVAL with the
 * sentence; *ret_layers is untouched then.
 */
int codec_layers_parse(
        const char *text, uint32_t n_layers, struct codec_layers *ret_layers, struct detail *d);

#define CODEC_OPTION_MAX 255 /* bytes of such a text as an option of a tenant; not tuned */

/* The same for any layout: 0, or -EINVAL with the sentence, where no number of layers makes it
 * right. */
int codec_layers_check(const char *text, struct detail *d);

/* As codec_layers_parse() reads it, with the last layer's number. Returns buf. */
#define CODEC_LAYERS_TEXT_MAX (CODEC_RANGES_MAX * 28 + 1)
char *codec_layers_format(
        const struct codec_layers *l, uint32_t n_layers, char buf[CODEC_LAYERS_TEXT_MAX]);

bool codec_layers_equal(const struct codec_layers *a, const struct codec_layers *b);

/* What stands for them where there is room for a number: an enum codec, or CODEC_BY_LAYER. Both are
 * stored. */
#define CODEC_BY_LAYER 255
uint32_t codec_layers_number(const struct codec_layers *l);

/* What codecs make of a namespace's pages. Fixed for its life. */
struct page_codecs {
        struct codec_shape shape;              /* of a plane's page, where a tier has a codec */
        struct codec_layers tiers[TIER_COUNT]; /* of the device: as they are */
        uint64_t stored_bytes[TIER_COUNT];     /* a page's, in all planes together */
};

/* 0; -EINVAL with the sentence: the layout's numbers can't be encoded (ns_codec_shape()), or pages
 * aren't whole layers, and a tier has codecs by layer. `tiers` as struct page_codecs has them. */
int page_codecs_init(struct page_codecs *c, const struct ns_layout *layout,
        const struct codec_layers tiers[TIER_COUNT], struct detail *d);

/* In which form pages leave the host, and come from others: as they lie in the host's memory where
 * that has a codec, whether the device has a tier there or not; else as on the device. */
static inline enum tier_kind page_travel_form(const struct page_codecs *c)
{
        return c->tiers[TIER_HOST].n > 0 ? TIER_HOST : TIER_DEVICE;
}

/* A page's then, in all planes together. */
static inline uint64_t page_travel_bytes(const struct page_codecs *c)
{
        return c->stored_bytes[page_travel_form(c)];
}

/* Contiguous bytes of one plane, which lie stored behind those of the part before. */
struct page_part {
        uint32_t plane, range; /* range: of struct codec_layers */
        enum codec codec;
        uint64_t plain_at, plain_bytes;   /* in the plane */
        uint64_t stored_at, stored_bytes; /* in what is stored of the page */
};

/* The part after this one; after one of zeros the first. False: there is none. */
bool page_part_next(const struct page_codecs *c, const struct ns_layout *layout,
        enum tier_kind kind, struct page_part *part);

/* What a page has in the range's layers: plain, and stored in the tier. */
struct range_bytes {
        uint64_t plain, stored;
};

struct range_bytes page_range_bytes(const struct page_codecs *c, const struct ns_layout *layout,
        enum tier_kind kind, uint32_t range);

/* The last layer of a range, by its number; where there is none (n 0), of all layers. */
uint32_t codec_range_last(const struct codec_layers *l, uint32_t range, uint32_t n_layers);

/* At most NS_MAX_PLANES + CODEC_RANGES_MAX - 1. */
uint32_t page_parts_count(
        const struct page_codecs *c, const struct ns_layout *layout, enum tier_kind kind);

#endif
