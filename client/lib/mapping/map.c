/* The places of a namespace's pages: device, addresses, mappings. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fd.h"
#include "base/macros.h"
#include "client/lib/connection/error.h"
#include "client/lib/mapping/map.h"
#include "client/lib/objects/args.h"
#include "client/lib/objects/ns.h"
#include "gpu/device.h"
#include "proto/status.h"

/* ---- the device --------------------------------------------------------------------------------
 */

static int refuse_device(const struct kvl_ns *ns, int error, const char *why)
{
        const char *name = ns->info.device;

        switch (error) {
        case -ENODEV:
                return error_set(-ENOENT,
                        "this process can't use the device %s: %s; make it visible here (the "
                        "container's devices, CUDA_VISIBLE_DEVICES) or connect metadata-only",
                        name, *why ? why : "there is none of that name, or no driver");
        case -ELIBBAD:
                return error_set(-ENOENT,
                        "this process can't use the device %s: %s; its driver library must be of the version of the kernel's driver, and new enough",
                        name, *why ? why : "the driver's versions don't fit");
        case -EOPNOTSUPP:
                return error_set(error,
                        "this process can't map memory as kvleased hands it out on the device %s: "
                        "%s; upgrade libkvlease, or set the device's transport in kvleased.conf",
                        name, *why ? why : "it doesn't know that way");
        default:
                return error_set(error, "this process can't use the device %s: %s", name,
                        *why ? why : status_text(error));
        }
}

/* The device's members on which the mapped planes are. */
struct members {
        struct device_props of; /* only their names are set */
        unsigned first, n;      /* n 0: the device has none */
};

/* Returns false if the daemon's reply makes no sense. */
static bool find_members(const struct kvl_ns *ns, struct members *ret)
{
        unsigned n = 1;

        *ret = (struct members){0};
        if (!ns->members[0])
                return true;
        for (const char *at = ns->members; *at; at++)
                n += *at == ',';
        if (n < 2 || n > DEVICE_MEMBERS_MAX || ns->info.n_planes % n != 0)
                return false;
        memcpy(ret->of.members, ns->members, sizeof(ret->of.members));
        ret->of.n_members = n;
        ret->first = device_member_of(&ret->of, ns->planes.first, ns->info.n_planes);
        ret->n = 1 - ret->first +
                 device_member_of(&ret->of, ns->planes.first + ns->planes.n - 1, ns->info.n_planes);
        return true;
}

/* Writes the name of the only member, or the device's, with the members' in the options. */
static void name_device(const struct kvl_ns *ns, const struct members *m,
        char ret_name[DEVICE_NAME_MAX + 1], struct device_options *options)
{
        char one[DEVICE_NAME_MAX + 1];
        size_t len = 0;

        strcpy(ret_name, ns->info.device);
        if (m->n == 1)
                device_member_name(&m->of, m->first, ret_name);
        for (unsigned i = 0; m->n > 1 && i < m->n; i++) {
                device_member_name(&m->of, m->first + i, one);
                len += (size_t)snprintf(options->members + len, sizeof(options->members) - len,
                        "%s%s", i > 0 ? "," : "", one);
        }
}

static int open_device(struct kvl_ns *ns)
{
        struct device_options options = {
                .side = DEVICE_USER, .transport = ns->transport, .huge_pages = ns->huge_pages};
        char name[DEVICE_NAME_MAX + 1], why[DEVICE_WHY_BYTES] = "";
        struct members members;
        int r;

        if (!find_members(ns, &members))
                return error_set(-EPROTO, "kvleased sent a device with members that make no sense");
        name_device(ns, &members, name, &options);
        r = device_open(name, &options, &ns->device, why);
        if (r == 0 && ns->transport != ns->device->props.transport)
                r = -EOPNOTSUPP;
        if (r < 0)
                return refuse_device(ns, r, why);
        if (ns->extent_bytes % ns->device->props.unit_bytes != 0)
                return error_set(-EPROTO, "kvleased sent an extent size that can't be mapped");
        if (members.n <= 1)
                strcpy(ns->info.member, ns->device->props.name);
        else
                ns->planes.each = ns->info.n_planes / members.of.n_members;
        ns->info.is_cpu_memory = ns->device->props.is_cpu_memory;
        ns->info.is_contiguous = ns->device->props.is_contiguous;
        return 0;
}

