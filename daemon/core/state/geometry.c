#include "daemon/core/state/geometry.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "daemon/core/state/codecs.h"
#include "daemon/core/state/detail.h"

/* enum kvl_dtype of <kvlease.h>, for people only: the daemon never looks into a page. */
static const char *dtype_name(uint32_t dtype)
{
        static const char *const names[] = {NULL, "f32", "f16", "bf16", "f8e4m3", "f8e5m2", "i8"};

        return dtype < ARRAY_SIZE(names) && names[dtype] ? names[dtype] : "other";
}

static int text_check(const char *field, const char *text, size_t min, struct detail *d)
{
        size_t len = strnlen(text, NS_TEXT_MAX + 1);

        if (len < min || len > NS_TEXT_MAX)
                return detail_set(d, -EINVAL, "%s is %zu bytes long: %zu to %d are allowed", field,
                        len, min, NS_TEXT_MAX);
        if (!text_is_plain(text))
                return detail_set(d, -EINVAL,
                        "%s has other bytes than UTF-8 without control characters: change it",
                        field);
        return 0;
}

int ns_layout_check(const struct ns_layout *l, struct detail *d)
{
        const struct {
                const char *field;
                uint64_t value, min, max;
        } ranges[] = {
                {"n_layers", l->n_layers, 1, UINT32_MAX},
                {"n_kv_heads", l->n_kv_heads, 1, UINT32_MAX},
                {"head_size", l->head_size, 1, UINT32_MAX},
                {"page_tokens", l->page_tokens, 1, 1024},
                {"n_planes", l->n_planes, 1, NS_MAX_PLANES},
                {"plane_page_bytes", l->plane_page_bytes, 64, NS_MAX_SET_BYTES},
                {"tp_size", l->tp_size, 1, 1024},
                {"salt_len", l->salt_len, 0, NS_SALT_MAX},
                {"format_len", l->format_len, 0, NS_FORMAT_MAX},
        };
        int r;

        r = text_check("model", l->model, 1, d);
        if (r < 0)
                return r;
        r = text_check("version", l->version, 0, d);
        if (r < 0)
                return r;
        for (size_t i = 0; i < ARRAY_SIZE(ranges); i++)
                if (ranges[i].value < ranges[i].min || ranges[i].value > ranges[i].max)
                        return detail_set(d, -EINVAL, "%s is %llu: %llu to %llu are allowed",
                                ranges[i].field, (unsigned long long)ranges[i].value,
                                (unsigned long long)ranges[i].min,
                                (unsigned long long)ranges[i].max);
        if (l->plane_page_bytes % 64 != 0)
                return detail_set(d, -EINVAL,
                        "plane_page_bytes is %llu: a multiple of 64 is needed",
                        (unsigned long long)l->plane_page_bytes);
        if (l->tp_rank >= l->tp_size)
                return detail_set(d, -EINVAL, "tp_rank is %u: 0 to tp_size - 1 (%u) are allowed",
                        l->tp_rank, l->tp_size - 1);
        return 0;
}

const char *ns_layout_difference(const struct ns_layout *a, const struct ns_layout *b)
{
        if (strcmp(a->model, b->model) != 0)
                return "model";
        if (a->dtype != b->dtype)
                return "dtype";
        if (a->n_layers != b->n_layers)
                return "n_layers";
        if (a->n_kv_heads != b->n_kv_heads)
                return "n_kv_heads";
        if (a->head_size != b->head_size)
                return "head_size";
        if (a->page_tokens != b->page_tokens)
                return "page_tokens";
        if (a->n_planes != b->n_planes)
                return "n_planes";
        if (a->plane_page_bytes != b->plane_page_bytes)
                return "plane_page_bytes";
        if (a->tp_rank != b->tp_rank)
                return "tp_rank";
        if (a->tp_size != b->tp_size)
                return "tp_size";
        if (a->layer_group != b->layer_group)
                return "layer_group";
        if (a->salt_len != b->salt_len || memcmp(a->salt, b->salt, a->salt_len) != 0)
                return "salt";
        if (a->format_len != b->format_len || memcmp(a->format, b->format, a->format_len) != 0)
                return "format";
        return NULL;
}

