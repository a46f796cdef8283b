/*
 * The layout of a namespace's pages, and its geometry: how many pages a set and the namespace have.
 * Both are stored in the namespace's records (records.h).
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

/* The most pages of a namespace: page + 1 has 32 bits in a slot of the index segment (shared.h),
 * and the segment's lines and slots fit an address space. */
#define SHARED_MAX_PAGES (UINT32_C(1) << 30)

#define NS_TEXT_MAX       128
#define NS_SALT_MAX       64
#define NS_FORMAT_MAX     64
#define NS_MAX_PLANES     1024
#define NS_MAX_PER_TENANT 1024 /* namespaces; bounds what names cost the daemon; not tuned */
/* The smallest page, over all planes. A page costs the daemon about 220 bytes that no account is
 * charged for, and 4 for each client that shares it: near 7 %. (kvlease-bench footprint with evict
 * = pgi, segments included.) */
#define NS_MIN_PAGE_BYTES 4096
#define NS_MAX_SET_BYTES \
        (UINT64_C(1) << 30) /* a set is granted, zeroed and freed whole; not tuned */
/* If a stride isn't the page size, it is a multiple of this: CUDA's least alignment of allocations
 * (CUDA C++ Programming Guide, "Size and Alignment Requirement"). */
#define NS_STRIDE_ALIGNMENT 256
/* The gaps between pages take at most 1/25 (4 %) of a plane's memory. */
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
        /* Records store the struct up to here as it is (records.h). */
        uint32_t format_len;
        uint8_t format[NS_FORMAT_MAX]; /* opaque; zeros behind format_len */
};

/* Consecutive planes of a layout. */
struct plane_range {
        uint32_t first, n;
};

static inline struct plane_range layout_all_planes(const struct ns_layout *l)
{
        return (struct plane_range){0, l->n_planes};
}

/* Is plane `i` in the range? */
static inline bool plane_range_has(struct plane_range r, uint32_t i)
{
        return i >= r.first && i - r.first < r.n;
}

/* Returns the bytes of a page that clients see, all planes together. */
static inline uint64_t layout_page_bytes(const struct ns_layout *l)
{
        return l->plane_page_bytes * l->n_planes;
}

/*
 * A set has the same number of pages in each tier. Each tier has a range of sets, one range after
 * the other, so the page number gives the tier. A page that moves to another tier gets another
 * number.
 *
 * On the device a set is one extent for each plane. In host memory a set is one extent in which a
 * page takes stored_bytes, plane after plane. On disk a set has no extent.
 */
struct tier_geometry {
        uint32_t first_set;    /* the device's: 0, or 1 if set 0 is the clients' null set */
        uint32_t n_sets;       /* the pool's whole budget holds so many; 0: no such tier */
        uint64_t set_bytes;    /* charged for a set: n_extents * extent_bytes, except on disk */
        uint64_t extent_bytes; /* multiple of the granularity */
        uint64_t stored_bytes; /* a page's bytes; on the device the stride, gap included */
        uint32_t n_extents;    /* in a set */
        uint32_t codec;        /* lower tiers: codec_layers_number() */
};

/* Fixed for the namespace's life. */
struct ns_geometry {
        uint64_t extent_bytes;   /* the device's, as in its tier_geometry */
        uint64_t set_bytes;      /* the device's, too */
        uint32_t set_pages;      /* extent_bytes / stride */
        uint32_t n_set_slots;    /* in all tiers, the null set included */
        uint32_t capacity_pages; /* set_pages * n_set_slots */
        uint32_t reserved;
        struct tier_geometry tiers[TIER_COUNT]; /* by enum tier_kind */
};
static_assert(sizeof(struct ns_geometry) == 32 + TIER_COUNT * 40, "layout");

/* The device's requirements for sets. */
struct set_source {
        uint64_t wanted_bytes;      /* of a set; a target */
        uint64_t granularity_bytes; /* preferred alignment of extents */
        uint64_t unit_bytes;        /* required alignment of extents; divides granularity_bytes */
        uint64_t budget_bytes;
        uint32_t n_members; /* must divide n_planes; 0: no constraint */
        bool has_null_set;  /* sets of the device begin with number 1 */
};

