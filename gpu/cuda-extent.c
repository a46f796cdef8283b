/* Extents of both kinds of memory: created zeroed, checked, destroyed. */
#include "gpu/cuda.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int cuda_extent_new(struct cuda_device *d, uint64_t bytes, struct cuda_extent **ret_extent)
{
        struct cuda_extent *x = calloc(1, sizeof(*x));

        if (!x)
                return cuda_fail(d, -ENOMEM, NULL);
        x->extent = (struct extent){.device = &d->device, .bytes = bytes};
        list_init(&x->exported);
        *ret_extent = x;
        return 0;
}

/* Adds the memory's size to the sentence. In the context. */
static void add_memory_info(struct cuda_device *d)
{
        size_t len = strlen(d->device.why), free_bytes, total_bytes;

        if (d->cuda->MemGetInfo(&free_bytes, &total_bytes) != CU_OK)
                return;
        snprintf(d->device.why + len, sizeof(d->device.why) - len,
                "; %zu of %zu MiB of %s are free", free_bytes >> 20, total_bytes >> 20,
                d->device.props.name);
}

static int create_in_context(struct cuda_device *d, struct cuda_extent *x)
{
        int r = d->memory->allocate(x);

        if (r == 0)
                r = cuda_extent_zero(&x->extent, 0, x->extent.bytes);
        if (r == 0)
                r = cuda_prove_zero(x);
        if (r == -ENOMEM)
                add_memory_info(d);
        if (r < 0)
                d->memory->release(x, true);
        return r;
}

int cuda_extent_create(struct device *device, uint64_t bytes, struct extent **ret_extent)
{
        _cleanup_free_ struct cuda_extent *x = NULL;
        struct cuda_device *d = cuda_device(device);
        int r;

        if (bytes == 0 || bytes % device->props.granularity_bytes != 0)
                return cuda_fail(d, -EINVAL, NULL);
        r = cuda_extent_new(d, bytes, &x);
        if (r == 0)
                r = cuda_enter(d);
        if (r < 0)
                return r;
        r = create_in_context(d, x);
        cuda_leave(d);
        if (r < 0)
                return r;
        *ret_extent = &TAKE(x)->extent;
        return 0;
}

/*
 * Destroys an extent. An owner's is zeroed first, if possible. A descriptor elsewhere would keep
 * the memory, and whether the driver clears memory for the next process depends on the machine's
 * settings.
 */
void cuda_extent_destroy(struct extent *e, bool last_owner)
{
        struct cuda_extent *x = cuda_extent(e);
        struct cuda_device *d = cuda_device_of(x);
        char why[DEVICE_WHY_BYTES];
        bool is_entered;

        memcpy(why, d->device.why, sizeof(why));
        if (last_owner && !x->is_imported && !d->is_broken)
                (void)cuda_extent_zero(e, 0, e->bytes);
        is_entered = cuda_enter_release(d);
        d->memory->release(x, is_entered);
        if (is_entered)
                cuda_leave(d);
        memcpy(d->device.why, why, sizeof(why));
        free(x);
}

void *cuda_extent_address(const struct extent *e)
{
        return (void *)(uintptr_t)cuda_extent(e)->arena_address;
}
