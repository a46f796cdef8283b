/*
 * Zeroing and its proof, copies one by one and in batches, and registered host memory. A copy of
 * the driver must not span two registrations, nor registered and other memory: copies are cut into
 * pieces there.
 */
#include "gpu/cuda.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct cuda_batch {
        struct device_batch batch;
        cu_event event;   /* owned */
        cu_stream stream; /* borrowed of the device */
};

/* A part of a copy for one call of the driver. */
struct piece {
        cu_deviceptr at;
        uint8_t *host;
        uint64_t len;
        bool is_registered;
};

/* Walks the pieces of copies. */
struct pieces {
        const struct cuda_device *d;
        const struct device_copy *copies;
        size_t n, i;
        uint64_t done; /* of copies[i] */
};

static bool is_within(const struct extent *e, uint64_t offset, uint64_t len)
{
        return offset <= e->bytes && len <= e->bytes - offset;
}

/* Bytes from `host` on, up to the start or the end of a registration. */
static uint64_t run_length(
        const struct cuda_device *d, uintptr_t host, uint64_t len, bool *ret_is_registered)
{
        const struct cuda_device *by = d->registrar ? d->registrar : d;

        *ret_is_registered = false;
        for (size_t i = 0; i < by->n_registrations; i++) {
                const struct cuda_registration *g = &by->registrations[i];

                if (host >= g->at && host - g->at < g->bytes) {
                        *ret_is_registered = true;
                        return MIN(len, g->at + g->bytes - host);
                }
                if (g->at > host && g->at - host < len)
                        len = g->at - host;
        }
        return len;
}

static bool pieces_next(struct pieces *it, struct piece *ret_piece)
{
        const struct device_copy *c;

        while (it->i < it->n && it->done == it->copies[it->i].len) {
                it->i++;
                it->done = 0;
        }
        if (it->i == it->n)
                return false;
        c = &it->copies[it->i];
        ret_piece->at = cuda_extent(c->extent)->address + c->offset + it->done;
        ret_piece->host = (uint8_t *)c->host + it->done;
        ret_piece->len = run_length(
                it->d, (uintptr_t)ret_piece->host, c->len - it->done, &ret_piece->is_registered);
        it->done += ret_piece->len;
        return true;
}

static int copy_piece(struct cuda_device *d, enum device_direction direction, const struct piece *p,
        cu_stream stream)
{
        if (direction == DEVICE_TO_HOST)
                return cuda_check(d, "cuMemcpyDtoHAsync",
                        d->cuda->MemcpyDtoHAsync(p->host, p->at, p->len, stream));
        return cuda_check(
                d, "cuMemcpyHtoDAsync", d->cuda->MemcpyHtoDAsync(p->at, p->host, p->len, stream));
}

static int copy_pieces(
        struct cuda_device *d, enum device_direction direction, struct pieces it, cu_stream stream)
{
        struct piece p;
        int r = 0;

        while (r == 0 && pieces_next(&it, &p))
                r = copy_piece(d, direction, &p, stream);
        return r;
}

/* Also after a failure: copies started before use the caller's memory. */
static int finish_copy(struct cuda_device *d, cu_stream stream, int r)
{
        cu_result result = d->cuda->StreamSynchronize(stream);

        /* A broken context runs nothing. After any other error of the stream, the memory may still
         * be in use. */
        if (result != CU_OK && !cuda_is_fatal(result))
                cuda_ignore(d, "cuCtxSynchronize", d->cuda->CtxSynchronize());
        if (r == 0)
                return cuda_check(d, "cuStreamSynchronize", result);
        cuda_ignore(d, "cuStreamSynchronize", result);
        return r;
}

/* Enters the context, with a stream. */
static int begin_copy(struct cuda_device *d, enum cuda_stream which, cu_stream *ret_stream)
{
        int r = cuda_enter(d);

        if (r < 0)
                return r;
        r = cuda_stream_get(d, which, ret_stream);
        if (r < 0)
                cuda_leave(d);
        return r;
}

static int check_reachable(
        struct cuda_device *d, const struct extent *e, uint64_t offset, uint64_t len)
{
        if (!is_within(e, offset, len))
                return cuda_fail(d, -EINVAL, "these bytes aren't all of one extent");
        if (cuda_extent(e)->address)
                return 0;
        return cuda_fail(d, -EINVAL, "the extent isn't mapped: only then can it be copied");
}

