/* The CUDA backend over the driver double: contexts, streams, batches, registration, lost devices.
 */
#include <sys/mman.h>

#include "tests/unit/alloc-fail.h"
#include "tests/unit/cuda-process.h"
#include "tests/unit/test-support.h"

static char why[DEVICE_WHY_BYTES];

/* ---- contexts and streams ------------------------------------------------------------------- */

static const struct cuda *driver(void)
{
        const struct cuda *cuda = NULL;

        OK(cuda_get(&cuda, why));
        return cuda;
}

static cu_context current(void)
{
        cu_context context = NULL;

        OK(driver()->CtxGetCurrent(&context));
        return context;
}

/* Makes every call once, with any current context. */
static void all_calls(struct device *d, void (*check)(void))
{
        const struct device_ops *ops = d->ops;
        struct device_arena *a = reserve(d, 2 * STEP);
        struct extent *e = create(d, 2 * STEP);
        struct device_copy copy = {.extent = e, .len = 4096};
        struct device_batch *b = NULL;

        copy.host = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        check();
        OK(ops->host_register(d, copy.host, 4096));
        check();
        fill(e, 1);
        CHECK(holds(e, 0, 1, 1));
        OK(ops->extent_zero(e, 0, 1));
        OK(ops->extent_copy(e, 0, e, 1, 1));
        check();
        OK(ops->batch_start(d, DEVICE_TO_HOST, &copy, 1, &b));
        check();
        OK(batch_wait(d, b));
        check();
        OK(ops->arena_map(a, 0, e, DEVICE_READ_WRITE));
        OK(ops->arena_unmap(a, 0, e));
        OK(ops->host_unregister(d, copy.host, 4096));
        check();
        ops->extent_destroy(e, true);
        check();
        ops->arena_release(a);
        munmap(copy.host, 4096);
}

static void check_none(void)
{
        CHECK(!current());
}

static cu_context others;

static void check_others(void)
{
        CHECK(current() == others);
}

static void contexts(enum device_transport transport)
{
        const struct cuda *cuda = driver();
        struct device *d = open_gpu(DEVICE_OWNER, transport);
        cu_context ignored;

        all_calls(d, check_none);
        OK(cuda->DevicePrimaryCtxRetain(&others, 1));
        OK(cuda->CtxPushCurrent(others));
        all_calls(d, check_others);
        device_close(d);
        check_others();
        OK(cuda->CtxPopCurrent(&ignored));
        OK(cuda->DevicePrimaryCtxRelease(1));
}

static void contexts_vmm(void)
{
        contexts(TRANSPORT_VMM);
}

static void contexts_ipc(void)
{
        contexts(TRANSPORT_CUDAIPC);
}

static void count_call(void *data)
{
        __atomic_add_fetch((int *)data, 1, __ATOMIC_RELEASE);
}

static void use_stream(struct device *d, void *stream)
{
        int n = 0;

        OK(d->ops->stream_call(d, stream, count_call, &n));
        OK(d->ops->stream_call(d, stream, count_call, &n));
        OK(d->ops->stream_wait(d, stream));
        CHECK(__atomic_load_n(&n, __ATOMIC_ACQUIRE) == 2);
        OK(d->ops->stream_query(d, stream));
}

/* Streams of an engine that also uses another device. */
static void streams(void)
{
        const struct cuda *cuda = driver();
        struct device *d = open_gpu(DEVICE_USER, TRANSPORT_VMM);
        cu_context own, ignored;
        cu_stream stream;

        OK(d->ops->stream_wait(d, NULL));
        use_stream(d, NULL);
        check_none();
        OK(cuda->DevicePrimaryCtxRetain(&own, 0));
        OK(cuda->CtxPushCurrent(own));
        OK(cuda->StreamCreate(&stream, 0));
        use_stream(d, stream);
        use_stream(d, NULL);
        CHECK(current() == own);
        OK(cuda->CtxPopCurrent(&ignored));
        use_stream(d, stream);
        check_none();
        OK(cuda->DevicePrimaryCtxRetain(&others, 1));
        OK(cuda->CtxPushCurrent(others));
        use_stream(d, stream);
        use_stream(d, NULL);
        check_others();
        OK(cuda->CtxPopCurrent(&ignored));
        OK(cuda->CtxPushCurrent(own));
        OK(cuda->StreamDestroy(stream));
        OK(cuda->CtxPopCurrent(&ignored));
        OK(cuda->DevicePrimaryCtxRelease(0));
        OK(cuda->DevicePrimaryCtxRelease(1));
        device_close(d);
}