static int reserve_arena(struct kvl_ns *ns, uint64_t wanted)
{
        uint64_t bytes = ns->plane_stride_bytes * ns->info.n_planes;
        int r = ns->device->ops->arena_reserve(ns->device, bytes, wanted, &ns->arena);

        if (r == -EBUSY && wanted)
                return error_set(r,
                        "namespace %s can't have its common address here: 0x%llx to 0x%llx are in "
                        "use; open it earlier, or without KVL_NS_SAME_ADDRESS",
                        ns->name, (unsigned long long)wanted, (unsigned long long)(wanted + bytes));
        if (r < 0)
                return error_set(r, "can't reserve %llu bytes of addresses on the device %s: %s",
                        (unsigned long long)bytes, ns->info.device,
                        *ns->device->why ? ns->device->why : status_text(r));
        ns->base = ns->device->ops->arena_base(ns->arena);
        return 0;
}

static int refuse_backing(const struct kvl_ns *ns, int error)
{
        const char *why = ns->device->why;

        if (error == -EOPNOTSUPP)
                return error_set(error,
                        "the arena's holes can't be backed on the device %s: memory of a GPU can't "
                        "take the place of other memory in one step, and a kernel that read there "
                        "meanwhile would break its context; open namespace %s without KVL_NS_BACK_HOLES",
                        ns->info.device, ns->name);
        return error_set(error, "can't back what isn't mapped of namespace %s: %s", ns->name,
                *why ? why : status_text(error));
}

/* Offset of page 0 in the i-th of the mapped planes. */
static uint64_t null_offset(const struct kvl_ns *ns, uint32_t i)
{
        return (ns->planes.first + i) * ns->plane_stride_bytes;
}

/* Makes the memory for page 0 of every plane on a GPU: one piece of the smallest mappable size. */
static int make_null_page(struct kvl_ns *ns)
{
        const struct device_ops *ops = ns->device->ops;
        uint64_t unit = ns->device->props.unit_bytes;
        int r;

        if (ns->device->props.n_members > 0)
                return error_set(-EINVAL,
                        "page 0 of namespace %s is memory of one GPU, and its planes lie on %u of "
                        "the device %s: open the planes of one (first_plane, n_planes), or without KVL_NS_KEEP_PAGE_ZERO",
                        ns->name, ns->device->props.n_members, ns->info.device);
        r = ops->extent_create(
                ns->device, round_up_u64(ns->info.plane_page_bytes, unit), &ns->null.extent);
        while (r == 0 && ns->null.n_planes < ns->planes.n) {
                r = ops->arena_map(ns->arena, null_offset(ns, ns->null.n_planes), ns->null.extent,
                        DEVICE_READ_WRITE);
                ns->null.n_planes += r == 0;
        }
        ns->null.has_page = r == 0;
        if (r == 0)
                return 0;
        return error_set(r == -ENOMEM ? r : -EIO,
                "can't make page 0 of namespace %s on the device %s: %s", ns->name, ns->info.device,
                *ns->device->why ? ns->device->why : status_text(r));
}

static int drop_null_page(struct kvl_ns *ns)
{
        const struct device_ops *ops = ns->device->ops;

        for (; ns->null.n_planes > 0; ns->null.n_planes--) {
                int r = ops->arena_unmap(
                        ns->arena, null_offset(ns, ns->null.n_planes - 1), ns->null.extent);

                if (r < 0)
                        return r;
        }
        if (ns->null.extent)
                ops->extent_destroy(TAKE(ns->null.extent), false);
        return 0;
}

/* Backs the arena before, between and after its sets. */
static int back_arena(struct kvl_ns *ns, unsigned flags)
{
        const struct device_ops *ops = ns->device->ops;
        struct arena_backing backing = {.reads_zeros = flags & KVL_NS_BACK_HOLES};
        int r = -EOPNOTSUPP;

        if (flags & KVL_NS_KEEP_PAGE_ZERO) {
                backing.null_bytes = ns->info.plane_page_bytes;
                backing.null_stride_bytes = ns->plane_stride_bytes;
        }
        ns->device->why[0] = '\0';
        if (!backing.reads_zeros && backing.null_bytes == 0)
                return 0;
        if (ops->arena_back)
                r = ops->arena_back(ns->arena, &backing);
        /* If the device can't, page 0 is this process' own, or is mapped with its set. */
        if (r == -EOPNOTSUPP && !backing.reads_zeros)
                return ns->null.has_set ? make_null_page(ns) : 0;
        ns->null.has_page = r == 0 && backing.null_bytes > 0;
        return r < 0 ? refuse_backing(ns, r) : 0;
}