int cuda_extent_zero(struct extent *e, uint64_t offset, uint64_t len)
{
        struct cuda_device *d = cuda_device(e->device);
        cu_stream stream;
        int r;

        r = check_reachable(d, e, offset, len);
        if (r < 0 || len == 0)
                return r;
        r = begin_copy(d, CUDA_STREAM_SYNC, &stream);
        if (r < 0)
                return r;
        r = cuda_check(d, "cuMemsetD8Async",
                d->cuda->MemsetD8Async(cuda_extent(e)->address + offset, 0, len, stream));
        if (r == 0)
                r = finish_copy(d, stream, 0);
        cuda_leave(d);
        return r;
}

static bool is_zero(const uint8_t *p, size_t len)
{
        return p[0] == 0 && memcmp(p, p + 1, len - 1) == 0;
}

int cuda_prove_zero(struct cuda_extent *x)
{
        struct cuda_device *d = cuda_device_of(x);
        uint64_t step = (x->extent.bytes / CUDA_PROBE_BYTES - 1) / (CUDA_PROBES - 1);
        cu_stream stream;
        int r;

        if (x->extent.bytes < CUDA_PROBES * CUDA_PROBE_BYTES)
                return cuda_fail(d, -EINVAL, "the extent is too small to be looked at");
        r = begin_copy(d, CUDA_STREAM_SYNC, &stream);
        if (r < 0)
                return r;
        /* A copy that does nothing proves nothing. */
        memset(d->probes, 0xff, sizeof(d->probes));
        for (unsigned i = 0; r == 0 && i < CUDA_PROBES; i++) {
                uint64_t at = i == CUDA_PROBES - 1 ? x->extent.bytes - CUDA_PROBE_BYTES
                                                   : i * step * CUDA_PROBE_BYTES;
                struct piece p = {x->address + at, d->probes[i], CUDA_PROBE_BYTES, false};

                r = copy_piece(d, DEVICE_TO_HOST, &p, stream);
        }
        r = finish_copy(d, stream, r);
        cuda_leave(d);
        if (r == 0 && !is_zero(d->probes[0], sizeof(d->probes)))
                r = cuda_fail(d, -EIO, "memory read back as nonzero after it was zeroed");
        return r;
}

int cuda_extent_copy(struct extent *dst, uint64_t dst_offset, struct extent *src,
        uint64_t src_offset, uint64_t len)
{
        struct cuda_device *d = cuda_device(dst->device);
        cu_stream stream;
        int r;

        if (src->device != dst->device ||
                (dst == src && dst_offset + len > src_offset && src_offset + len > dst_offset))
                return cuda_fail(
                        d, -EINVAL, "only bytes of one device that don't overlap are copied");
        r = check_reachable(d, dst, dst_offset, len);
        if (r == 0)
                r = check_reachable(d, src, src_offset, len);
        if (r < 0 || len == 0)
                return r;
        r = begin_copy(d, CUDA_STREAM_SYNC, &stream);
        if (r < 0)
                return r;
        r = cuda_check(d, "cuMemcpyDtoDAsync",
                d->cuda->MemcpyDtoDAsync(cuda_extent(dst)->address + dst_offset,
                        cuda_extent(src)->address + src_offset, len, stream));
        if (r == 0)
                r = finish_copy(d, stream, 0);
        cuda_leave(d);
        return r;
}

static int copy_and_wait(enum device_direction direction, const struct device_copy *copy)
{
        struct cuda_device *d = cuda_device(copy->extent->device);
        cu_stream stream;
        int r;

        r = check_reachable(d, copy->extent, copy->offset, copy->len);
        if (r < 0 || copy->len == 0)
                return r;
        r = begin_copy(d, CUDA_STREAM_SYNC, &stream);
        if (r < 0)
                return r;
        r = copy_pieces(d, direction, (struct pieces){.d = d, .copies = copy, .n = 1}, stream);
        r = finish_copy(d, stream, r);
        cuda_leave(d);
        return r;
}

int cuda_extent_read(struct extent *e, uint64_t offset, void *dst, uint64_t len)
{
        struct device_copy copy = {.extent = e, .offset = offset, .host = dst, .len = len};

        return copy_and_wait(DEVICE_TO_HOST, &copy);
}

