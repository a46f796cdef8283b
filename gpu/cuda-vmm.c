/*
 * CUDA VMM: an extent is a cuMemCreate() handle, exported as a descriptor that keeps the memory. An
 * owner keeps each of its extents mapped at its own addresses: zeroing, proofs and copies need a
 * mapping, and unmapping may wait for the device. Only memset and copies need a context.
 */
#include "gpu/cuda.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fd.h"

static int set_access(struct cuda_device *d, cu_deviceptr at, uint64_t bytes, int flags)
{
        cu_mem_access_desc access = {
                .location = {.type = CU_LOCATION_DEVICE, .id = d->ordinal},
                .flags = flags,
        };
        cu_result result = d->cuda->MemSetAccess(at, bytes, &access, 1);

        /* Read-only only guards against accidents: the importer chooses the access. Fall back to
         * write access if the driver doesn't support it. */
        if (flags == CU_ACCESS_READ && (result == CU_NOT_SUPPORTED || result == CU_INVALID_VALUE)) {
                access.flags = CU_ACCESS_READ_WRITE;
                result = d->cuda->MemSetAccess(at, bytes, &access, 1);
        }
        return cuda_check(d, "cuMemSetAccess", result);
}

/* *ret_is_mapped also reports a mapping that a failure left behind. */
static int map_at(struct cuda_extent *x, cu_deviceptr at, int flags, bool *ret_is_mapped)
{
        struct cuda_device *d = cuda_device_of(x);
        int r = cuda_check(d, "cuMemMap", d->cuda->MemMap(at, x->extent.bytes, 0, x->handle, 0));

        *ret_is_mapped = r == 0;
        if (r < 0)
                return r;
        r = set_access(d, at, x->extent.bytes, flags);
        if (r < 0) {
                cu_result result = d->cuda->MemUnmap(at, x->extent.bytes);

                cuda_ignore(d, "cuMemUnmap", result);
                *ret_is_mapped = result != CU_OK;
        }
        return r;
}

/* Maps an owner's extent by its handle. */
static int map_own(struct cuda_extent *x)
{
        struct cuda_device *d = cuda_device_of(x);
        cu_deviceptr at;
        int r;

        r = cuda_check(d, "cuMemAddressReserve",
                d->cuda->MemAddressReserve(
                        &at, x->extent.bytes, d->device.props.granularity_bytes, 0, 0));
        if (r < 0)
                return r;
        x->own_range = at;
        r = map_at(x, at, CU_ACCESS_READ_WRITE, &x->own_is_mapped);
        if (r == 0)
                x->address = at;
        return r;
}

static int vmm_allocate(struct cuda_extent *x)
{
        struct cuda_device *d = cuda_device_of(x);
        cu_mem_handle handle;
        int r;

        r = cuda_check(
                d, "cuMemCreate", d->cuda->MemCreate(&handle, x->extent.bytes, &d->allocation, 0));
        if (r < 0)
                return r;
        x->handle = handle;
        x->has_handle = true;
        return map_own(x);
}

static void release_handle(struct cuda_extent *x)
{
        struct cuda_device *d = cuda_device_of(x);

        if (x->has_handle)
                cuda_ignore(d, "cuMemRelease", d->cuda->MemRelease(x->handle));
        x->has_handle = false;
}

static void vmm_release(struct cuda_extent *x, bool in_context)
{
        struct cuda_device *d = cuda_device_of(x);
        cu_result result = CU_OK;

        /* Unmap again, if an earlier unmap failed. */
        if (x->arena_address)
                cuda_ignore(d, "cuMemUnmap", d->cuda->MemUnmap(x->arena_address, x->extent.bytes));
        if (x->own_is_mapped) {
                result = d->cuda->MemUnmap(x->own_range, x->extent.bytes);
                cuda_ignore(d, "cuMemUnmap", result);
        }
        /* A range with mappings can't be freed. */
        if (x->own_range && result == CU_OK)
                cuda_ignore(d, "cuMemAddressFree",
                        d->cuda->MemAddressFree(x->own_range, x->extent.bytes));
        release_handle(x);
}