int ns_reserve(struct kvl_ns *ns, unsigned flags)
{
        bool same_address = flags & KVL_NS_SAME_ADDRESS;
        uint64_t wanted = same_address ? ns->address : 0;
        int r = open_device(ns);

        if (r < 0)
                return r;
        if (same_address && (wanted == 0 || !ns->info.is_contiguous))
                return error_set(-EOPNOTSUPP,
                        "kvleased has no common address for namespace %s: %s; open it without KVL_NS_SAME_ADDRESS",
                        ns->name,
                        ns->info.is_contiguous ? "it has none left"
                                               : "with cudaipc each extent has its own");
        ns->sets = calloc(ns->n_sets, sizeof(*ns->sets));
        if (!ns->sets)
                return error_set(-ENOMEM, "out of memory");
        r = ns_make_units(ns);
        if (r == 0)
                r = reserve_arena(ns, wanted);
        return r < 0 ? r : back_arena(ns, flags);
}

/* ---- mapping -----------------------------------------------------------------------------------
 */

/* Offset of the set in the i-th of the mapped planes. */
static uint64_t offset_of(const struct kvl_ns *ns, uint32_t set_index, uint32_t i)
{
        return (ns->planes.first + i) * ns->plane_stride_bytes + set_index * ns->extent_bytes;
}

/* Index of ns->device's member with the i-th of the mapped planes. */
static unsigned member_of(const struct kvl_ns *ns, uint32_t i)
{
        const struct ns_planes *p = &ns->planes;

        return p->each > 0 ? (p->first + i) / p->each - p->first / p->each : 0;
}

static int map_plane(struct kvl_ns *ns, uint32_t set_index, struct extent_handle *handle)
{
        struct mapped_set *set = &ns->sets[set_index];
        uint32_t plane = atomic_load_explicit(&set->n_planes, memory_order_relaxed);
        const struct device_ops *ops = ns->device->ops;
        struct extent *e;
        int r;

        r = device_import(ns->device, member_of(ns, plane), handle, ns->extent_bytes, &e);
        if (r < 0)
                return r;
        r = ops->arena_map(ns->arena, offset_of(ns, set_index, plane), e, DEVICE_READ_WRITE);
        if (r < 0) {
                ops->extent_destroy(e, false);
                return r;
        }
        set->extents[plane] = e;
        if (set->bases)
                atomic_store_explicit(
                        &set->bases[plane], ops->extent_address(e), memory_order_relaxed);
        /* kvl_page_ptr() reads it without the lock: after this store the mapping is there. */
        atomic_store_explicit(&set->n_planes, plane + 1, memory_order_release);
        return 0;
}

int ns_note_result(const struct kvl_ns *ns, int r)
{
        if (r == -ENXIO && !ns->info.is_cpu_memory)
                ns_break_device(ns);
        return r;
}

/* Allocates the set's arrays. Both stay until the namespace is closed, as kvl_page_ptr() takes no
 * lock. */
static int make_set(struct kvl_ns *ns, struct mapped_set *set)
{
        if (!set->extents)
                set->extents = calloc(ns->planes.n, sizeof(*set->extents));
        if (!set->bases && !ns->info.is_contiguous)
                set->bases = calloc(ns->planes.n, sizeof(*set->bases));
        return set->extents && (set->bases || ns->info.is_contiguous) ? 0 : -ENOMEM;
}

/* ---- below the device ---------------------------------------------------------------------------
 */

/* The tier of a page that isn't on the device. */
static const struct kvl_tier_info *tier_of(const struct kvl_ns *ns, uint32_t page)
{
        const struct kvl_tier_info *t = &ns->info.tiers[ns->info.n_tiers - 1];

        while (page < t->first_page)
                t--;
        return t;
}

/* The first set in a readable lower tier. */
static uint32_t first_host_set(const struct kvl_ns *ns)
{
        const struct kvl_tier_info *t = ns->info.tiers;

        while (!t->is_readable)
                t++;
        return t->first_page / ns->info.set_pages;
}

bool ns_wants_map(const struct kvl_ns *ns, uint32_t page)
{
        uint32_t set_index = ns_set_of(ns, page);

        if (!ns->sets)
                return false;
        if (!ns_is_lower(ns, page))
                return !ns_is_mapped(ns, set_index);
        return tier_of(ns, page)->is_readable && !ns_host_set(ns, set_index);
}

/* Reserves addresses for all sets in host memory. */
static int reserve_host(struct kvl_ns *ns)
{
        const struct device_options options = {.side = DEVICE_USER, .transport = TRANSPORT_MEMFD};
        const struct kvl_tier_info *t = tier_of(ns, first_host_set(ns) * ns->info.set_pages);
        uint64_t n_sets = t->n_pages / ns->info.set_pages;
        char why[DEVICE_WHY_BYTES] = "";
        int r = 0;

        if (!ns->below.device)
                r = device_open("host", &options, &ns->below.device, why);
        if (r < 0 || ns->below.arena)
                return r;
        if (ns->below.extent_bytes % ns->below.device->props.unit_bytes != 0)
                return -EPROTO;
        return ns->below.device->ops->arena_reserve(
                ns->below.device, n_sets * ns->below.extent_bytes, 0, &ns->below.arena);
}

