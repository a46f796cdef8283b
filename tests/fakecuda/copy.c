/* cuMemset and cuMemcpy. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/fakecuda/fake.h"

static struct work *work_new(enum work_kind kind, size_t bytes)
{
        struct work *w = calloc(1, sizeof(*w));

        if (!w)
                fake_die("out of the host's memory");
        w->kind = kind;
        w->bytes = bytes;
        return w;
}

cu_result cuMemsetD8Async(cu_deviceptr at, unsigned char value, size_t n, cu_stream stream)
{
        cu_result r = fake_enter("cuMemsetD8Async", ENTER_BOUND);
        struct work *w;

        if (r != CU_OK || !n)
                return r;
        w = work_new(WORK_MEMSET, n);
        w->value = value;
        fake_lock();
        w->dst = fake_pin(&w->pins, at, n, fake_current()->device, true, "destination");
        stream_add(stream_find(stream), w);
        fake_unlock();
        return CU_OK;
}

/* Like the driver, reads pageable memory before the call returns. Locked. */
static void from_host(struct work *w, const void *src)
{
        w->regs[0] = host_find(src, w->bytes);
        if (w->regs[0]) {
                w->regs[0]->pins++;
                w->src = src;
                return;
        }
        w->staging = malloc(w->bytes);
        if (!w->staging)
                fake_die("out of the host's memory");
        memcpy(w->staging, src, w->bytes);
        w->src = w->staging;
}

/* Locked. Returns true for pageable memory, for which the call waits. */
static bool to_host(struct work *w, void *dst)
{
        w->dst = dst;
        w->regs[1] = host_find(dst, w->bytes);
        if (!w->regs[1])
                return true;
        if (w->regs[1]->flags & CU_HOST_REGISTER_READ_ONLY)
                fake_die("the destination %p is registered for reading only", dst);
        w->regs[1]->pins++;
        return false;
}

static void from_device(struct work *w, cu_deviceptr src)
{
        w->src = fake_pin(&w->pins, src, w->bytes, fake_current()->device, false, "source");
}

static void to_device(struct work *w, cu_deviceptr dst)
{
        w->dst = fake_pin(&w->pins, dst, w->bytes, fake_current()->device, true, "destination");
}

cu_result cuMemcpyHtoDAsync_v2(cu_deviceptr dst, const void *src, size_t bytes, cu_stream stream)
{
        cu_result r = fake_enter("cuMemcpyHtoDAsync", ENTER_BOUND);
        struct work *w;

        if (r != CU_OK || !bytes)
                return r;
        w = work_new(WORK_COPY, bytes);
        fake_lock();
        from_host(w, src);
        to_device(w, dst);
        stream_add(stream_find(stream), w);
        fake_unlock();
        return CU_OK;
}

cu_result cuMemcpyDtoHAsync_v2(void *dst, cu_deviceptr src, size_t bytes, cu_stream stream)
{
        cu_result r = fake_enter("cuMemcpyDtoHAsync", ENTER_BOUND);
        struct work *w;
        bool wait;

        if (r != CU_OK || !bytes)
                return r;
        w = work_new(WORK_COPY, bytes);
        fake_lock();
        from_device(w, src);
        wait = to_host(w, dst);
        stream_add(stream_find(stream), w);
        if (wait)
                r = stream_drain(stream_find(stream));
        fake_unlock();
        return r;
}

static void check_overlap(cu_deviceptr dst, cu_deviceptr src, size_t bytes)
{
        if (dst < src + bytes && src < dst + bytes)
                fake_die("source and destination overlap");
}

cu_result cuMemcpyDtoDAsync_v2(cu_deviceptr dst, cu_deviceptr src, size_t bytes, cu_stream stream)
{
        cu_result r = fake_enter("cuMemcpyDtoDAsync", ENTER_BOUND);
        struct work *w;

        if (r != CU_OK || !bytes)
                return r;
        check_overlap(dst, src, bytes);
        w = work_new(WORK_COPY, bytes);
        fake_lock();
        from_device(w, src);
        to_device(w, dst);
        stream_add(stream_find(stream), w);
        fake_unlock();
        return CU_OK;
}

/* Batches: addresses are of the host or of a device, by their value. */

/* A driver that may read the source before earlier work of the stream is the hazard here. */
static void check_attributes(const cu_memcpy_attributes *attributes, const size_t *indices,
        size_t n_attributes, size_t n)
{
        if (!n || !n_attributes || n_attributes > n)
                fake_die("%zu copies with %zu attributes", n, n_attributes);
        for (size_t i = 0; i < n_attributes; i++) {
                if (attributes[i].src_access_order != CU_ACCESS_ORDER_STREAM)
                        fake_die("the access order of the source must be STREAM");
                if (attributes[i].flags > 1)
                        fake_die("unknown flags of an attribute");
                if (i ? indices[i] <= indices[i - 1] : indices[i] != 0)
                        fake_die("the indices of attributes must begin with 0 and rise");
                if (indices[i] >= n)
                        fake_die("an attribute for a copy that there isn't");
        }
}

/* Locked. Returns true for a copy to pageable memory. */
static bool add_copy(cu_deviceptr dst, cu_deviceptr src, size_t bytes, cu_stream s)
{
        struct work *w = work_new(WORK_COPY, bytes);
        bool wait = false;

        if (!bytes)
                fake_die("a copy of 0 bytes");
        check_overlap(dst, src, bytes);
        if (fake_is_device(src))
                from_device(w, src);
        else
                from_host(w, (const void *)(uintptr_t)src);
        if (fake_is_device(dst))
                to_device(w, dst);
        else
                wait = to_host(w, (void *)(uintptr_t)dst);
        stream_add(s, w);
        return wait;
}

static cu_result add_batch(const cu_deviceptr *dsts, const cu_deviceptr *srcs, const size_t *bytes,
        size_t n, cu_stream stream)
{
        cu_result r = CU_OK;
        bool wait = false;
        cu_stream s;

        if ((uintptr_t)stream <= 1)
                fake_die("not on the NULL stream");
        fake_lock();
        s = stream_find(stream);
        for (size_t i = 0; i < n; i++)
                wait |= add_copy(dsts[i], srcs[i], bytes[i], s);
        if (wait)
                r = stream_drain(s);
        fake_unlock();
        return r;
}

cu_result cuMemcpyBatchAsync(cu_deviceptr *dsts, cu_deviceptr *srcs, size_t *bytes, size_t n,
        cu_memcpy_attributes *attributes, size_t *attribute_indices, size_t n_attributes,
        size_t *failed, cu_stream stream)
{
        cu_result r = fake_enter("cuMemcpyBatchAsync", ENTER_BOUND);

        if (r != CU_OK) {
                *failed = SIZE_MAX;
                return r;
        }
        check_attributes(attributes, attribute_indices, n_attributes, n);
        return add_batch(dsts, srcs, bytes, n, stream);
}

cu_result cuMemcpyBatchAsync_v2(cu_deviceptr *dsts, cu_deviceptr *srcs, size_t *bytes, size_t n,
        cu_memcpy_attributes *attributes, size_t *attribute_indices, size_t n_attributes,
        cu_stream stream)
{
        cu_result r = fake_enter("cuMemcpyBatchAsync", ENTER_BOUND);

        if (r != CU_OK)
                return r;
        check_attributes(attributes, attribute_indices, n_attributes, n);
        return add_batch(dsts, srcs, bytes, n, stream);
}
