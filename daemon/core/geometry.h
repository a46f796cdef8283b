/*
 * What a namespace's pages are made of (layout), and how many of them lie in a set and in the whole
 * (geometry). Both lie in the namespace's records (records.h) as they are here.
 */
#ifndef KVL_CORE_GEOMETRY_H
#define KVL_CORE_GEOMETRY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/parse.h"

struct detail;

#define NS_TEXT_MAX       128
#define NS_SALT_MAX       64
#define NS_MAX_PLANES     1024
#define NS_MAX_PER_TENANT 1024 /* namespaces; bounds what names cost the daemon; not tuned */
/* Over all planes. A page costs the daemon about 270 bytes that nobody is charged for (measured by
 * kvlease-bench footprint with evict = pgi, segments included), and 4 for each client that shares:
 * near 7 %. */
#define NS_MIN_PAGE_BYTES 4096
#define NS_MAX_SET_BYTES \
        (UINT64_C(1) << 30) /* a set is granted, zeroed and given back whole; not tuned */

struct ns_layout {
        char model[NS_TEXT_MAX + 1];
        char version[NS_TEXT_MAX + 1];
        uint32_t dtype, n_layers, n_kv_heads, head_size;
        uint32_t page_tokens;      /* 1..1024 */
        uint32_t n_planes;         /* 1..NS_MAX_PLANES */
        uint64_t plane_page_bytes; /* multiple of 64 */
        uint32_t tp_rank, tp_size, layer_group;
        uint8_t salt[NS_SALT_MAX];
        uint32_t salt_len;
};

struct ns_geometry {
        uint64_t extent_bytes; /* of one plane: multiple of the granularity and of plane_page_bytes
                                */
        uint64_t set_bytes;    /* extent_bytes * n_planes */
        uint32_t set_pages;    /* extent_bytes / plane_page_bytes */
        uint32_t n_set_slots;  /* sets the pool's whole budget could hold */
        uint32_t capacity_pages; /* set_pages * n_set_slots; fixed for life */
};

/*
 * Set size for a layout: per-plane extents that are multiples of both the device granularity and
 * the page (so that no page straddles two extents), as near to `wanted_bytes` per set as that
 * allows. 0, or -EINVAL with the sentence why (a set over NS_MAX_SET_BYTES or over the budget).
 */
int ns_geometry_of(const struct ns_layout *layout, uint64_t wanted_bytes,
        uint64_t granularity_bytes, uint64_t budget_bytes, struct ns_geometry *ret_geometry,
        struct detail *d);

/* 0, or -EINVAL naming the field and its range. */
int ns_layout_check(const struct ns_layout *layout, struct detail *d);

/* What two layouts differ in, version aside ("page_tokens"); NULL where they are the same. Static.
 */
const char *ns_layout_difference(const struct ns_layout *a, const struct ns_layout *b);

/* Equal in everything but version. */
bool ns_layout_same(const struct ns_layout *a, const struct ns_layout *b);

/* "model m version v dtype bf16 32 layers ..." for messages. Returns buf. */
#define NS_LAYOUT_TEXT_MAX 512
char *ns_layout_format(const struct ns_layout *l, char *buf, size_t size);

#endif