static uint64_t host_offset_of(const struct kvl_ns *ns, uint32_t set_index)
{
        return (set_index - first_host_set(ns)) * ns->below.extent_bytes;
}

/* Maps a set read-only, even if the descriptor allows writes. */
static int map_host(struct kvl_ns *ns, uint32_t set_index, struct extent_handle *handle)
{
        struct mapped_set *set = &ns->sets[set_index];
        const struct device_ops *ops;
        struct extent *e;
        int r = reserve_host(ns);

        if (r < 0) {
                handle->fd = fd_close(handle->fd);
                return r;
        }
        ops = ns->below.device->ops;
        r = ops->extent_import(ns->below.device, handle, ns->below.extent_bytes, &e);
        if (r < 0)
                return r;
        r = ops->arena_map(ns->below.arena, host_offset_of(ns, set_index), e, DEVICE_READ_ONLY);
        if (r < 0) {
                ops->extent_destroy(e, false);
                return r;
        }
        set->host_extent = e;
        atomic_store_explicit(&set->host, ops->extent_address(e), memory_order_release);
        return 0;
}

static int unmap_host(struct kvl_ns *ns, uint32_t set_index)
{
        struct mapped_set *set = &ns->sets[set_index];
        uint8_t *at = ns_host_set(ns, set_index);
        int r;

        if (!at)
                return 0;
        atomic_store_explicit(&set->host, NULL, memory_order_relaxed);
        r = ns->below.device->ops->arena_unmap(
                ns->below.arena, host_offset_of(ns, set_index), set->host_extent);
        if (r < 0) {
                atomic_store_explicit(&set->host, at, memory_order_relaxed);
                return r;
        }
        ns->below.device->ops->extent_destroy(TAKE(set->host_extent), false);
        return 0;
}

/* Returns NULL if it isn't mapped, or can't be read. */
static uint8_t *host_page(const struct kvl_ns *ns, uint32_t page, uint32_t plane)
{
        uint32_t set_index = ns_set_of(ns, page);
        uint8_t *at = ns_host_set(ns, set_index);

        return at ? at + (page - set_index * ns->info.set_pages) * tier_of(ns, page)->page_bytes +
                               plane * ns->info.plane_page_bytes
                  : NULL;
}

static int map_host_reply(
        struct kvl_ns *ns, uint32_t set_index, const Kvlease__V1__MapReply *m, struct frame *frame)
{
        struct extent_handle handle = {.fd = -1};
        int r;

        if (m->n_planes != 1 || frame->header.fd_count != 1 || m->handles.len != 0)
                return -EPROTO;
        /* Another call may have asked for the same and been answered first. */
        if (ns_host_set(ns, set_index))
                return 0;
        handle.fd = fd_take(&frame->fds[0]);
        r = map_host(ns, set_index, &handle);
        return r == 0 || r == -ENOMEM || r == -EPROTO ? r : -EIO;
}

/* ---- replies -----------------------------------------------------------------------------------
 */

/* Whether the reply has as many descriptors or handles as the transport wants, and only existing
 * planes. */
static bool is_reply_right(const struct kvl_ns *ns, uint32_t first_plane,
        const Kvlease__V1__MapReply *m, const struct frame *frame)
{
        uint32_t n_fds = ns->transport == TRANSPORT_CUDAIPC ? 0 : m->n_planes;

        return m->n_planes > 0 && m->n_planes <= ns->info.n_planes - first_plane &&
               frame->header.fd_count == n_fds &&
               m->handles.len == (size_t)(m->n_planes - n_fds) * DEVICE_HANDLE_BYTES;
}

int ns_map(struct kvl_ns *ns, uint32_t set_index, uint32_t first_plane,
        const Kvlease__V1__MapReply *m, struct frame *frame)
{
        struct mapped_set *set = &ns->sets[set_index];
        int r;

        if (set_index >= ns->n_device_sets)
                return map_host_reply(ns, set_index, m, frame);
        if (!is_reply_right(ns, first_plane, m, frame))
                return -EPROTO;
        r = make_set(ns, set);
        for (uint32_t i = 0; i < m->n_planes && r == 0; i++) {
                struct extent_handle handle = {.fd = -1};

                /* Another call may have asked for the same and been answered first. Or earlier
                 * planes were unmapped: they are asked for again. Older daemons send more planes
                 * than asked for. */
                if (first_plane + i != ns->planes.first + set->n_planes ||
                        set->n_planes == ns->planes.n)
                        continue;
                if (m->handles.len > 0)
                        memcpy(handle.bytes, m->handles.data + (size_t)i * DEVICE_HANDLE_BYTES,
                                DEVICE_HANDLE_BYTES);
                else
                        handle.fd = fd_take(&frame->fds[i]);
                r = ns_note_result(ns, map_plane(ns, set_index, &handle));
        }
        return r == 0 || r == -ENOMEM ? r : -EIO;
}

