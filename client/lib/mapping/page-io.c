/* Copies of pages: to and from memory of the caller, one page or many, and from page to page. */
#include <errno.h>
#include <string.h>

#include "base/macros.h"
#include "client/lib/connection/error.h"
#include "client/lib/mapping/map.h"
#include "client/lib/objects/args.h"
#include "gpu/device.h"
#include "proto/status.h"

/* ---- one page ----------------------------------------------------------------------------------
 */

static int refuse_unmapped(uint32_t page)
{
        return error_set(
                -ENOENT, "page %u isn't mapped: lease it, look it up or kvl_map_pages()", page);
}

static int check_written(const struct kvl_ns *ns, uint32_t page)
{
        if (ns_is_lower(ns, page))
                return error_set(
                        -EINVAL, "page %u lies below the device: it can't be written", page);
        if (fast_is_open(&ns->fast) && fast_is_sealed(&ns->fast, page))
                return error_set(-EINVAL, "page %u is published: it can't be written", page);
        return 0;
}

static int refuse_plane(const struct kvl_ns *ns, uint32_t first)
{
        return error_set(-EINVAL,
                "of planes from %u on some aren't mapped: namespace %s was opened for planes %u to %u",
                first, ns->name, ns->planes.first, ns->planes.first + ns->planes.n - 1);
}

static int check_copy(const struct kvl_ns *ns, uint32_t page, uint32_t plane, uint64_t offset,
        const void *memory, uint64_t bytes, enum device_direction direction)
{
        int r = args_check_pages(ns, &page, 1, 1);

        if (r < 0)
                return r;
        if (plane >= ns->info.n_planes)
                return error_set(-EINVAL, "plane %u is beyond the namespace's %u planes", plane,
                        ns->info.n_planes);
        if (!ns_is_lower(ns, page) && !ns_has_plane(ns, plane))
                return refuse_plane(ns, plane);
        if (offset > ns->info.plane_page_bytes || bytes > ns->info.plane_page_bytes - offset)
                return error_set(-EINVAL,
                        "%llu bytes at %llu are beyond the %llu bytes of a page in a plane",
                        (unsigned long long)bytes, (unsigned long long)offset,
                        (unsigned long long)ns->info.plane_page_bytes);
        if (!memory && bytes > 0)
                return error_set(-EINVAL, "no memory to copy was given");
        r = direction == DEVICE_FROM_HOST ? check_written(ns, page) : 0;
        if (r == 0 && !ns->sets)
                r = error_set(-EACCES, "a metadata-only connection maps nothing");
        return r;
}

/* [L] */
static int copy_on_device(const struct kvl_ns *ns, uint32_t page, uint32_t plane, uint64_t offset,
        void *memory, uint64_t bytes, enum device_direction direction)
{
        const struct device_ops *ops = ns->device->ops;
        struct extent *e = ns_device_extent(ns, page, plane);
        int r;

        if (!e)
                return refuse_unmapped(page);
        offset += ns_offset_in_extent(ns, page);
        ns->device->why[0] = '\0';
        r = direction == DEVICE_TO_HOST ? ops->extent_read(e, offset, memory, bytes)
                                        : ops->extent_write(e, offset, memory, bytes);
        if (ns_note_result(ns, r) < 0)
                return error_set(-EIO, "can't copy page %u on the device %s: %s", page,
                        ns->info.device, *ns->device->why ? ns->device->why : status_text(r));
        return 0;
}

/* Does kvl_page_read() and kvl_page_write(), by the direction. */
static int copy_bytes(const struct kvl_ns *ns, uint32_t page, uint32_t plane, uint64_t offset,
        void *memory, uint64_t bytes, enum device_direction direction)
{
        uint8_t *at;
        int r = check_copy(ns, page, plane, offset, memory, bytes, direction);

        if (r < 0 || bytes == 0)
                return r;
        if (!ns->info.is_cpu_memory && !ns_is_lower(ns, page)) {
                conn_lock(conn_of(ns));
                r = copy_on_device(ns, page, plane, offset, memory, bytes, direction);
                conn_unlock(conn_of(ns));
                return r;
        }
        at = kvl_page_ptr(ns, page, plane);
        if (!at)
                return refuse_unmapped(page);
        if (direction == DEVICE_TO_HOST)
                memcpy(memory, at + offset, bytes);
        else
                memcpy(at + offset, memory, bytes);
        return 0;
}