static void busy_stream(void)
{
        struct device *d = open_gpu(DEVICE_USER, TRANSPORT_VMM);
        int n = 0;

        control("delay=stream:60000");
        OK(d->ops->stream_call(d, NULL, count_call, &n));
        GIVES(d->ops->stream_query(d, NULL), -EBUSY);
        CHECK(n == 0);
        control("");
        OK(d->ops->stream_wait(d, NULL));
        CHECK(n == 1);
        device_close(d);
}

static void capturing_stream(void)
{
        struct device *d = open_gpu(DEVICE_USER, TRANSPORT_VMM);
        int n = 0;

        control("bad=capturing");
        GIVES(d->ops->stream_call(d, NULL, count_call, &n), -EINVAL);
        CHECK(strstr(d->why, "captured into a CUDA graph"));
        /* Queries and waits concern calls from before the capture. */
        GIVES(d->ops->stream_query(d, NULL), -EBUSY);
        GIVES(d->ops->stream_wait(d, NULL), -EINVAL);
        control("");
        OK(d->ops->stream_call(d, NULL, count_call, &n));
        OK(d->ops->stream_wait(d, NULL));
        CHECK(n == 1);
        device_close(d);
}

/* The default stream is the device's, with any context of the caller. */
static void streams_of_others(void)
{
        const struct cuda *cuda = driver();
        struct device *d = open_gpu(DEVICE_USER, TRANSPORT_VMM);
        cu_context own, ignored;
        cu_stream stream;
        int n = 0;

        OK(cuda->DevicePrimaryCtxRetain(&own, 0));
        OK(cuda->DevicePrimaryCtxRetain(&others, 1));
        OK(cuda->CtxPushCurrent(others));
        OK(cuda->StreamCreate(&stream, 0));
        control("delay=stream:60000");
        OK(d->ops->stream_call(d, NULL, count_call, &n));
        CHECK(cuda->StreamQuery(NULL) == CU_OK);
        GIVES(d->ops->stream_query(d, NULL), -EBUSY);
        OK(cuda->CtxPushCurrent(own));
        CHECK(cuda->StreamQuery(NULL) == CU_NOT_READY);
        OK(cuda->CtxPopCurrent(&ignored));
        control("");
        OK(d->ops->stream_wait(d, NULL));
        CHECK(n == 1);
        GIVES(d->ops->stream_call(d, stream, count_call, &n), -EINVAL);
        CHECK(strstr(d->why, "another device"));
        CHECK(n == 1);
        check_others();
        OK(cuda->StreamDestroy(stream));
        OK(cuda->CtxPopCurrent(&ignored));
        OK(cuda->DevicePrimaryCtxRelease(0));
        OK(cuda->DevicePrimaryCtxRelease(1));
        device_close(d);
}

static void broken_stream(void)
{
        struct device *d = open_gpu(DEVICE_USER, TRANSPORT_VMM);
        struct device_arena *a = NULL;
        int n = 0;

        control("fail=stream:700");
        OK(d->ops->stream_call(d, NULL, count_call, &n));
        strcpy(d->why, "untouched");
        GIVES(d->ops->stream_wait(d, NULL), -ENXIO);
        CHECK(strcmp(d->why, "untouched") == 0);
        GIVES(d->ops->stream_query(d, NULL), -ENXIO);
        CHECK(strstr(d->why, "ILLEGAL_ADDRESS"));
        GIVES(d->ops->stream_query(d, NULL), -ENXIO);
        GIVES(d->ops->stream_call(d, NULL, count_call, &n), -ENXIO);
        GIVES(d->ops->arena_reserve(d, STEP, 0, &a), -ENXIO);
        CHECK(n == 0);
        device_close(d);
}

TEST(test_contexts)
{
        run(contexts_vmm, "FAKECUDA_DEVICES=2");
        run(contexts_ipc, "FAKECUDA_DEVICES=2");
        run(streams, "FAKECUDA_DEVICES=2");
        run(streams_of_others, "FAKECUDA_DEVICES=2");
        run(busy_stream, NULL);
        run(capturing_stream, NULL);
        run_broken(broken_stream, NULL);
}