/*
 * Takes over an extent of a previous owner, with a mapping of its own as if created here. Mapping
 * also checks the size, for which the driver has no call: a smaller one can't be mapped whole.
 */
static int take_over(struct cuda_extent *x)
{
        struct cuda_device *d = cuda_device_of(x);
        int r = cuda_enter(d);

        if (r < 0) {
                release_handle(x);
                return r;
        }
        x->is_imported = false;
        r = map_own(x);
        if (r < 0)
                vmm_release(x, true);
        cuda_leave(d);
        return r;
}

static int vmm_extent_import(struct device *device, struct extent_handle *handle, uint64_t bytes,
        struct extent **ret_extent)
{
        _cleanup_fd_ int fd = fd_take(&handle->fd);
        _cleanup_free_ struct cuda_extent *x = NULL;
        struct cuda_device *d = cuda_device(device);
        cu_result result;
        int r;

        if (fd < 0 || bytes == 0 || bytes % device->props.granularity_bytes != 0)
                return cuda_fail(d, -EINVAL, NULL);
        r = cuda_start(d);
        if (r == 0)
                r = cuda_extent_new(d, bytes, &x);
        if (r < 0)
                return r;
        x->is_imported = true;
        result = d->cuda->MemImport(&x->handle, (void *)(uintptr_t)fd, CU_HANDLE_POSIX_FD);
        r = cuda_check(d, "cuMemImportFromShareableHandle", result);
        if (r < 0)
                /* A descriptor of another kind gives this error. */
                return result == CU_OPERATING_SYSTEM ? -EINVAL : r;
        x->has_handle = true;
        r = d->side == DEVICE_OWNER ? take_over(x) : 0;
        if (r < 0)
                return r;
        *ret_extent = &TAKE(x)->extent;
        return 0;
}

static int vmm_extent_export(struct extent *e, struct extent_handle *ret_handle)
{
        struct cuda_extent *x = cuda_extent(e);
        struct cuda_device *d = cuda_device_of(x);
        int fd = -1, r = cuda_start(d);

        if (r < 0)
                return r;
        if (!x->has_handle)
                return cuda_fail(d, -EINVAL, "an extent that is imported and mapped has no handle");
        r = cuda_check(d, "cuMemExportToShareableHandle",
                d->cuda->MemExport(&fd, x->handle, CU_HANDLE_POSIX_FD, 0));
        if (r < 0)
                return r;
        /* The driver says nothing about the flag. */
        if (fcntl(fd, F_SETFD, FD_CLOEXEC) < 0) {
                r = cuda_fail(d, -errno, "the descriptor that the driver exported can't be used");
                fd_close(fd);
                return r;
        }
        *ret_handle = (struct extent_handle){.fd = fd};
        return 0;
}

static int reserve_address(
        struct cuda_device *d, uint64_t bytes, uint64_t wanted, cu_deviceptr *ret_at)
{
        cu_deviceptr at;
        cu_result result = d->cuda->MemAddressReserve(
                &at, bytes, d->device.props.granularity_bytes, wanted, 0);
        int r = cuda_check(d, "cuMemAddressReserve", result);

        /* How a driver refuses an address isn't documented. */
        if (wanted && (result == CU_OUT_OF_MEMORY || result == CU_INVALID_VALUE))
                return -EBUSY;
        if (r < 0)
                return r;
        if (wanted && at != wanted) {
                cuda_ignore(d, "cuMemAddressFree", d->cuda->MemAddressFree(at, bytes));
                return cuda_fail(d, -EBUSY, "the addresses are in use");
        }
        *ret_at = at;
        return 0;
}

static int vmm_arena_reserve(
        struct device *device, uint64_t bytes, uint64_t wanted, struct device_arena **ret_arena)
{
        _cleanup_free_ struct cuda_arena *a = NULL;
        struct cuda_device *d = cuda_device(device);
        uint64_t step = device->props.granularity_bytes;
        int r = cuda_start(d);