/*
 * Computes stride and set size for a layout. A plane's extent is a multiple of the device's unit
 * and of the stride: no page straddles two extents, and pages of consecutive sets have equal
 * distances. The stride is the page size if that gives sets of the wanted size, else the smallest
 * larger stride that does. If none does with a loss of at most 4 %, it is the stride with the
 * smallest set. Sets are as near to `wanted_bytes` as the stride allows.
 *
 * stride_bytes: 0, or the required stride. Returns 0, or -EINVAL with the sentence: the set is over
 * NS_MAX_SET_BYTES or the budget, or the stride is below the page, over 4 % above it, or no
 * multiple of 64.
 */
int ns_geometry_of(const struct ns_layout *layout, const struct set_source *source,
        uint64_t stride_bytes, struct ns_geometry *ret_geometry, struct detail *d);

/* Returns the bytes from a page to the next in a plane on the device. */
static inline uint64_t geometry_stride(const struct ns_geometry *g)
{
        return g->tiers[TIER_DEVICE].stored_bytes;
}

/* Is set 0 the null set? It has page numbers and addresses but is never bound: clients map memory
 * of their own at page 0. */
static inline bool geometry_has_null_set(const struct ns_geometry *g)
{
        return g->tiers[TIER_DEVICE].first_set > 0;
}

/* Returns the set slots of the device, a null set included. */
static inline uint32_t geometry_device_slots(const struct ns_geometry *g)
{
        return g->tiers[TIER_DEVICE].first_set + g->tiers[TIER_DEVICE].n_sets;
}

/* A lower tier's requirements for sets. */
struct tier_source {
        uint64_t granularity_bytes; /* of extents; 0: no extents (disk) */
        uint64_t unit_bytes;        /* a page takes a multiple of this */
        uint64_t budget_bytes;
        uint64_t page_bytes; /* stored bytes of a page: struct page_codecs (codecs.h) */
        uint32_t codec;      /* as in struct tier_geometry */
};

/* Adds a tier (host, then disk) to a geometry that has the tiers above it. Adds none if the budget
 * is below one set, or if page numbers would exceed SHARED_MAX_PAGES. */
void ns_geometry_add(enum tier_kind kind, const struct tier_source *source, struct ns_geometry *g);

/* Describes a plane's page for codecs: matrices of [page_tokens][n_kv_heads * head_size] numbers.
 * Returns 0, or -EINVAL with the sentence: dtype isn't f32, f16 or bf16, or plane_page_bytes aren't
 * whole matrices. */
int ns_codec_shape(const struct ns_layout *layout, struct codec_shape *ret_shape, struct detail *d);

/* The tier's page numbers are first .. first + n - 1. */
static inline uint32_t tier_first_page(const struct ns_geometry *g, enum tier_kind kind)
{
        return g->tiers[kind].first_set * g->set_pages;
}

static inline uint32_t tier_n_pages(const struct ns_geometry *g, enum tier_kind kind)
{
        return g->tiers[kind].n_sets * g->set_pages;
}

/* Returns the tier of a set below n_set_slots, or of a page below capacity_pages. */
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

/* Are the sizes consistent, and do they fit an address space? */
bool ns_geometry_holds(const struct ns_geometry *g, const struct ns_layout *layout);

/* Returns 0, or -EINVAL with a sentence that names the field and its range. */
int ns_layout_check(const struct ns_layout *layout, struct detail *d);

/* Returns the first field in which two layouts differ ("page_tokens"), version aside; NULL: none.
 * Static. */
const char *ns_layout_difference(const struct ns_layout *a, const struct ns_layout *b);

/* Writes "model m version v dtype bf16 32 layers ..." for messages. Returns buf. */
#define NS_LAYOUT_TEXT_MAX 656
char *ns_layout_format(const struct ns_layout *l, char *buf, size_t size);

#endif
