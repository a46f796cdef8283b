/* The layout of the namespaces that tests of the core open: one plane, of pages of 16 tokens. */
#ifndef KVL_TESTS_TOY_LAYOUT_H
#define KVL_TESTS_TOY_LAYOUT_H

#include "daemon/core/state/geometry.h"

static inline struct ns_layout toy_layout(uint64_t plane_page_bytes)
{
        return (struct ns_layout){.model = "toy",
                .version = "v1",
                .dtype = 3,
                .n_layers = 2,
                .n_kv_heads = 1,
                .head_size = 8,
                .page_tokens = 16,
                .n_planes = 1,
                .plane_page_bytes = plane_page_bytes,
                .tp_size = 1};
}

#endif
