/* Copies of many pages in one call. */
#include <errno.h>

#include "client/lib/connection/error.h"
#include "client/lib/mapping/map.h"
#include "client/lib/objects/abi.h"
#include "client/lib/objects/args.h"

static int check_planes(const struct kvl_ns *ns, struct kvl_page_io *io)
{
        uint32_t n_planes = ns->info.n_planes;

        if (io->first_plane >= n_planes || io->n_planes > n_planes - io->first_plane)
                return error_set(-EINVAL, "%u planes from %u on: the namespace has %u",
                        io->n_planes, io->first_plane, n_planes);
        if (io->n_planes == 0)
                io->n_planes = n_planes - io->first_plane;
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
        /* Of at most 1024 planes and 2^47 bytes. */
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
                r = ns_check_copies(ns, ret->pages, ret->n_pages, direction);
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
                        r = ns_copy(ns, io.pages[i], io.first_plane + p, io.offset,
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