char *ns_layout_format(const struct ns_layout *l, char *buf, size_t size)
{
        char format[FORMAT_OPAQUE_BYTES(NS_FORMAT_MAX)];

        /* Prints the length of the salt only: the salt keeps a cache from being guessed. */
        snprintf(buf, size,
                "model %s version %s dtype %s %u layers %u KV heads of %u, %u tokens a page in %u "
                "planes of %llu bytes, rank %u of %u, layer group %u, salt of %u bytes, format %s",
                l->model, l->version[0] ? l->version : "(none)", dtype_name(l->dtype), l->n_layers,
                l->n_kv_heads, l->head_size, l->page_tokens, l->n_planes,
                (unsigned long long)l->plane_page_bytes, l->tp_rank, l->tp_size, l->layer_group,
                l->salt_len,
                l->format_len > 0 ? format_opaque(l->format, l->format_len, format) : "(none)");
        return buf;
}

static uint64_t greatest_common_divisor(uint64_t a, uint64_t b)
{
        while (b != 0) {
                uint64_t rest = a % b;

                a = b;
                b = rest;
        }
        return a;
}

/* A distance of pages in a plane, and the smallest extent that it allows. */
struct stride {
        uint64_t bytes;
        uint64_t extent_bytes;
};

static bool least_extent(uint64_t stride, uint64_t multiple_of, uint64_t *ret_bytes)
{
        return !__builtin_mul_overflow(
                multiple_of / greatest_common_divisor(multiple_of, stride), stride, ret_bytes);
}

/* Does the stride waste little of a plane's memory? */
static bool loses_little(uint64_t page_bytes, uint64_t stride)
{
        return stride - page_bytes <= stride / NS_MAX_LOSS_DIVISOR;
}

/* Is the page size itself a stride as good as any for so many planes? */
static bool is_dense_fine(
        const struct ns_layout *l, const struct set_source *source, uint64_t limit_bytes)
{
        uint64_t bytes;

        return least_extent(l->plane_page_bytes, source->granularity_bytes, &bytes) &&
               bytes <= MAX(source->wanted_bytes / l->n_planes, source->granularity_bytes) &&
               bytes <= limit_bytes / l->n_planes;
}

/*
 * The page, then multiples of ever larger powers of two. An extent of both a stride and a unit is a
 * unit for each odd factor that the stride has and the unit hasn't: what takes such factors out is
 * to be a multiple of a larger part of the unit. No other strides than these need be looked at: of
 * those with an equally large part the first has the smallest extent.
 */
static bool choose_stride(
        const struct ns_layout *l, const struct set_source *source, struct stride *ret)
{
        uint64_t page = l->plane_page_bytes, stride = page, align = NS_STRIDE_ALIGNMENT, bytes;
        uint64_t enough = MAX(source->wanted_bytes / l->n_planes, source->unit_bytes);
        bool has_one = false;

        while (loses_little(page, stride)) {
                if (least_extent(stride, source->unit_bytes, &bytes) &&
                        (!has_one || bytes < ret->extent_bytes)) {
                        *ret = (struct stride){.bytes = stride, .extent_bytes = bytes};
                        has_one = true;
                }
                if ((has_one && ret->extent_bytes <= enough) || source->unit_bytes % align != 0)
                        break;
                stride = round_up_u64(page, align);
                align *= 2;
        }
        return has_one;
}

/* `asked` 0: any. Returns false if there is none, or if extents would overflow a number. */
static bool stride_of(const struct ns_layout *l, const struct set_source *source, uint64_t asked,
        uint64_t limit_bytes, struct stride *ret)
{
        bool is_dense = asked == 0 || asked == l->plane_page_bytes;

        *ret = (struct stride){.bytes = is_dense ? l->plane_page_bytes : asked};
        if (is_dense && is_dense_fine(l, source, limit_bytes))
                return least_extent(ret->bytes, source->granularity_bytes, &ret->extent_bytes);
        if (asked == 0)
                return choose_stride(l, source, ret);
        return least_extent(asked, source->unit_bytes, &ret->extent_bytes);
}

/* Gives each plane an extent of its share of the wanted bytes, rounded down to `multiple_of`, but
 * at least that. */
static bool set_bytes_of(const struct ns_layout *l, uint64_t wanted_bytes, uint64_t multiple_of,
        uint64_t *ret_extent_bytes, uint64_t *ret_set_bytes)
{
        uint64_t n = MAX(wanted_bytes / l->n_planes / multiple_of, UINT64_C(1));

        *ret_extent_bytes =
                n * multiple_of; /* no overflow: `multiple_of`, or at most wanted_bytes */
        return !__builtin_mul_overflow(*ret_extent_bytes, (uint64_t)l->n_planes, ret_set_bytes);
}