        if (r < 0)
                return r;
        if (bytes == 0 || wanted % step != 0)
                return cuda_fail(d, -EINVAL, NULL);
        if (bytes > INT64_MAX - step)
                return cuda_fail(d, -ENOMEM, NULL);
        a = calloc(1, sizeof(*a));
        if (!a)
                return cuda_fail(d, -ENOMEM, NULL);
        a->arena = (struct device_arena){.device = device, .bytes = bytes};
        a->reserved_bytes = round_up_u64(bytes, step);
        r = reserve_address(d, a->reserved_bytes, wanted, &a->base);
        if (r < 0)
                return r;
        *ret_arena = &TAKE(a)->arena;
        return 0;
}

static void vmm_arena_release(struct device_arena *arena)
{
        struct cuda_arena *a = cuda_arena(arena);
        struct cuda_device *d = cuda_device(arena->device);

        /* A range with mappings can't be freed. */
        if (a->n_maps == 0)
                cuda_ignore(
                        d, "cuMemAddressFree", d->cuda->MemAddressFree(a->base, a->reserved_bytes));
        free(a);
}

static void *vmm_arena_base(const struct device_arena *a)
{
        return (void *)(uintptr_t)cuda_arena(a)->base;
}

static bool has_place(const struct cuda_arena *a, uint64_t offset, const struct extent *e)
{
        return offset % a->arena.device->props.granularity_bytes == 0 && offset <= a->arena.bytes &&
               e->bytes <= a->arena.bytes - offset;
}

static int vmm_arena_map(
        struct device_arena *arena, uint64_t offset, struct extent *e, enum device_access access)
{
        struct cuda_arena *a = cuda_arena(arena);
        struct cuda_extent *x = cuda_extent(e);
        cu_deviceptr at = a->base + offset;
        bool is_mapped = false;
        int r = cuda_start(cuda_device_of(x));

        if (r < 0)
                return r;
        if (!has_place(a, offset, e) || !x->has_handle || (x->arena_address && x->is_imported))
                return cuda_fail(cuda_device_of(x), -EINVAL, NULL);
        /* An extent of another size is refused here: the driver maps the whole or nothing, and has
         * no call that tells the size. */
        r = map_at(x, at, access == DEVICE_READ_WRITE ? CU_ACCESS_READ_WRITE : CU_ACCESS_READ,
                &is_mapped);
        a->n_maps += is_mapped;
        if (r < 0)
                return r;
        x->arena_address = at;
        if (x->is_imported) {
                x->address = at;
                release_handle(x);
        }
        return 0;
}

static int vmm_arena_unmap(struct device_arena *arena, uint64_t offset, struct extent *e)
{
        struct cuda_arena *a = cuda_arena(arena);
        struct cuda_extent *x = cuda_extent(e);
        struct cuda_device *d = cuda_device_of(x);
        cu_deviceptr at = a->base + offset;
        int r;

        if (!has_place(a, offset, e) || a->n_maps == 0 ||
                (x->arena_address != at && x->is_imported))
                return cuda_fail(d, -EINVAL, NULL);
        r = cuda_check(d, "cuMemUnmap", d->cuda->MemUnmap(at, e->bytes));
        if (r < 0)
                return r;
        a->n_maps--;
        if (x->arena_address == at)
                x->arena_address = 0;
        if (x->is_imported)
                x->address = 0;
        return 0;
}

const struct cuda_memory vmm_memory = {
        .ops = {CUDA_COMMON_OPS, .extent_import = vmm_extent_import,
                .extent_export = vmm_extent_export, .arena_reserve = vmm_arena_reserve,
                .arena_release = vmm_arena_release, .arena_base = vmm_arena_base,
                .arena_map = vmm_arena_map, .arena_unmap = vmm_arena_unmap},
        .allocate = vmm_allocate,
        .release = vmm_release,
};