int cuda_extent_write(struct extent *e, uint64_t offset, const void *src, uint64_t len)
{
        struct device_copy copy = {.extent = e, .offset = offset, .host = (void *)src, .len = len};

        return copy_and_wait(DEVICE_FROM_HOST, &copy);
}

/* ---- batches --------------------------------------------------------------------------------- */

/* Both ABIs. Sources may have been written by earlier work, so they are read in stream order. */
static cu_result call_batch(struct cuda_device *d, cu_deviceptr *dsts, cu_deviceptr *srcs,
        size_t *bytes, size_t n, cu_stream stream)
{
        cu_memcpy_attributes attributes = {.src_access_order = CU_ACCESS_ORDER_STREAM};
        size_t index = 0, failed = SIZE_MAX;

        if (d->cuda->capabilities & CUDA_HAS_BATCH2)
                return d->cuda->MemcpyBatchAsync2(
                        dsts, srcs, bytes, n, &attributes, &index, 1, stream);
        return d->cuda->MemcpyBatchAsync(
                dsts, srcs, bytes, n, &attributes, &index, 1, &failed, stream);
}

/*
 * Copies all pieces in one call of the driver. -EOPNOTSUPP: the driver lacks the call, or refused
 * it, or some memory isn't registered, which suits batches badly.
 */
static int copy_batch(
        struct cuda_device *d, enum device_direction direction, struct pieces it, cu_stream stream)
{
        _cleanup_free_ cu_deviceptr *lists = NULL;
        cu_deviceptr *device, *host;
        struct pieces counting = it;
        struct piece p;
        cu_result result;
        size_t *bytes, n = 0;

        _Static_assert(sizeof(*bytes) == sizeof(*lists), "one allocation for all three");

        if (d->no_batches || !(d->cuda->capabilities & (CUDA_HAS_BATCH | CUDA_HAS_BATCH2)))
                return -EOPNOTSUPP;
        for (; pieces_next(&counting, &p); n++)
                if (!p.is_registered)
                        return -EOPNOTSUPP;
        if (n == 0)
                return 0;
        lists = calloc(3 * n, sizeof(*lists));
        if (!lists)
                return cuda_fail(d, -ENOMEM, NULL);
        device = lists;
        host = lists + n;
        bytes = (size_t *)(lists + 2 * n);
        for (size_t i = 0; pieces_next(&it, &p); i++) {
                device[i] = p.at;
                host[i] = (uintptr_t)p.host;
                bytes[i] = p.len;
        }
        result = direction == DEVICE_TO_HOST ? call_batch(d, host, device, bytes, n, stream)
                                             : call_batch(d, device, host, bytes, n, stream);
        if (result == CU_NOT_SUPPORTED)
                d->no_batches = true;
        return cuda_check(d, "cuMemcpyBatchAsync", result);
}

static int start_copies(struct cuda_device *d, enum device_direction direction, struct pieces it,
        cu_stream stream, cu_event event)
{
        int r = copy_batch(d, direction, it, stream);

        if (r == -EOPNOTSUPP)
                r = copy_pieces(d, direction, it, stream);
        if (r == 0)
                r = cuda_check(d, "cuEventRecord", d->cuda->EventRecord(event, stream));
        return r < 0 ? finish_copy(d, stream, r) : 0;
}

int cuda_batch_start(struct device *device, enum device_direction direction,
        const struct device_copy *copies, size_t n, struct device_batch **ret_batch)
{
        _cleanup_free_ struct cuda_batch *b = NULL;
        struct cuda_device *d = cuda_device(device);
        struct pieces it = {.d = d, .copies = copies, .n = n};
        cu_stream stream;
        int r = 0;

        for (size_t i = 0; r == 0 && i < n; i++)
                r = check_reachable(d, copies[i].extent, copies[i].offset, copies[i].len);
        if (r < 0)
                return r;
        b = calloc(1, sizeof(*b));
        if (!b)
                return cuda_fail(d, -ENOMEM, NULL);
        b->batch.device = device;
        r = begin_copy(d, (enum cuda_stream)direction, &stream);
        if (r < 0)
                return r;
        b->stream = stream;
        r = cuda_check(
                d, "cuEventCreate", d->cuda->EventCreate(&b->event, CU_EVENT_DISABLE_TIMING));
        if (r == 0) {
                r = start_copies(d, direction, it, stream, b->event);
                if (r < 0)
                        cuda_ignore(d, "cuEventDestroy", d->cuda->EventDestroy(b->event));
        }
        cuda_leave(d);
        if (r < 0)
                return r;
        *ret_batch = &TAKE(b)->batch;
        return 0;
}