/* More sets than the index can name are of no use. */
static uint32_t n_sets_of(const struct ns_geometry *g, uint64_t budget_bytes, uint64_t set_bytes)
{
        return (uint32_t)MIN(
                budget_bytes / set_bytes, SHARED_MAX_PAGES / g->set_pages - g->n_set_slots);
}

/* Appends the tier's sets to the existing ones. */
static void enter_tier(struct ns_geometry *g, enum tier_kind kind)
{
        g->tiers[kind].first_set = g->n_set_slots;
        g->n_set_slots += g->tiers[kind].n_sets;
        g->capacity_pages = g->set_pages * g->n_set_slots;
        for (unsigned below = kind + 1; below < TIER_COUNT; below++)
                g->tiers[below].first_set = g->n_set_slots;
}

static int check_stride(const struct ns_layout *l, uint64_t stride, struct detail *d)
{
        if (stride == 0 || (stride >= l->plane_page_bytes && stride % 64 == 0 &&
                                   loses_little(l->plane_page_bytes, stride)))
                return 0;
        return detail_set(d, -EINVAL,
                "stride_bytes is %llu: 0 (kvleased chooses), or plane_page_bytes (%llu) and up to 4 %% of the stride more, a multiple of 64",
                (unsigned long long)stride, (unsigned long long)l->plane_page_bytes);
}

static int check_members(
        const struct ns_layout *l, const struct set_source *source, struct detail *d)
{
        if (source->n_members == 0 || l->n_planes % source->n_members == 0)
                return 0;
        return detail_set(d, -EINVAL,
                "n_planes is %u, and the device has %u members, which have equally many planes each: give every rank as many planes",
                l->n_planes, source->n_members);
}

/* `set_bytes` 0: it overflows. */
static int refuse_set_bytes(const struct ns_layout *l, const struct set_source *source,
        uint64_t asked, uint64_t limit_bytes, uint64_t set_bytes, struct detail *d)
{
        char set[FORMAT_BYTES_MAX] = "2^64 B or more", limit[FORMAT_BYTES_MAX];

        if (set_bytes > 0)
                format_bytes(set_bytes, set);
        return detail_set(d, -EINVAL,
                "%s %llu in %u planes needs extent sets of %s, more than the %s %s: an extent is a "
                "multiple of the stride and of the device's %llu bytes; choose a plane_page_bytes with more factors of two, %sor fewer planes",
                asked ? "stride_bytes" : "plane_page_bytes",
                (unsigned long long)(asked ? asked : l->plane_page_bytes), l->n_planes, set,
                limit_bytes == source->budget_bytes ? "device's budget of"
                                                    : "largest set there is,",
                format_bytes(limit_bytes, limit), (unsigned long long)source->unit_bytes,
                asked ? "stride_bytes 0, " : "");
}

int ns_geometry_of(const struct ns_layout *layout, const struct set_source *source,
        uint64_t stride_bytes, struct ns_geometry *ret_geometry, struct detail *d)
{
        uint64_t limit_bytes = MIN(NS_MAX_SET_BYTES, source->budget_bytes), extent_bytes = 0,
                 set_bytes = 0;
        struct stride stride;
        struct ns_geometry g;
        int r = check_stride(layout, stride_bytes, d);

        assert(source->unit_bytes > 0 && source->granularity_bytes % source->unit_bytes == 0);
        assert(layout->plane_page_bytes > 0 && layout->n_planes > 0);

        if (r == 0)
                r = check_members(layout, source, d);
        if (r < 0)
                return r;
        if (!stride_of(layout, source, stride_bytes, limit_bytes, &stride) ||
                !set_bytes_of(layout, MIN(source->wanted_bytes, limit_bytes), stride.extent_bytes,
                        &extent_bytes, &set_bytes))
                set_bytes = 0;
        if (set_bytes == 0 || set_bytes > limit_bytes)
                return refuse_set_bytes(layout, source, stride_bytes, limit_bytes, set_bytes, d);
        g = (struct ns_geometry){
                .extent_bytes = extent_bytes,
                .set_bytes = set_bytes,
                .set_pages = (uint32_t)(extent_bytes / stride.bytes),
                .n_set_slots = source->has_null_set,
        };
        g.tiers[TIER_DEVICE] = (struct tier_geometry){
                .set_bytes = set_bytes,
                .extent_bytes = extent_bytes,
                .stored_bytes = stride.bytes,
                .n_extents = layout->n_planes,
                .n_sets = n_sets_of(&g, source->budget_bytes, set_bytes),
        };
        enter_tier(&g, TIER_DEVICE);
        *ret_geometry = g;
        return 0;
}

