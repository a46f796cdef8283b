/* Results, the primary context, and the device's own streams. */
#include "gpu/cuda.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static void note_broken(struct cuda_device *d, const char *call, cu_result result)
{
        if (d->is_broken || !cuda_is_fatal(result))
                return;
        d->is_broken = true;
        cuda_describe(call, result, d->broken_why, sizeof(d->broken_why));
}

int cuda_check(struct cuda_device *d, const char *call, cu_result result)
{
        if (result == CU_OK)
                return 0;
        cuda_describe(call, result, d->device.why, sizeof(d->device.why));
        note_broken(d, call, result);
        return cuda_errno(result);
}

void cuda_ignore(struct cuda_device *d, const char *call, cu_result result)
{
        if (result != CU_OK)
                note_broken(d, call, result);
}

int cuda_fail(struct cuda_device *d, int error, const char *why)
{
        snprintf(d->device.why, sizeof(d->device.why), "%s", why ? why : "");
        return error;
}

int cuda_start(struct cuda_device *d)
{
        if (!d->is_broken)
                return 0;
        snprintf(d->device.why, sizeof(d->device.why),
                "the device is broken for this process since %.180s", d->broken_why);
        return -ENXIO;
}

int cuda_enter(struct cuda_device *d)
{
        int r = cuda_start(d);

        if (r < 0)
                return r;
        if (!d->context) {
                cu_context context;

                r = cuda_check(d, "cuDevicePrimaryCtxRetain",
                        d->cuda->DevicePrimaryCtxRetain(&context, d->ordinal));
                if (r < 0)
                        return r;
                d->context = context;
        }
        return cuda_check(d, "cuCtxPushCurrent", d->cuda->CtxPushCurrent(d->context));
}

bool cuda_enter_release(struct cuda_device *d)
{
        cu_result result;

        if (!d->context)
                return false;
        result = d->cuda->CtxPushCurrent(d->context);
        cuda_ignore(d, "cuCtxPushCurrent", result);
        return result == CU_OK;
}

/* Fails only if other code popped our context: ignored. */
void cuda_leave(struct cuda_device *d)
{
        cu_context context;

        cuda_ignore(d, "cuCtxPopCurrent", d->cuda->CtxPopCurrent(&context));
}

/* Own streams don't wait for the legacy default stream, which an engine in this process may use. */
int cuda_stream_get(struct cuda_device *d, enum cuda_stream which, cu_stream *ret_stream)
{
        int r = 0;

        if (!d->streams[which])
                r = cuda_check(d, "cuStreamCreate",
                        d->cuda->StreamCreate(&d->streams[which], CU_STREAM_NON_BLOCKING));
        if (r < 0) {
                d->streams[which] = NULL;
                return r;
        }
        *ret_stream = d->streams[which];
        return 0;
}
