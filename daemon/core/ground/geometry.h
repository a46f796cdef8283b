/*
 * What a namespace's pages are made of (layout), and how many of them lie in a set and in the whole
 * (geometry). Both lie in the namespace's records (records.h).
 */
#ifndef KVL_CORE_GEOMETRY_H
#define KVL_CORE_GEOMETRY_H

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/codec/codec.h"
#include "base/parse.h"
#include "policy/tier.h"

struct detail;

/* Pages of a namespace at most: page + 1 has 32 bits in a slot of the index segment (shared.h), and
 * the segment's lines and slots fit an address space. */
#define SHARED_MAX_PAGES (UINT32_C(1) << 30)

#define NS_TEXT_MAX       128
#define NS_SALT_MAX       64
#define NS_FORMAT_MAX     64
#define NS_MAX_PLANES     1024
#define NS_MAX_PER_TENANT 1024 /* namespaces; bounds what names cost the daemon; not tuned */
/* Over all planes. A page costs the daemon about 220 bytes that nobody is charged for (measured by
 * kvlease-bench footprint with evict = pgi, segments included), and 4 for each client that shares:
 * near 7 %. */
#define NS_MIN_PAGE_BYTES 4096
#define NS_MAX_SET_BYTES \
        (UINT64_C(1) << 30) /* a set is granted, zeroed and given back whole; not tuned */
/* A stride that isn't the page itself is a multiple of it: what every allocation of CUDA is aligned
 * to at least (CUDA C++ Programming Guide, "Size and Alignment Requirement"). */
#define NS_STRIDE_ALIGNMENT 256
/* Of a plane's memory, at most this part lies between pages: 4 %. */
#define NS_MAX_LOSS_DIVISOR 25

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
        /* Up to here it lies in records as it is here (records.h). */
        uint32_t format_len;
        uint8_t format[NS_FORMAT_MAX]; /* opaque; zeros behind format_len */
};

/* Planes of a layout, one after the other. */
struct plane_range {
        uint32_t first, n;
};

static inline struct plane_range layout_all_planes(const struct ns_layout *l)
{
        return (struct plane_range){0, l->n_planes};
}

/* Is plane `i` one of them? */
static inline bool plane_range_has(struct plane_range r, uint32_t i)
{
        return i >= r.first && i - r.first < r.n;
}

/* Bytes that clients see of a page, in all planes together. */
static inline uint64_t layout_page_bytes(const struct ns_layout *l)
{
        return l->plane_page_bytes * l->n_planes;
}

/*
 * Sets have as many pages in each tier, and each tier has a range of them, one behind the other:
 * what a page's number is says where it lies. A page that moves to another tier has another number.
 *
 * On the device a set is an extent for each plane. In host memory it is one extent, in which a page
 * is stored_bytes, its planes one behind the other; on disk it is none.
 */
struct tier_geometry {
        uint32_t first_set; /* the device's: 0, or 1 where set 0 is the clients' own null set */
        uint32_t n_sets;    /* that the pool's whole budget could hold; 0: there is no such tier */
        uint64_t set_bytes; /* that are charged; n_extents * extent_bytes, but for the disk */
        uint64_t extent_bytes; /* multiple of the granularity */
        uint64_t stored_bytes; /* a page takes of an extent: on the device the stride, its plane and
                                  what lies between that and the next one's */
        uint32_t n_extents;    /* of a set */
        uint32_t codec;        /* of what lies below the device: codec_layers_number() */
};

/* Fixed for life. */
struct ns_geometry {
        uint64_t extent_bytes;   /* of the device, as in its tier_geometry */
        uint64_t set_bytes;      /* likewise */
        uint32_t set_pages;      /* extent_bytes / stride */
        uint32_t n_set_slots;    /* of all tiers, and the null set */
        uint32_t capacity_pages; /* set_pages * n_set_slots */
        uint32_t reserved;
        struct tier_geometry tiers[TIER_COUNT]; /* by enum tier_kind */
};
static_assert(sizeof(struct ns_geometry) == 32 + TIER_COUNT * 40, "layout");

/* What sets on a device are made of. */
struct set_source {
        uint64_t wanted_bytes;      /* of a set */
        uint64_t granularity_bytes; /* extents had best be multiples of it */
        uint64_t unit_bytes;        /* they must be multiples of it; it divides granularity_bytes */
        uint64_t budget_bytes;
        uint32_t n_members; /* n_planes is a multiple of it; 0: any is right */
        bool has_null_set;  /* the device's sets begin with number 1 */
};