int kvl_page_read(const struct kvl_ns *ns, uint32_t page, uint32_t plane, uint64_t offset,
        void *dst, uint64_t bytes)
{
        return copy_bytes(ns, page, plane, offset, dst, bytes, DEVICE_TO_HOST);
}

int kvl_page_write(const struct kvl_ns *ns, uint32_t page, uint32_t plane, uint64_t offset,
        const void *src, uint64_t bytes)
{
        return copy_bytes(ns, page, plane, offset, (void *)src, bytes, DEVICE_FROM_HOST);
}

/* [L] */
static int copy_page_on_device(const struct kvl_ns *ns, uint32_t from, uint32_t to, uint32_t plane)
{
        struct extent *src = ns_device_extent(ns, from, plane),
                      *dst = ns_device_extent(ns, to, plane);
        struct device *d = ns->device;
        int r;

        if (!src || !dst)
                return refuse_unmapped(src ? to : from);
        d->why[0] = '\0';
        r = d->ops->extent_copy(dst, ns_offset_in_extent(ns, to), src,
                ns_offset_in_extent(ns, from), ns->info.plane_page_bytes);
        if (ns_note_result(ns, r) < 0)
                return error_set(-EIO, "can't copy page %u to page %u on the device %s: %s", from,
                        to, ns->info.device, *d->why ? d->why : status_text(r));
        return 0;
}

static int copy_page_on_cpu(const struct kvl_ns *ns, uint32_t from, uint32_t to, uint32_t plane)
{
        const void *src = kvl_page_ptr(ns, from, plane);
        void *dst = kvl_page_ptr(ns, to, plane);

        if (!src || !dst)
                return refuse_unmapped(src ? to : from);
        memcpy(dst, src, ns->info.plane_page_bytes);
        return 0;
}

static int copy_from_host(const struct kvl_ns *ns, uint32_t from, uint32_t to, uint32_t plane)
{
        void *src = kvl_page_ptr(ns, from, plane);

        return src ? copy_bytes(ns, to, plane, 0, src, ns->info.plane_page_bytes, DEVICE_FROM_HOST)
                   : refuse_unmapped(from);
}

static int copy_page(const struct kvl_ns *ns, uint32_t from, uint32_t to, uint32_t plane)
{
        int r;

        if (ns->info.is_cpu_memory)
                return copy_page_on_cpu(ns, from, to, plane);
        if (ns_is_lower(ns, from))
                return copy_from_host(ns, from, to, plane);
        conn_lock(conn_of(ns));
        r = copy_page_on_device(ns, from, to, plane);
        conn_unlock(conn_of(ns));
        return r;
}

int kvl_page_copy(struct kvl_ns *ns, uint32_t from_page, uint32_t to_page)
{
        const uint32_t pages[] = {from_page, to_page};
        int r = args_check_pages(ns, pages, ARRAY_SIZE(pages), ARRAY_SIZE(pages));

        if (r < 0)
                return r;
        r = check_written(ns, to_page);
        if (r < 0)
                return r;
        if (from_page == to_page)
                return error_set(-EINVAL, "page %u can't be copied into itself", to_page);
        if (!ns->sets)
                return error_set(-EACCES, "a metadata-only connection maps nothing");
        for (uint32_t i = 0; i < ns->planes.n && r == 0; i++)
                r = copy_page(ns, from_page, to_page, ns->planes.first + i);
        return r;
}

/* ---- many pages --------------------------------------------------------------------------------
 */

/* Checks the pages of a copy in either direction. */
static int check_pages(const struct kvl_ns *ns, const uint32_t *pages, uint32_t n_pages,
        enum device_direction direction)
{
        int r = args_check_pages(ns, pages, n_pages, UINT32_MAX);

        if (r == 0 && !ns->sets)
                r = error_set(-EACCES, "a metadata-only connection maps nothing");
        for (uint32_t i = 0; r == 0 && i < n_pages; i++) {
                if (direction == DEVICE_FROM_HOST)
                        r = check_written(ns, pages[i]);
                if (r == 0 && !kvl_page_ptr(ns, pages[i], ns->planes.first))
                        r = refuse_unmapped(pages[i]);
        }
        return r;
}