void ns_geometry_add(enum tier_kind kind, const struct tier_source *source, struct ns_geometry *g)
{
        struct tier_geometry *t = &g->tiers[kind];

        t->codec = source->codec;
        t->stored_bytes = round_up_u64(source->page_bytes, source->unit_bytes);
        t->set_bytes = g->set_pages * t->stored_bytes;
        if (source->granularity_bytes > 0) {
                t->n_extents = 1;
                t->set_bytes = t->extent_bytes =
                        round_up_u64(t->set_bytes, source->granularity_bytes);
        }
        t->n_sets = n_sets_of(g, source->budget_bytes, t->set_bytes);
        enter_tier(g, kind);
}

static bool tier_holds(const struct ns_geometry *g, enum tier_kind kind)
{
        const struct tier_geometry *t = &g->tiers[kind];

        return (t->codec < N_CODECS || t->codec == CODEC_BY_LAYER) &&
               t->set_bytes <= 2 * NS_MAX_SET_BYTES && t->stored_bytes <= t->set_bytes &&
               t->n_extents <= NS_MAX_PLANES &&
               (t->n_extents == 0 || (t->set_bytes == t->n_extents * t->extent_bytes &&
                                             g->set_pages * t->stored_bytes <= t->extent_bytes)) &&
               (kind == TIER_DISK ? t->n_extents == 0 : t->n_extents > 0 || t->n_sets == 0);
}

bool ns_geometry_holds(const struct ns_geometry *g, const struct ns_layout *l)
{
        const struct tier_geometry *device = &g->tiers[TIER_DEVICE];
        uint64_t n_sets = device->first_set, stride = geometry_stride(g);

        for (enum tier_kind kind = TIER_DEVICE; kind < TIER_COUNT; kind++) {
                if (g->tiers[kind].first_set != n_sets || !tier_holds(g, kind))
                        return false;
                n_sets += g->tiers[kind].n_sets;
        }
        return l->n_planes > 0 && l->n_planes <= NS_MAX_PLANES && l->plane_page_bytes > 0 &&
               stride >= l->plane_page_bytes && g->extent_bytes <= NS_MAX_SET_BYTES &&
               device->first_set <= 1 && device->n_sets > 0 && g->n_set_slots == n_sets &&
               g->set_pages == g->extent_bytes / stride && g->set_pages > 0 &&
               g->extent_bytes % stride == 0 && g->set_bytes == g->extent_bytes * l->n_planes &&
               device->extent_bytes == g->extent_bytes && device->set_bytes == g->set_bytes &&
               device->n_extents == l->n_planes && device->codec == CODEC_NONE &&
               g->capacity_pages <= SHARED_MAX_PAGES &&
               (uint64_t)g->set_pages * g->n_set_slots == g->capacity_pages;
}

static bool number_of(uint32_t dtype, enum codec_number *ret_number)
{
        switch (dtype) { /* enum kvl_dtype of <kvlease.h> */
        case 1:
                *ret_number = CODEC_F32;
                return true;
        case 2:
                *ret_number = CODEC_F16;
                return true;
        case 3:
                *ret_number = CODEC_BF16;
                return true;
        default:
                return false;
        }
}

int ns_codec_shape(const struct ns_layout *l, struct codec_shape *ret_shape, struct detail *d)
{
        uint64_t matrix = (uint64_t)l->n_kv_heads * l->head_size, n_values;
        struct codec_shape s = {.n_tokens = l->page_tokens, .n_matrices = 1};

        if (!number_of(l->dtype, &s.number))
                return detail_set(d, -EINVAL,
                        "dtype %s can't be encoded: a codec takes f32, f16 and bf16",
                        dtype_name(l->dtype));
        s.n_channels = (uint32_t)matrix;
        if (matrix > UINT32_MAX || __builtin_mul_overflow(matrix, l->page_tokens, &n_values) ||
                n_values > UINT32_MAX || l->plane_page_bytes % codec_plain_bytes(&s) != 0)
                return detail_set(d, -EINVAL,
                        "a codec needs planes of whole matrices of page_tokens %u by n_kv_heads %u "
                        "times head_size %u numbers, and plane_page_bytes is %llu",
                        l->page_tokens, l->n_kv_heads, l->head_size,
                        (unsigned long long)l->plane_page_bytes);
        s.n_matrices = (uint32_t)(l->plane_page_bytes / codec_plain_bytes(&s));
        *ret_shape = s;
        return 0;
}