/* ---- unmapping ---------------------------------------------------------------------------------
 */

int ns_unmap_set(struct kvl_ns *ns, uint32_t set_index)
{
        struct mapped_set *set = &ns->sets[set_index];
        const struct device_ops *ops = ns->device->ops;
        uint32_t plane = atomic_load_explicit(&set->n_planes, memory_order_relaxed);
        int r;

        if (set_index >= ns->n_device_sets)
                return unmap_host(ns, set_index);
        while (plane-- > 0) {
                struct extent *e = set->extents[plane];

                atomic_store_explicit(&set->n_planes, plane, memory_order_relaxed);
                ns_forget_populated(ns, set_index);
                if (set->bases)
                        atomic_store_explicit(&set->bases[plane], NULL, memory_order_relaxed);
                r = ops->arena_unmap(ns->arena, offset_of(ns, set_index, plane), e);
                if (r < 0) {
                        /* The count includes this plane, so that it isn't mapped twice. */
                        atomic_store_explicit(&set->n_planes, plane + 1, memory_order_relaxed);
                        return r;
                }
                ops->extent_destroy(e, false);
        }
        return 0;
}

void ns_unmap_all(struct kvl_ns *ns)
{
        int first_error = 0, r;

        for (uint32_t i = 0; ns->sets && i < ns->n_sets; i++) {
                r = ns_unmap_set(ns, i);
                if (r < 0)
                        first_error = r;
                free(ns->sets[i].extents);
                free(ns->sets[i].bases);
        }
        free(ns->sets);
        free(ns->populated.bits);
        r = ns->arena ? drop_null_page(ns) : 0;
        if (r < 0)
                first_error = r;
        /* Memory that can't be unmapped stays until the process ends, with all it depends on. */
        if (first_error < 0)
                return;
        if (ns->below.arena)
                ns->below.device->ops->arena_release(ns->below.arena);
        device_close(ns->below.device);
        if (ns->arena)
                ns->device->ops->arena_release(ns->arena);
        device_close(ns->device);
}

/* ---- addresses ---------------------------------------------------------------------------------
 */

uint64_t ns_offset_in_extent(const struct kvl_ns *ns, uint32_t page)
{
        return (page - ns_set_of(ns, page) * ns->info.set_pages) * ns->info.stride_bytes;
}

void *kvl_plane_base(const struct kvl_ns *ns, uint32_t plane)
{
        if (!ns || !ns->base || !ns_has_plane(ns, plane))
                return NULL;
        return ns->base + plane * ns->plane_stride_bytes;
}

void *kvl_page_ptr(const struct kvl_ns *ns, uint32_t page, uint32_t plane)
{
        uint32_t set_index;
        uint8_t *base;

        if (!ns || !ns->sets || page >= ns->info.capacity_pages || plane >= ns->info.n_planes)
                return NULL;
        if (ns_is_lower(ns, page))
                return host_page(ns, page, plane);
        set_index = ns_set_of(ns, page);
        if (!ns_has_plane(ns, plane) ||
                (!ns_is_mapped(ns, set_index) && !(page == 0 && ns->null.has_page)))
                return NULL;
        if (ns->base)
                return ns->base + plane * ns->plane_stride_bytes + page * ns->info.stride_bytes;
        if (page == 0 && ns->null.has_page)
                return ns->device->ops->extent_address(ns->null.extent);
        base = atomic_load_explicit(
                &ns->sets[set_index].bases[plane - ns->planes.first], memory_order_relaxed);
        return base ? base + ns_offset_in_extent(ns, page) : NULL;
}

struct extent *ns_device_extent(const struct kvl_ns *ns, uint32_t page, uint32_t plane)
{
        uint32_t set_index = ns_set_of(ns, page);

        if (page == 0 && ns->null.extent)
                return ns->null.extent;
        return ns_is_mapped(ns, set_index) && ns_has_plane(ns, plane)
                       ? ns->sets[set_index].extents[plane - ns->planes.first]
                       : NULL;
}
