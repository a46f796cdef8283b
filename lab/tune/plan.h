/*
 * A *plan*: the pages that each layer keeps of a text, and their codec. As text, a plan is ranges
 * of layers from 0 on without a gap. "0-1:100:none,2-3:50:int8" keeps all pages of layers 0 and 1
 * as they are, and half of those of layers 2 and 3, which go through int8. Codecs have the names of
 * host_layer_codecs (kvlease.h). No state, any thread.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/codec/codec.h"
#include "client/examples/decoder/model.h"
#include "lab/tune/keep.h"

#define PLAN_LAYERS_MAX 64
#define PLAN_TEXT_MAX                                                              \
        1024 /* bytes, the NUL included; each layer has a range of its own at most \
              */

#define PLAN_LEAST_PAGES 2 /* the first and the newest of a text */

struct plan_layer {
        uint32_t percent; /* of its full pages, 1..100; PLAN_LEAST_PAGES at least */
        enum codec codec; /* of its full pages */
};

struct plan {
        uint32_t n_layers; /* 1..PLAN_LAYERS_MAX */
        enum keep_rule rule;
        struct plan_layer layers[PLAN_LAYERS_MAX];
};

/* All pages of all layers as they are; rule KEEP_ATTENTION. */
struct plan plan_everything(uint32_t n_layers);

/* All layers alike. */
struct plan plan_uniform(
        uint32_t n_layers, enum keep_rule rule, uint32_t percent, enum codec codec);

/* Pages that a layer keeps of n_pages full ones: PLAN_LEAST_PAGES or more, if there are so many. */
uint32_t plan_pages(const struct plan_layer *layer, uint32_t n_pages);

/* K (is_v 0) or V of a page in one layer, as codecs see it: model.h. */
struct codec_shape plan_tensor_shape(
        const struct model_shape *shape, uint32_t page_tokens, uint32_t is_v);

/* Bytes of K and V of a page in one layer, encoded by the codec. */
size_t plan_page_bytes(const struct model_shape *shape, uint32_t page_tokens, enum codec codec);

/* Bytes of a long text under the plan, as a share (0..1) of its bytes with everything kept. */
double plan_part(const struct plan *plan, const struct model_shape *shape, uint32_t page_tokens);

/* Writes the plan as text, with a NUL. Adjacent layers that are alike share a range. */
void plan_print(const struct plan *plan, char ret_text[PLAN_TEXT_MAX]);

/* Reads a plan for a model of n_layers layers; the rule stays. Returns NULL, or the error (static;
 * *plan is unchanged). */
const char *plan_parse(const char *text, uint32_t n_layers, struct plan *plan);