/* On a broken device no copy runs any more: done, and failed. If the context can't be made current
 * for another reason, the state is unknown: not done. */
int cuda_batch_poll(struct device_batch *batch)
{
        struct cuda_batch *b = container_of(batch, struct cuda_batch, batch);
        struct cuda_device *d = cuda_device(batch->device);
        bool is_entered = cuda_enter_release(d);
        int r = cuda_start(d);

        if (r == 0 && !is_entered)
                return -EBUSY;
        if (r == 0) {
                cu_result result = d->cuda->EventQuery(b->event);

                if (result == CU_NOT_READY)
                        r = -EBUSY;
                else if (result != CU_OK)
                        r = finish_copy(d, b->stream, cuda_check(d, "cuEventQuery", result));
        }
        if (r != -EBUSY && is_entered)
                cuda_ignore(d, "cuEventDestroy", d->cuda->EventDestroy(b->event));
        if (is_entered)
                cuda_leave(d);
        if (r != -EBUSY)
                free(b);
        return r;
}

/* ---- host memory ----------------------------------------------------------------------------- */

static int register_chunk(struct cuda_device *d, uintptr_t at, uint64_t bytes)
{
        struct cuda_registration *more;
        int r;

        more = realloc(d->registrations, (d->n_registrations + 1) * sizeof(*more));
        if (!more)
                return cuda_fail(d, -ENOMEM, NULL);
        d->registrations = more;
        r = cuda_check(d, "cuMemHostRegister",
                d->cuda->MemHostRegister((void *)at, bytes, CU_HOST_REGISTER_PORTABLE));
        if (r == 0)
                more[d->n_registrations++] = (struct cuda_registration){.at = at, .bytes = bytes};
        return r;
}

/* Unregisters all of it, also after a failure; returns the first one. In the context. */
static int unregister_range(struct cuda_device *d, uintptr_t at, uint64_t bytes)
{
        cu_result first = CU_OK;
        size_t kept = 0;

        for (size_t i = 0; i < d->n_registrations; i++) {
                struct cuda_registration g = d->registrations[i];
                cu_result result;

                if (g.at < at || g.at - at >= bytes) {
                        d->registrations[kept++] = g;
                        continue;
                }
                result = d->cuda->MemHostUnregister((void *)g.at);
                first = first == CU_OK ? result : first;
        }
        d->n_registrations = kept;
        return cuda_check(d, "cuMemHostUnregister", first);
}

int cuda_host_register(struct device *device, void *host, uint64_t bytes)
{
        struct cuda_device *d = cuda_device(device);
        uintptr_t at = (uintptr_t)host;
        uint64_t done = 0;
        int r = cuda_enter(d);

        if (r < 0)
                return r;
        while (r == 0 && done < bytes) {
                uint64_t chunk = MIN(bytes - done, d->register_chunk_bytes);

                r = register_chunk(d, at + done, chunk);
                done += r == 0 ? chunk : 0;
        }
        if (r < 0) {
                char why[DEVICE_WHY_BYTES];

                memcpy(why, device->why, sizeof(why));
                (void)unregister_range(d, at, done);
                memcpy(device->why, why, sizeof(why));
        }
        cuda_leave(d);
        return r;
}

int cuda_host_unregister(struct device *device, void *host, uint64_t bytes)
{
        struct cuda_device *d = cuda_device(device);
        int r;

        if (d->n_registrations == 0)
                return 0;
        if (!cuda_enter_release(d))
                return cuda_fail(d, -ENXIO, "the context of registered host memory is gone");
        r = unregister_range(d, (uintptr_t)host, bytes);
        cuda_leave(d);
        return r;
}

/* Registrations are portable: they hold in the contexts of all devices. */
void cuda_host_follow(struct device *device, struct device *first)
{
        cuda_device(device)->registrar = cuda_device(first);
}