/* ---- batches -------------------------------------------------------------------------------- */

#define PAGE       4096
#define HOST_BYTES (16 * PAGE)

static uint8_t *host_memory(void)
{
        uint8_t *p =
                mmap(NULL, HOST_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

        CHECK(p != MAP_FAILED);
        for (unsigned i = 0; i < HOST_BYTES; i++)
                p[i] = (uint8_t)(i / 7);
        return p;
}

static void batch(struct device *d, enum device_direction direction,
        const struct device_copy *copies, size_t n)
{
        struct device_batch *b = NULL;

        OK(d->ops->batch_start(d, direction, copies, n, &b));
        CHECK(b->device == d);
        OK(batch_wait(d, b));
}

/* In two pieces to the device, and back as one, reversed. */
static void there_and_back(struct device *d, uint8_t *host, unsigned from, unsigned to)
{
        struct extent *e = create(d, STEP);
        uint8_t before[HOST_BYTES];
        unsigned half = (to - from) / 2;
        struct device_copy copies[] = {
                {.extent = e, .offset = 100, .host = host + from, .len = half},
                {.extent = e, .offset = 50, .host = host, .len = 0},
                {.extent = e,
                        .offset = 100 + half,
                        .host = host + from + half,
                        .len = to - from - half},
        };
        struct device_copy back = {
                .extent = e, .offset = 100, .host = host + from, .len = to - from};

        memcpy(before, host, sizeof(before));
        batch(d, DEVICE_FROM_HOST, copies, 3);
        memset(host + from, 0, to - from);
        batch(d, DEVICE_TO_HOST, &back, 1);
        CHECK(memcmp(before, host, sizeof(before)) == 0);
        batch(d, DEVICE_TO_HOST, copies, 0);
        batch(d, DEVICE_TO_HOST, copies + 1, 1);
        d->ops->extent_destroy(e, true);
}

static void batches(void)
{
        struct device *d = open_gpu(DEVICE_OWNER, TRANSPORT_VMM);
        uint8_t *host = host_memory();

        there_and_back(d, host, 1, HOST_BYTES - 1);
        cuda_device(d)->register_chunk_bytes = 2 * PAGE;
        OK(d->ops->host_register(d, host + PAGE, 9 * PAGE));
        CHECK(cuda_device(d)->n_registrations == 5);
        there_and_back(d, host, PAGE, 10 * PAGE);
        there_and_back(d, host, PAGE + 1, 4 * PAGE);
        there_and_back(d, host, 2 * PAGE + 5, 2 * PAGE + 50);
        /* Into what isn't registered, on both sides. */
        there_and_back(d, host, 1, HOST_BYTES - 1);
        OK(d->ops->host_unregister(d, host + PAGE, 9 * PAGE));
        CHECK(cuda_device(d)->n_registrations == 0);
        munmap(host, HOST_BYTES);
        device_close(d);
}

/* Unregistered memory is copied one by one. So is all memory after the driver refused a batch. */
static void batches_refused(void)
{
        struct device *d = open_gpu(DEVICE_OWNER, TRANSPORT_VMM);
        uint8_t *host = host_memory();

        OK(d->ops->host_register(d, host, 8 * PAGE));
        control("fail=cuMemcpyBatchAsync:800:1:0");
        there_and_back(d, host, 7 * PAGE, 9 * PAGE);
        CHECK(!cuda_device(d)->no_batches);
        control("fail=cuMemcpyBatchAsync:801:1:1\nfail=cuMemcpyBatchAsync:800:2:0");
        there_and_back(d, host, 1, 8 * PAGE);
        CHECK(cuda_device(d)->no_batches);
        OK(d->ops->host_unregister(d, host, 8 * PAGE));
        munmap(host, HOST_BYTES);
        device_close(d);
}

static void batch_under_way(void)
{
        struct device *d = open_gpu(DEVICE_OWNER, TRANSPORT_VMM);
        struct extent *e = create(d, STEP), *f = create(d, STEP);
        uint8_t *host = host_memory();
        struct device_copy out = {.extent = e, .host = host, .len = PAGE};
        struct device_copy in = {.extent = f, .host = host + PAGE, .len = PAGE};
        struct device_batch *going_out = NULL, *going_in = NULL;

        OK(d->ops->host_register(d, host, HOST_BYTES));
        control("delay=stream:60000:1:0");
        OK(d->ops->batch_start(d, DEVICE_TO_HOST, &out, 1, &going_out));
        OK(d->ops->batch_start(d, DEVICE_FROM_HOST, &in, 1, &going_in));
        GIVES(d->ops->batch_poll(going_out), -EBUSY);
        GIVES(d->ops->batch_poll(going_in), -EBUSY);
        CHECK(host[PAGE - 1] == (uint8_t)((PAGE - 1) / 7));
        /* Without the context the state is unknown. Delayed copies go on from here. */
        control("delay=stream:60000:1:0\nfail=cuCtxPushCurrent:800");
        GIVES(d->ops->batch_poll(going_in), -EBUSY);
        control("");
        OK(batch_wait(d, going_out));
        OK(batch_wait(d, going_in));
        CHECK(host[PAGE - 1] == 0);
        CHECK(holds(f, 0, 1, host[PAGE]));
        OK(d->ops->host_unregister(d, host, HOST_BYTES));
        d->ops->extent_destroy(e, true);
        d->ops->extent_destroy(f, true);
        munmap(host, HOST_BYTES);
        device_close(d);
}

TEST(test_batches)
{
        run(batches, "FAKECUDA_VERSION=13000");
        run(batches, "FAKECUDA_VERSION=12080");
        run(batches, "FAKECUDA_VERSION=12000");
        run(batches, "FAKECUDA_NO=batch");
        run(batches_refused, NULL);
        run(batch_under_way, "FAKECUDA_VERSION=13000");
        run(batch_under_way, "FAKECUDA_VERSION=12000");
}

static void registration(void)
{
        struct device *d = open_gpu(DEVICE_OWNER, TRANSPORT_VMM);
        struct cuda_device *c = cuda_device(d);
        uint8_t *host = host_memory();
        struct extent *e;

        OK(d->ops->host_unregister(d, host, PAGE));
        c->register_chunk_bytes = PAGE;
        control("fail=cuMemHostRegister:2:3");
        GIVES(d->ops->host_register(d, host, 4 * PAGE), -ENOMEM);
        CHECK(strstr(d->why, "cuMemHostRegister") && c->n_registrations == 0);
        OK(d->ops->host_register(d, host, 4 * PAGE));
        OK(d->ops->host_register(d, host + 6 * PAGE, PAGE));
        CHECK(c->n_registrations == 5);
        /* Again: what was there stays. */
        CHECK(d->ops->host_register(d, host, 2 * PAGE) < 0);
        CHECK(c->n_registrations == 5);
        /* The copy is cut at each border, or the double would stop us. */
        e = create(d, STEP);
        OK(d->ops->extent_write(e, 0, host, HOST_BYTES));
        OK(d->ops->extent_read(e, 0, host + 1, HOST_BYTES - 1));
        d->ops->extent_destroy(e, true);
        control("fail=cuCtxPushCurrent:800");
        GIVES(d->ops->host_unregister(d, host, 4 * PAGE), -ENXIO);
        CHECK(c->n_registrations == 5);
        OK(d->ops->host_unregister(d, host, 4 * PAGE));
        CHECK(c->n_registrations == 1);
        /* The rest goes with the device. */
        device_close(d);
        munmap(host, HOST_BYTES);
}

TEST(test_registration)
{
        run(registration, NULL);
}

/* ---- the end of a device -------------------------------------------------------------------- */

static void device_lost(enum device_transport transport)
{
        struct device *d = open_gpu(DEVICE_OWNER, transport);
        struct extent *e = create(d, STEP), *mapped = create(d, STEP), *f = NULL;
        struct device_arena *a = reserve(d, STEP), *more = NULL;
        uint8_t *host = host_memory();
        struct device_copy copy = {.extent = e, .host = host, .len = PAGE};
        struct extent_handle handle = export(e);
        struct device_batch *b = NULL, *second = NULL;

        OK(d->ops->host_register(d, host, HOST_BYTES));
        OK(d->ops->arena_map(a, 0, mapped, DEVICE_READ_WRITE));
        control("delay=stream:60000:1:0");
        OK(d->ops->batch_start(d, DEVICE_TO_HOST, &copy, 1, &b));
        GIVES(d->ops->batch_poll(b), -EBUSY);
        control("fail=cuMemcpyHtoDAsync:719");
        GIVES(d->ops->extent_write(e, 0, "", 1), -ENXIO);
        CHECK(strcmp(d->why, "cuMemcpyHtoDAsync: CUDA_ERROR_LAUNCH_FAILED (719)") == 0);
        control("");
        GIVES(d->ops->batch_poll(b), -ENXIO);
        GIVES(d->ops->batch_start(d, DEVICE_TO_HOST, &copy, 1, &second), -ENXIO);
        CHECK(strstr(d->why, "since cuMemcpyHtoDAsync: CUDA_ERROR_LAUNCH_FAILED"));
        GIVES(d->ops->extent_read(e, 0, host, 1), -ENXIO);
        GIVES(d->ops->extent_zero(e, 0, 1), -ENXIO);
        GIVES(d->ops->extent_copy(e, 0, e, 1, 1), -ENXIO);
        GIVES(d->ops->extent_create(d, STEP, &f), -ENXIO);
        GIVES(d->ops->extent_import(d, &handle, STEP, &f), -ENXIO);
        CHECK(handle.fd == -1);
        GIVES(d->ops->arena_reserve(d, STEP, 0, &more), -ENXIO);
        GIVES(d->ops->arena_map(a, 0, e, DEVICE_READ_WRITE), -ENXIO);
        GIVES(d->ops->host_register(d, host, PAGE), -ENXIO);
        GIVES(d->ops->stream_call(d, NULL, count_call, NULL), -ENXIO);
        (void)d->ops->arena_unmap(a, 0, mapped);
        d->ops->arena_release(a);
        d->ops->extent_destroy(mapped, true);
        d->ops->extent_destroy(e, true);
        (void)d->ops->host_unregister(d, host, HOST_BYTES);
        device_close(d);
        munmap(host, HOST_BYTES);
}

static void device_lost_vmm(void)
{
        device_lost(TRANSPORT_VMM);
}

static void device_lost_ipc(void)
{
        device_lost(TRANSPORT_CUDAIPC);
}

TEST(test_device_lost)
{
        run_broken(device_lost_vmm, NULL);
        run_broken(device_lost_ipc, NULL);
}

/* Each allocation of ours fails once. */
static void no_memory(enum device_transport transport)
{
        struct device_options options = {.side = DEVICE_OWNER, .transport = transport};
        uint8_t *host = host_memory();

        alloc_fail_each(n)
        {
                struct device *d = NULL;
                struct extent *e = NULL;
                struct device_arena *a = NULL;
                struct device_batch *b = NULL;
                struct device_copy copy = {.host = host, .len = PAGE};
                int r = cuda_backend.open(UUID0, &options, &d, why);

                if (r == 0)
                        r = d->ops->extent_create(d, STEP, &e);
                if (r == 0)
                        r = d->ops->arena_reserve(d, STEP, 0, &a);
                if (r == 0)
                        r = d->ops->host_register(d, host, PAGE);
                copy.extent = e;
                if (r == 0)
                        r = d->ops->batch_start(d, DEVICE_TO_HOST, &copy, 1, &b);
                if (b)
                        OK(batch_wait(d, b));
                GIVES(r, alloc_fail_happened() ? -ENOMEM : 0);
                CHECK(r == 0 || !d || strcmp(d->why, "") == 0);
                if (a)
                        d->ops->arena_release(a);
                if (e)
                        d->ops->extent_destroy(e, true);
                device_close(d);
        }
        munmap(host, HOST_BYTES);
}

static void no_memory_vmm(void)
{
        no_memory(TRANSPORT_VMM);
}

static void no_memory_ipc(void)
{
        no_memory(TRANSPORT_CUDAIPC);
}

TEST(test_no_memory)
{
        run(no_memory_vmm, NULL);
        run(no_memory_ipc, NULL);
}

int main(int argc, char **argv)
{
        use_double(argv);
        return test_run_all(NULL, NULL);
}
