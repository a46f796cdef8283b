/*
 * How pages are encoded in lower tiers: one codec for all layers, or one for each range of layers.
 * A page consists of *parts*: the bytes of one plane whose layers have the same codec.
 *
 * The layout alone says which bytes belong to a layer. A page is a sequence of matrices of
 * [page_tokens] [n_kv_heads * head_size] numbers, plane after plane. Each layer has the same number
 * of matrices, in order. This fits one plane per layer, two planes (K, V) per layer, and one plane
 * with all layers in order. A layout with all layers' K before all layers' V can't have codecs by
 * layer.
 */
#ifndef KVL_CORE_CODECS_H
#define KVL_CORE_CODECS_H

#include <assert.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/codec/codec.h"
#include "daemon/core/state/geometry.h"
#include "policy/tier.h"

struct detail;

/* Allows a range for every five layers of a model with 80. Not tuned. */
#define CODEC_RANGES_MAX 16

/* Extends from first_layer to the layer before the next range, or to the last layer. */
struct codec_range {
        uint32_t first_layer;
        uint32_t codec; /* enum codec */
};

/* The first range begins at layer 0; neighbours have different codecs. n 0: all layers are stored
 * plain; a single range of CODEC_NONE doesn't occur. Records store this struct. */
struct codec_layers {
        uint32_t n;
        struct codec_range at[CODEC_RANGES_MAX];
};
static_assert(sizeof(struct codec_layers) == 4 + 8 * CODEC_RANGES_MAX, "layout");

/* Returns ranges that give all layers this codec. */
struct codec_layers codec_layers_all(enum codec codec);

/* Parses a codec's name for all layers ("int4"), or ranges of layers
 * ("0-7:none,8-23:int8,24-:int4"). Ranges are in order, without a gap, from layer 0 to the last.
 * The last range may omit its end ("24-"); a range of one layer may be a number ("5:int8"). Returns
 * 0, or -EINVAL with the sentence (*ret_layers unchanged). */
int codec_layers_parse(
        const char *text, uint32_t n_layers, struct codec_layers *ret_layers, struct detail *d);

#define CODEC_OPTION_MAX 255 /* bytes of such a text in a tenant's option; not tuned */

/* Checks such a text for layouts of any size. Returns 0, or -EINVAL with the sentence if no number
 * of layers makes it valid. */
int codec_layers_check(const char *text, struct detail *d);

/* Writes what codec_layers_parse() reads, with the last layer's number. Returns buf. */
#define CODEC_LAYERS_TEXT_MAX (CODEC_RANGES_MAX * 28 + 1)
char *codec_layers_format(
        const struct codec_layers *l, uint32_t n_layers, char buf[CODEC_LAYERS_TEXT_MAX]);

bool codec_layers_equal(const struct codec_layers *a, const struct codec_layers *b);

/* Returns one number for the ranges: an enum codec, or CODEC_BY_LAYER. Records store both. */
#define CODEC_BY_LAYER 255
uint32_t codec_layers_number(const struct codec_layers *l);

/* The codecs of a namespace's pages and the resulting sizes. Fixed for its life. */
struct page_codecs {
        struct codec_shape shape;              /* a plane's page; set where a tier has a codec */
        struct codec_layers tiers[TIER_COUNT]; /* the device's are plain */
        uint64_t stored_bytes[TIER_COUNT];     /* of a page, all planes */
};

/* Returns 0, or -EINVAL with the sentence: the layout's numbers can't be encoded
 * (ns_codec_shape()), or pages aren't whole layers and a tier has codecs by layer. `tiers`: as in
 * struct page_codecs. */
int page_codecs_init(struct page_codecs *c, const struct ns_layout *layout,
        const struct codec_layers tiers[TIER_COUNT], struct detail *d);

/* Returns the form in which pages are sent to and received from other hosts: the host tier's if it
 * has a codec (even if the device has no such tier), else the device's. */
static inline enum tier_kind page_travel_form(const struct page_codecs *c)
{
        return c->tiers[TIER_HOST].n > 0 ? TIER_HOST : TIER_DEVICE;
}

/* Returns the bytes of a page in that form, all planes together. */
static inline uint64_t page_travel_bytes(const struct page_codecs *c)
{
        return c->stored_bytes[page_travel_form(c)];
}

/* Contiguous bytes of one plane, stored directly behind the part before. */
struct page_part {
        uint32_t plane, range; /* range: index in struct codec_layers */
        enum codec codec;
        uint64_t plain_at, plain_bytes;   /* offset in the plane */
        uint64_t stored_at, stored_bytes; /* offset in the stored page */
};

/* Advances to the next part; a zeroed part to the first. Returns false at the end. */
bool page_part_next(const struct page_codecs *c, const struct ns_layout *layout,
        enum tier_kind kind, struct page_part *part);

/* Bytes of a page's layers in one range: plain, and as the tier stores them. */
struct range_bytes {
        uint64_t plain, stored;
};

struct range_bytes page_range_bytes(const struct page_codecs *c, const struct ns_layout *layout,
        enum tier_kind kind, uint32_t range);

/* Returns the number of the range's last layer; if n is 0, of the model's last layer. */
uint32_t codec_range_last(const struct codec_layers *l, uint32_t range, uint32_t n_layers);

/* Returns at most NS_MAX_PLANES + CODEC_RANGES_MAX - 1. */
uint32_t page_parts_count(
        const struct page_codecs *c, const struct ns_layout *layout, enum tier_kind kind);

#endif
