/*
 * Streams of clients, which may belong to another context than the primary one. Query and wait ask
 * the driver even if the device is broken: only the stream's own context knows whether its work
 * will still run.
 */
#include "gpu/cuda.h"

#include <errno.h>

/* NULL, CU_STREAM_LEGACY and CU_STREAM_PER_THREAD mean the default stream of the current
 * context. */
static bool is_default_stream(const void *stream)
{
        return (uintptr_t)stream <= 2;
}

/*
 * The stream's context; NULL: the device's primary one. A default stream is that of the current
 * context, if it is one of this device's (an engine may be working on another). A broken context
 * that can't be asked doesn't count.
 */
static cu_result find_context(
        const struct cuda *cuda, cu_device ordinal, void *stream, cu_context *ret_context)
{
        cu_device its_ordinal;
        cu_result result;

        if (!is_default_stream(stream))
                return cuda->StreamGetCtx(stream, ret_context);
        result = cuda->CtxGetCurrent(ret_context);
        if (result == CU_OK && *ret_context &&
                (cuda->CtxGetDevice(&its_ordinal) != CU_OK || its_ordinal != ordinal))
                *ret_context = NULL;
        return result;
}

/* Makes the stream's context current; cuda_leave() ends it. */
static int enter_stream(struct cuda_device *d, void *stream)
{
        cu_context context = NULL;
        int r = cuda_check(d, is_default_stream(stream) ? "cuCtxGetCurrent" : "cuStreamGetCtx",
                find_context(d->cuda, d->ordinal, stream, &context));

        if (r < 0)
                return r;
        if (!context)
                return cuda_enter(d);
        return cuda_check(d, "cuCtxPushCurrent", d->cuda->CtxPushCurrent(context));
}

/* Refuses a stream of another device: it says nothing about this one's memory. In the context. */
static int refuse_other_device(struct cuda_device *d)
{
        cu_device ordinal;
        int r = cuda_check(d, "cuCtxGetDevice", d->cuda->CtxGetDevice(&ordinal));

        if (r < 0 || ordinal == d->ordinal)
                return r;
        return cuda_fail(d, -EINVAL, "the stream is of another device");
}

/* Refused: in a graph, the function would run again at every replay. In the context. */
static int refuse_capturing(struct cuda_device *d, void *stream)
{
        cu_capture_status status;
        int r = cuda_check(d, "cuStreamIsCapturing", d->cuda->StreamIsCapturing(stream, &status));

        if (r < 0 || status == CU_CAPTURE_NONE)
                return r;
        return cuda_fail(d, -EINVAL, "the stream is being captured into a CUDA graph");
}

int cuda_stream_call(struct device *device, void *stream, void (*fn)(void *data), void *data)
{
        struct cuda_device *d = cuda_device(device);
        int r = cuda_start(d);

        if (r == 0)
                r = enter_stream(d, stream);
        if (r < 0)
                return r;
        r = refuse_other_device(d);
        if (r == 0)
                r = refuse_capturing(d, stream);
        if (r == 0)
                r = cuda_check(d, "cuLaunchHostFunc", d->cuda->LaunchHostFunc(stream, fn, data));
        cuda_leave(d);
        return r;
}

/* A query would invalidate the capture of a stream. Work put on it before the capture waits as
 * before. */
int cuda_stream_query(struct device *device, void *stream)
{
        struct cuda_device *d = cuda_device(device);
        cu_result result;
        int r = enter_stream(d, stream);

        if (r < 0)
                return r;
        r = refuse_capturing(d, stream);
        if (r == 0) {
                result = d->cuda->StreamQuery(stream);
                r = result == CU_NOT_READY ? -EBUSY : cuda_check(d, "cuStreamQuery", result);
        } else if (r == -EINVAL) {
                r = -EBUSY;
        }
        cuda_leave(d);
        return r;
}

/* In the context; see cuda_stream_query() for captures. */
static cu_result wait_in_context(const struct cuda *cuda, void *stream)
{
        cu_capture_status status;
        cu_result result = cuda->StreamIsCapturing(stream, &status);

        if (result != CU_OK)
                return result;
        return status == CU_CAPTURE_NONE ? cuda->StreamSynchronize(stream) : CU_INVALID_VALUE;
}

/*
 * Runs beside calls of other threads on the device, so it doesn't touch the device's state. The
 * primary context is retained only for the call: the work waited for keeps it alive.
 */
int cuda_stream_wait(struct device *device, void *stream)
{
        const struct cuda *cuda = cuda_device(device)->cuda;
        cu_device ordinal = cuda_device(device)->ordinal;
        cu_context context = NULL, ignored;
        bool is_retained = false;
        cu_result result = find_context(cuda, ordinal, stream, &context);

        if (result == CU_OK && !context) {
                result = cuda->DevicePrimaryCtxRetain(&context, ordinal);
                is_retained = result == CU_OK;
        }
        if (result == CU_OK)
                result = cuda->CtxPushCurrent(context);
        if (result == CU_OK) {
                result = wait_in_context(cuda, stream);
                (void)cuda->CtxPopCurrent(&ignored);
        }
        if (is_retained)
                (void)cuda->DevicePrimaryCtxRelease(ordinal);
        return cuda_errno(result);
}
