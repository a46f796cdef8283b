/* Commands of the worker that concern GPU streams, and memory that is recalled. */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gpu/cuda_load.h"
#include "tests/integration/worker.h"

static const struct cuda *cuda;
static cu_context context;
static cu_stream stream;

/* "-EIO CALL: NAME (number)" where it failed. */
static int report(const char *call, cu_result result)
{
        char why[CUDA_WHY_BYTES];

        if (result)
                printf("%d %s\n", -EIO, cuda_describe(call, result, why, sizeof(why)));
        return result ? -EIO : 0;
}

static cu_device find_device(const char *name)
{
        int n = 0;
        cu_device device;

        cuda->DeviceGetCount(&n);
        for (int i = 0; i < n; ++i) {
                cu_uuid uuid;
                char text[64], *at = text;

                cuda->DeviceGet(&device, i);
                cuda->DeviceGetUuid(&uuid, device);
                at += sprintf(at, "GPU-");
                for (unsigned k = 0; k < sizeof(uuid); ++k)
                        at += sprintf(at, "%s%02x",
                                k == 4 || k == 6 || k == 8 || k == 10 ? "-" : "",
                                (unsigned)((const unsigned char *)&uuid)[k]);
                if (strcmp(text, name) == 0)
                        return device;
        }
        return -1;
}

/* stream: makes a stream of the namespace's device, as an engine has; the commands below use it.
 * Without it, and on the host, they use the default stream. */
static void do_stream(struct worker_state *w, char **args, unsigned n_args)
{
        char why[CUDA_WHY_BYTES];
        int r = cuda_get(&cuda, why);

        if (r < 0) {
                printf("%d %s\n", r, why);
                return;
        }
        if (report("cuDevicePrimaryCtxRetain",
                    cuda->DevicePrimaryCtxRetain(&context, find_device(w->info.device))) ||
                report("cuCtxPushCurrent", cuda->CtxPushCurrent(context)) ||
                report("cuStreamCreate", cuda->StreamCreate(&stream, 1)))
                return;
        printf("0\n");
}

/* stream-close: ends the stream of "stream" */
static void do_stream_close(struct worker_state *w, char **args, unsigned n_args)
{
        if (!stream)
                printf("%d no stream\n", -EINVAL);
        else if (!report("cuStreamDestroy", cuda->StreamDestroy(stream)) &&
                 !report("cuCtxPopCurrent", cuda->CtxPopCurrent(&context)) &&
                 !report("cuDevicePrimaryCtxRelease",
                         cuda->DevicePrimaryCtxRelease(find_device(w->info.device))))
                printf("0\n");
        stream = NULL;
}

static pthread_mutex_t gate_mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t gate_moved = PTHREAD_COND_INITIALIZER;
static bool gate_is_open;

static void wait_for_gate(void *data)
{
        pthread_mutex_lock(&gate_mutex);
        while (!gate_is_open)
                pthread_cond_wait(&gate_moved, &gate_mutex);
        pthread_mutex_unlock(&gate_mutex);
}

/* gate: nothing that is put on the stream from now on happens before gate-open */
static void do_gate(struct worker_state *w, char **args, unsigned n_args)
{
        gate_is_open = false;
        if (!report("cuLaunchHostFunc", cuda->LaunchHostFunc(stream, wait_for_gate, NULL)))
                printf("0\n");
}

static void do_gate_open(struct worker_state *w, char **args, unsigned n_args)
{
        pthread_mutex_lock(&gate_mutex);
        gate_is_open = true;
        pthread_cond_broadcast(&gate_moved);
        pthread_mutex_unlock(&gate_mutex);
        worker_answer(0);
}

static void do_stream_wait(struct worker_state *w, char **args, unsigned n_args)
{
        if (!report("cuStreamSynchronize", cuda->StreamSynchronize(stream)))
                printf("0\n");
}

/* stream-set PAGE VALUE: the stream writes a page, plane 0; doesn't wait */
static void do_stream_set(struct worker_state *w, char **args, unsigned n_args)
{
        void *at = kvl_page_ptr(w->ns, (uint32_t)strtoul(args[0], NULL, 10), 0);

        if (!report("cuMemsetD8Async", cuda->MemsetD8Async((cu_deviceptr)(uintptr_t)at,
                                               (unsigned char)strtoul(args[1], NULL, 10),
                                               w->info.plane_page_bytes, stream)))
                printf("0\n");
}

/* publish-stream: the words of publish; publish-poll and publish-wait give its result */
static void do_publish_stream(struct worker_state *w, char **args, unsigned n_args)
{
        worker_publish_on_stream(w, args, n_args, stream);
}

static uint32_t pages[WORKER_MAX_WORDS];

static void do_release_stream(struct worker_state *w, char **args, unsigned n_args)
{
        worker_answer(kvl_release_on_stream(
                w->ns, pages, worker_parse_pages(args, n_args, pages), stream));
}

static void do_free_stream(struct worker_state *w, char **args, unsigned n_args)
{
        worker_answer(
                kvl_free_on_stream(w->ns, pages, worker_parse_pages(args, n_args, pages), stream));
}

/* safepoint: sets given back, or -errno */
static void do_safepoint(struct worker_state *w, char **args, unsigned n_args)
{
        int n = kvl_safepoint(w->conn, stream);

        if (n < 0)
                worker_answer(n);
        else
                printf("0 %d\n", n);
}

/* address PAGE PLANE: its address */
static void do_address(struct worker_state *w, char **args, unsigned n_args)
{
        printf("0 %p\n", kvl_page_ptr(w->ns, (uint32_t)strtoul(args[0], NULL, 10),
                                 (uint32_t)strtoul(args[1], NULL, 10)));
}

const struct worker_command worker_stream_commands[] = {
        {"stream", do_stream},
        {"stream-close", do_stream_close},
        {"gate", do_gate},
        {"gate-open", do_gate_open},
        {"stream-wait", do_stream_wait},
        {"stream-set", do_stream_set},
        {"publish-stream", do_publish_stream},
        {"release-stream", do_release_stream},
        {"free-stream", do_free_stream},
        {"safepoint", do_safepoint},
        {"address", do_address},
        {NULL, NULL},
};
