/*
 * Legacy IPC: an extent is a cuMemAlloc() of its own, exported as 64 bytes that refer to it while
 * the owner keeps it. The driver chooses the importer's address, and importers can always write:
 * DEVICE_READ_ONLY has no effect.
 *
 * Opening a handle in the exporting process is an error in one driver and worse in another. So this
 * process's handles are remembered and refused before the driver sees them.
 */
#include "gpu/cuda.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

static pthread_mutex_t exported_lock = PTHREAD_MUTEX_INITIALIZER;
static struct list_link exported = {&exported, &exported};

static void remember_exported(struct cuda_extent *x)
{
        pthread_mutex_lock(&exported_lock);
        list_append(&exported, &x->exported);
        pthread_mutex_unlock(&exported_lock);
        x->is_exported = true;
}

static void forget_exported(struct cuda_extent *x)
{
        pthread_mutex_lock(&exported_lock);
        list_remove(&x->exported);
        pthread_mutex_unlock(&exported_lock);
}

static bool is_ours(const cu_ipc_mem_handle *handle)
{
        bool found = false;

        pthread_mutex_lock(&exported_lock);
        list_for_each (x, &exported, struct cuda_extent, exported)
                found |= memcmp(&x->ipc, handle, sizeof(*handle)) == 0;
        pthread_mutex_unlock(&exported_lock);
        return found;
}

static int ipc_allocate(struct cuda_extent *x)
{
        struct cuda_device *d = cuda_device_of(x);
        cu_deviceptr at;
        int r = cuda_check(d, "cuMemAlloc", d->cuda->MemAlloc(&at, x->extent.bytes));

        if (r == 0)
                x->allocation = x->address = at;
        return r;
}

static void ipc_release(struct cuda_extent *x, bool in_context)
{
        struct cuda_device *d = cuda_device_of(x);

        forget_exported(x);
        /* Unmap again, if an earlier unmap failed. */
        if (x->is_imported && x->arena_address && in_context)
                cuda_ignore(d, "cuIpcCloseMemHandle", d->cuda->IpcCloseMemHandle(x->arena_address));
        if (x->allocation && in_context)
                cuda_ignore(d, "cuMemFree", d->cuda->MemFree(x->allocation));
}

static int ipc_extent_import(struct device *device, struct extent_handle *handle, uint64_t bytes,
        struct extent **ret_extent)
{
        struct cuda_device *d = cuda_device(device);
        struct cuda_extent *x;
        cu_ipc_mem_handle ipc;
        int r = cuda_start(d);

        if (r < 0)
                return r;
        if (bytes == 0 || bytes % device->props.granularity_bytes != 0)
                return cuda_fail(d, -EINVAL, NULL);
        memcpy(&ipc, handle->bytes, sizeof(ipc));
        if (is_ours(&ipc))
                return cuda_fail(d, -EINVAL,
                        "cudaIpc memory can't be opened in the process that it is from");
        r = cuda_extent_new(d, bytes, &x);
        if (r < 0)
                return r;
        x->is_imported = true;
        x->ipc = ipc;
        *ret_extent = &x->extent;
        return 0;
}

static int ipc_extent_export(struct extent *e, struct extent_handle *ret_handle)
{
        struct cuda_extent *x = cuda_extent(e);
        struct cuda_device *d = cuda_device_of(x);
        int r;

        if (x->is_imported)
                return cuda_fail(d, -EINVAL, "cudaIpc memory is exported by its owner alone");
        if (!x->is_exported) {
                r = cuda_enter(d);
                if (r < 0)
                        return r;
                r = cuda_check(
                        d, "cuIpcGetMemHandle", d->cuda->IpcGetMemHandle(&x->ipc, x->allocation));
                cuda_leave(d);
                if (r < 0)
                        return r;
                remember_exported(x);
        }
        *ret_handle = (struct extent_handle){.fd = -1};
        memcpy(ret_handle->bytes, &x->ipc, sizeof(x->ipc));
        return 0;
}

static int ipc_arena_reserve(
        struct device *device, uint64_t bytes, uint64_t wanted, struct device_arena **ret_arena)
{
        struct cuda_device *d = cuda_device(device);
        struct cuda_arena *a;
        int r = cuda_start(d);

        if (r < 0)
                return r;
        if (wanted)
                return cuda_fail(d, -EOPNOTSUPP,
                        "cudaIpc memory lies where the driver puts it: it has no fixed addresses");
        a = calloc(1, sizeof(*a));
        if (!a)
                return cuda_fail(d, -ENOMEM, NULL);
        a->arena = (struct device_arena){.device = device, .bytes = bytes};
        *ret_arena = &a->arena;
        return 0;
}

static void ipc_arena_release(struct device_arena *arena)
{
        free(cuda_arena(arena));
}

static void *ipc_arena_base(const struct device_arena *a)
{
        return NULL;
}

static int open_handle(struct cuda_extent *x, cu_deviceptr *ret_at)
{
        struct cuda_device *d = cuda_device_of(x);
        int r = cuda_enter(d);

        if (r < 0)
                return r;
        r = cuda_check(d, "cuIpcOpenMemHandle",
                d->cuda->IpcOpenMemHandle(ret_at, x->ipc, CU_IPC_LAZY_ENABLE_PEER_ACCESS));
        cuda_leave(d);
        return r;
}

static int ipc_arena_map(
        struct device_arena *arena, uint64_t offset, struct extent *e, enum device_access access)
{
        struct cuda_arena *a = cuda_arena(arena);
        struct cuda_extent *x = cuda_extent(e);
        cu_deviceptr at = x->allocation;
        int r = cuda_start(cuda_device_of(x));

        if (r == 0 && (offset > arena->bytes || e->bytes > arena->bytes - offset ||
                              (x->arena_address && x->is_imported)))
                r = cuda_fail(cuda_device_of(x), -EINVAL, NULL);
        if (r == 0 && x->is_imported)
                r = open_handle(x, &at);
        if (r < 0)
                return r;
        a->n_maps++;
        x->arena_address = x->address = at;
        return 0;
}

/* Releases: on a broken device, too, if there is a context for it. */
static int close_handle(struct cuda_extent *x)
{
        struct cuda_device *d = cuda_device_of(x);
        int r;

        if (!cuda_enter_release(d))
                return cuda_fail(d, -ENXIO, "the context that the memory was opened in is gone");
        r = cuda_check(d, "cuIpcCloseMemHandle", d->cuda->IpcCloseMemHandle(x->arena_address));
        cuda_leave(d);
        return r;
}

static int ipc_arena_unmap(struct device_arena *arena, uint64_t offset, struct extent *e)
{
        struct cuda_arena *a = cuda_arena(arena);
        struct cuda_extent *x = cuda_extent(e);
        int r = 0;

        if (a->n_maps == 0 || (x->arena_address == 0 && x->is_imported))
                return cuda_fail(cuda_device_of(x), -EINVAL, NULL);
        if (x->is_imported)
                r = close_handle(x);
        if (r < 0)
                return r;
        a->n_maps--;
        x->arena_address = 0;
        if (x->is_imported)
                x->address = 0;
        return 0;
}

const struct cuda_memory ipc_memory = {
        .ops = {CUDA_COMMON_OPS, .extent_import = ipc_extent_import,
                .extent_export = ipc_extent_export, .arena_reserve = ipc_arena_reserve,
                .arena_release = ipc_arena_release, .arena_base = ipc_arena_base,
                .arena_map = ipc_arena_map, .arena_unmap = ipc_arena_unmap},
        .allocate = ipc_allocate,
        .release = ipc_release,
};
