#include "tests/unit/fake-gpu.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/fd.h"
#include "base/macros.h"

#define GRANULARITY (UINT64_C(2) << 20)

struct fake_gpu fake_gpu;

struct gpu_extent {
        struct extent extent;
        int fd; /* owned */
        uint8_t handle[2];
        uint8_t *at; /* where it is mapped, of several places the last */
        unsigned n_at;
        bool is_own;
};

struct gpu_arena {
        struct device_arena arena;
        uint8_t *base; /* NULL: extents have their own */
};

static struct gpu_extent *gpu_extent(const struct extent *e)
{
        return container_of((struct extent *)e, struct gpu_extent, extent);
}

/* ---- memory --------------------------------------------------------------------------------- */

static void gpu_close(struct device *d)
{
        fake_gpu.n_open--;
        free(d);
}

static int gpu_extent_import(
        struct device *d, struct extent_handle *handle, uint64_t bytes, struct extent **ret_extent)
{
        bool by_fd = d->props.transport == TRANSPORT_VMM;
        struct gpu_extent *e;

        if (by_fd ? handle->fd < 0 : handle->bytes[0] == 0)
                return -EINVAL;
        e = calloc(1, sizeof(*e));
        if (!e)
                return -ENOMEM;
        e->extent = (struct extent){.device = d, .bytes = bytes};
        e->fd = fd_take(&handle->fd);
        memcpy(e->handle, handle->bytes, sizeof(e->handle));
        *ret_extent = &e->extent;
        return 0;
}

static int gpu_extent_create(struct device *d, uint64_t bytes, struct extent **ret_extent)
{
        struct extent_handle handle = {.fd = -1, .bytes = {1}};
        int r;

        if (fake_gpu.create_error < 0)
                return fake_gpu.create_error;
        if (d->props.transport == TRANSPORT_VMM)
                handle.fd = memfd_create("own", MFD_CLOEXEC);
        if (handle.fd >= 0 && ftruncate(handle.fd, (off_t)bytes) < 0)
                return -errno;
        r = gpu_extent_import(d, &handle, bytes, ret_extent);
        if (r == 0)
                gpu_extent(*ret_extent)->is_own = true;
        return r;
}

static void gpu_extent_destroy(struct extent *e, bool last_owner)
{
        assert(!last_owner && !gpu_extent(e)->at);
        fd_close(gpu_extent(e)->fd);
        free(gpu_extent(e));
}

static int gpu_extent_read(struct extent *e, uint64_t offset, void *dst, uint64_t len)
{
        assert(gpu_extent(e)->at && offset + len <= e->bytes);
        if (fake_gpu.is_broken)
                return -ENXIO;
        memcpy(dst, gpu_extent(e)->at + offset, len);
        return 0;
}

static int gpu_extent_copy(struct extent *dst, uint64_t dst_offset, struct extent *src,
        uint64_t src_offset, uint64_t len)
{
        assert(gpu_extent(dst)->at && dst_offset + len <= dst->bytes);
        return gpu_extent_read(src, src_offset, gpu_extent(dst)->at + dst_offset, len);
}

static int gpu_extent_write(struct extent *e, uint64_t offset, const void *src, uint64_t len)
{
        assert(gpu_extent(e)->at && offset + len <= e->bytes);
        if (fake_gpu.is_broken)
                return -ENXIO;
        memcpy(gpu_extent(e)->at + offset, src, len);
        return 0;
}

static int gpu_arena_reserve(
        struct device *d, uint64_t bytes, uint64_t wanted, struct device_arena **ret_arena)
{
        struct gpu_arena *a = calloc(1, sizeof(*a));

        if (!a)
                return -ENOMEM;
        a->arena = (struct device_arena){.device = d, .bytes = bytes};
        if (d->props.is_contiguous)
                a->base = mmap((void *)(uintptr_t)wanted, bytes, PROT_NONE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE |
                                (wanted ? MAP_FIXED_NOREPLACE : 0),
                        -1, 0);
        if (a->base == MAP_FAILED) {
                free(a);
                return errno == EEXIST ? -EBUSY : -errno;
        }
        *ret_arena = &a->arena;
        return 0;
}

static void gpu_arena_release(struct device_arena *arena)
{
        struct gpu_arena *a = container_of(arena, struct gpu_arena, arena);

        if (a->base)
                munmap(a->base, arena->bytes);
        free(a);
}

static void *gpu_arena_base(const struct device_arena *arena)
{
        return container_of((struct device_arena *)arena, struct gpu_arena, arena)->base;
}

static void *gpu_extent_address(const struct extent *e)
{
        return gpu_extent(e)->at;
}

static int gpu_arena_map(struct device_arena *arena, uint64_t offset, struct extent *extent,
        enum device_access access)
{
        struct gpu_arena *a = container_of(arena, struct gpu_arena, arena);
        struct gpu_extent *e = gpu_extent(extent);
        void *at;

        assert((!e->at || e->is_own) && access == DEVICE_READ_WRITE);
        assert(offset % GRANULARITY == 0 && offset + extent->bytes <= arena->bytes);
        if (fake_gpu.is_broken)
                return -ENXIO;
        if (a->base)
                at = mmap(a->base + offset, extent->bytes, PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_FIXED, e->fd, 0);
        else if (e->n_at == 0)
                at = mmap(NULL, extent->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
                        -1, 0);
        else
                at = e->at;
        if (at == MAP_FAILED)
                return -errno;
        e->at = at;
        e->n_at++;
        if (!a->base && !e->is_own)
                memcpy(e->at, e->handle, sizeof(e->handle));
        fake_gpu.n_mapped++;
        return 0;
}