/*
 * Stride and set size for a layout. Per-plane extents are multiples of what the device needs and of
 * the stride (so that no page straddles two extents, and pages of consecutive sets lie at the same
 * distance): the page where sets of the wanted size come of that, else the smallest stride above it
 * that makes them; where none does with 4 % lost at most, the one that makes the smallest set. Sets
 * are as near to `wanted_bytes` as the stride allows.
 *
 * stride_bytes: 0, or the one it must be. 0, or -EINVAL with the sentence why: a set over
 * NS_MAX_SET_BYTES or over the budget; a stride below the page, of more than 4 % above it, or no
 * multiple of 64.
 */
int ns_geometry_of(const struct ns_layout *layout, const struct set_source *source,
        uint64_t stride_bytes, struct ns_geometry *ret_geometry, struct detail *d);

/* From a page to the next one, in a plane on the device. */
static inline uint64_t geometry_stride(const struct ns_geometry *g)
{
        return g->tiers[TIER_DEVICE].stored_bytes;
}

/*
 * Set 0 is nobody's: its numbers and addresses are there, and it is never bound. Clients put memory
 * of their own at page 0.
 */
static inline bool geometry_has_null_set(const struct ns_geometry *g)
{
        return g->tiers[TIER_DEVICE].first_set > 0;
}

/* As clients count them: what has no tier in front of the device's pages is the device's, too. */
static inline uint32_t geometry_device_slots(const struct ns_geometry *g)
{
        return g->tiers[TIER_DEVICE].first_set + g->tiers[TIER_DEVICE].n_sets;
}

/* What a tier below the device is made of. */
struct tier_source {
        uint64_t granularity_bytes; /* of its extents; 0: it has none (disk) */
        uint64_t unit_bytes;        /* a page takes a multiple of that */
        uint64_t budget_bytes;
        uint64_t page_bytes; /* stored of a page: struct page_codecs (codecs.h) */
        uint32_t codec;      /* as of struct tier_geometry */
};

/* Adds the tier (host, then disk) to a geometry that has those above it. A budget below one set is
 * none: there is no such tier. So it is where page numbers would go beyond SHARED_MAX_PAGES. */
void ns_geometry_add(enum tier_kind kind, const struct tier_source *source, struct ns_geometry *g);

/*
 * What a plane's page is for a codec: matrices of [page_tokens][n_kv_heads * head_size] numbers. 0;
 * -EINVAL with the sentence why: dtype isn't f32, f16 or bf16, or plane_page_bytes aren't whole
 * matrices.
 */
int ns_codec_shape(const struct ns_layout *layout, struct codec_shape *ret_shape, struct detail *d);

/* Page numbers of the tier are first .. first + n - 1. */
static inline uint32_t tier_first_page(const struct ns_geometry *g, enum tier_kind kind)
{
        return g->tiers[kind].first_set * g->set_pages;
}

static inline uint32_t tier_n_pages(const struct ns_geometry *g, enum tier_kind kind)
{
        return g->tiers[kind].n_sets * g->set_pages;
}

/* Of a set or page below n_set_slots, capacity_pages. */
static inline enum tier_kind tier_of_set(const struct ns_geometry *g, uint32_t set)
{
        enum tier_kind kind = TIER_DEVICE;

        while (kind + 1 < TIER_COUNT && set >= g->tiers[kind + 1].first_set)
                kind++;
        return kind;
}

static inline enum tier_kind tier_of_page(const struct ns_geometry *g, uint32_t page)
{
        return tier_of_set(g, page / g->set_pages);
}

/* Do the sizes follow from each other, and fit an address space? */
bool ns_geometry_holds(const struct ns_geometry *g, const struct ns_layout *layout);

/* 0, or -EINVAL naming the field and its range. */
int ns_layout_check(const struct ns_layout *layout, struct detail *d);

/* What two layouts differ in, version aside ("page_tokens"); NULL where they are the same. Static.
 */
const char *ns_layout_difference(const struct ns_layout *a, const struct ns_layout *b);

/* "model m version v dtype bf16 32 layers ..." for messages. Returns buf. */
#define NS_LAYOUT_TEXT_MAX 656
char *ns_layout_format(const struct ns_layout *l, char *buf, size_t size);

#endif