static int check_planes(const struct kvl_ns *ns, struct kvl_page_io *io)
{
        uint32_t n_planes = ns->info.n_planes;

        if (io->first_plane >= n_planes || io->n_planes > n_planes - io->first_plane)
                return error_set(-EINVAL, "%u planes from %u on: the namespace has %u",
                        io->n_planes, io->first_plane, n_planes);
        if (io->n_planes == 0)
                io->n_planes = n_planes - io->first_plane;
        /* Checked before anything is copied. Pages in lower tiers have all planes here. */
        for (uint32_t i = 0; io->pages && ns->sets && i < io->n_pages; i++)
                if (!ns_is_lower(ns, io->pages[i]) &&
                        (!ns_has_plane(ns, io->first_plane) ||
                                !ns_has_plane(ns, io->first_plane + io->n_planes - 1)))
                        return refuse_plane(ns, io->first_plane);
        return 0;
}

static int check_bytes(const struct kvl_ns *ns, struct kvl_page_io *io)
{
        uint64_t page_bytes = ns->info.plane_page_bytes;

        if (io->offset >= page_bytes || io->bytes > page_bytes - io->offset)
                return error_set(-EINVAL,
                        "%llu bytes at %llu are beyond the %llu bytes of a page in a plane",
                        (unsigned long long)io->bytes, (unsigned long long)io->offset,
                        (unsigned long long)page_bytes);
        if (io->bytes == 0)
                io->bytes = page_bytes - io->offset;
        return 0;
}

static int check_memory(const struct kvl_page_io *io)
{
        /* No overflow: there are at most 1024 planes, and 2^47 bytes. */
        uint64_t each = io->n_planes * io->bytes, all;

        if (!io->memory == !io->buffers)
                return error_set(-EINVAL, "either memory or buffers must be given");
        for (uint32_t i = 0; io->buffers && i < io->n_pages; i++)
                if (!io->buffers[i])
                        return error_set(-EINVAL, "buffer %u is NULL", i);
        if (__builtin_mul_overflow(each, io->buffers ? 1 : io->n_pages, &all) ||
                io->memory_bytes != all)
                return error_set(-EINVAL,
                        "memory_bytes is %llu: %s of %u planes with %llu bytes make another number",
                        (unsigned long long)io->memory_bytes,
                        io->buffers ? "a page" : "these pages", io->n_planes,
                        (unsigned long long)io->bytes);
        return 0;
}

static int check_page_io(const struct kvl_ns *ns, const struct kvl_page_io *given,
        enum device_direction direction, struct kvl_page_io *ret)
{
        int r = args_check_ns(ns);

        *ret = (struct kvl_page_io){0};
        if (r == 0 && !given)
                r = error_set(-EINVAL, "it isn't said what is copied");
        if (r == 0)
                r = abi_copy(ret, sizeof(*ret), given);
        if (r == 0)
                r = check_planes(ns, ret);
        if (r == 0)
                r = check_bytes(ns, ret);
        if (r == 0)
                r = check_pages(ns, ret->pages, ret->n_pages, direction);
        return r == 0 ? check_memory(ret) : r;
}

static int copy_pages(
        const struct kvl_ns *ns, const struct kvl_page_io *given, enum device_direction direction)
{
        struct kvl_page_io io;
        int r = check_page_io(ns, given, direction, &io);

        for (uint32_t i = 0; r == 0 && i < io.n_pages; i++) {
                uint8_t *at = io.buffers
                                      ? io.buffers[i]
                                      : (uint8_t *)io.memory + (uint64_t)i * io.n_planes * io.bytes;

                for (uint32_t p = 0; r == 0 && p < io.n_planes; p++)
                        r = copy_bytes(ns, io.pages[i], io.first_plane + p, io.offset,
                                at + p * io.bytes, io.bytes, direction);
        }
        return r;
}

int kvl_pages_read(const struct kvl_ns *ns, const struct kvl_page_io *io)
{
        return copy_pages(ns, io, DEVICE_TO_HOST);
}

int kvl_pages_write(const struct kvl_ns *ns, const struct kvl_page_io *io)
{
        return copy_pages(ns, io, DEVICE_FROM_HOST);
}