static int gpu_arena_unmap(struct device_arena *arena, uint64_t offset, struct extent *extent)
{
        struct gpu_arena *a = container_of(arena, struct gpu_arena, arena);
        struct gpu_extent *e = gpu_extent(extent);

        assert(e->n_at > 0 && (!a->base || e->is_own || e->at == a->base + offset));
        if (fake_gpu.unmap_error < 0)
                return fake_gpu.unmap_error;
        e->n_at--;
        if (a->base)
                mmap(a->base + offset, extent->bytes, PROT_NONE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
        else if (e->n_at == 0)
                munmap(e->at, extent->bytes);
        if (e->n_at == 0)
                e->at = NULL;
        fake_gpu.n_unmapped++;
        return 0;
}

/* ---- streams -------------------------------------------------------------------------------- */

static int gpu_stream_call(struct device *d, void *stream, void (*fn)(void *data), void *data)
{
        int r = 0;

        pthread_mutex_lock(&fake_gpu.lock);
        assert(fake_gpu.n_calls < FAKE_GPU_MAX_CALLS);
        if (fake_gpu.is_broken)
                r = -ENXIO;
        else
                fake_gpu.calls[fake_gpu.n_calls++] =
                        (struct fake_gpu_call){.stream = stream, .fn = fn, .data = data};
        pthread_mutex_unlock(&fake_gpu.lock);
        return r;
}

static int gpu_stream_query(struct device *d, void *stream)
{
        int r;

        pthread_mutex_lock(&fake_gpu.lock);
        fake_gpu.n_queries++;
        r = fake_gpu.is_broken ? -ENXIO : fake_gpu.n_run == fake_gpu.n_calls ? 0 : -EBUSY;
        pthread_mutex_unlock(&fake_gpu.lock);
        return r;
}

static int gpu_stream_wait(struct device *d, void *stream)
{
        int r;

        if (fake_gpu.on_wait)
                fake_gpu.on_wait(fake_gpu.on_wait_data);
        pthread_mutex_lock(&fake_gpu.lock);
        fake_gpu.n_waits++;
        fake_gpu.waited_for = stream;
        r = fake_gpu.is_broken ? -ENXIO : 0;
        pthread_mutex_unlock(&fake_gpu.lock);
        return r;
}

static void *run_calls(void *data)
{
        for (;;) {
                struct fake_gpu_call call;

                pthread_mutex_lock(&fake_gpu.lock);
                if (fake_gpu.n_to_run == 0 || fake_gpu.n_run == fake_gpu.n_calls)
                        break;
                fake_gpu.n_to_run--;
                call = fake_gpu.calls[fake_gpu.n_run++];
                pthread_mutex_unlock(&fake_gpu.lock);
                call.fn(call.data);
        }
        pthread_mutex_unlock(&fake_gpu.lock);
        return NULL;
}

void fake_gpu_run_start(unsigned n)
{
        fake_gpu.n_to_run = n;
        if (pthread_create(&fake_gpu.thread, NULL, run_calls, NULL) != 0)
                abort();
}

void fake_gpu_run_join(void)
{
        pthread_join(fake_gpu.thread, NULL);
}

void fake_gpu_run(unsigned n)
{
        fake_gpu_run_start(n);
        fake_gpu_run_join();
}

void fake_gpu_break(void)
{
        pthread_mutex_lock(&fake_gpu.lock);
        fake_gpu.is_broken = true;
        pthread_mutex_unlock(&fake_gpu.lock);
}

/* ---- the device ----------------------------------------------------------------------------- */

void fake_gpu_reset(enum device_transport transport)
{
        assert(fake_gpu.n_open == 0);
        fake_gpu = (struct fake_gpu){.transport = transport, .lock = PTHREAD_MUTEX_INITIALIZER};
}

int __real_device_open(const char *name, const struct device_options *options,
        struct device **ret_device, char why[DEVICE_WHY_BYTES]);
int __wrap_device_open(const char *name, const struct device_options *options,
        struct device **ret_device, char why[DEVICE_WHY_BYTES]);

int __wrap_device_open(const char *name, const struct device_options *options,
        struct device **ret_device, char why[DEVICE_WHY_BYTES])
{
        static const struct device_ops ops = {
                .close = gpu_close,
                .extent_create = gpu_extent_create,
                .extent_import = gpu_extent_import,
                .extent_destroy = gpu_extent_destroy,
                .extent_copy = gpu_extent_copy,
                .extent_read = gpu_extent_read,
                .extent_write = gpu_extent_write,
                .arena_reserve = gpu_arena_reserve,
                .arena_release = gpu_arena_release,
                .arena_base = gpu_arena_base,
                .extent_address = gpu_extent_address,
                .arena_map = gpu_arena_map,
                .arena_unmap = gpu_arena_unmap,
                .stream_call = gpu_stream_call,
                .stream_query = gpu_stream_query,
                .stream_wait = gpu_stream_wait,
        };
        struct device *d;

        if (strcmp(name, "host") == 0)
                return __real_device_open(name, options, ret_device, why);
        if (fake_gpu.open_error) {
                snprintf(why, DEVICE_WHY_BYTES, "%s", fake_gpu.open_why);
                return fake_gpu.open_error;
        }
        assert(options->side == DEVICE_USER);
        d = calloc(1, sizeof(*d));
        if (!d)
                return -ENOMEM;
        d->ops = &ops;
        snprintf(d->props.name, sizeof(d->props.name), "%s", name);
        d->props.transport = options->transport;
        d->props.unit_bytes = d->props.granularity_bytes = GRANULARITY;
        d->props.is_contiguous = options->transport == TRANSPORT_VMM;
        fake_gpu.n_open++;
        *ret_device = d;
        return 0;
}
