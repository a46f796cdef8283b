/* The driver double's streams, copies, kernels and faults, normal ways. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>

#include "tests/fakecuda/kernel.h"
#include "tests/unit/fakecuda-process.h"
#include "tests/unit/test-support.h"

static void test_clean(void **state)
{
        expect_clean((child_fn)*state);
}

static uint64_t now_msec(void)
{
        struct timespec ts;

        clock_gettime(CLOCK_MONOTONIC, &ts);
        return (uint64_t)ts.tv_sec * 1000 + (uint64_t)ts.tv_nsec / 1000000;
}

static void wait_until(bool (*condition)(void *), void *data)
{
        uint64_t end = now_msec() + 10000;

        while (!condition(data)) {
                CHECK(now_msec() < end);
                nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
        }
}

/* Streams */

struct gate {
        pthread_mutex_t lock;
        pthread_cond_t changed;
        bool is_open;
        unsigned passed;
};

static void gate_pass(void *data)
{
        struct gate *g = data;

        pthread_mutex_lock(&g->lock);
        while (!g->is_open)
                pthread_cond_wait(&g->changed, &g->lock);
        g->passed++;
        pthread_mutex_unlock(&g->lock);
}

static void gate_open(struct gate *g)
{
        pthread_mutex_lock(&g->lock);
        g->is_open = true;
        pthread_cond_broadcast(&g->changed);
        pthread_mutex_unlock(&g->lock);
}

#define GATE                                                                           \
        {                                                                              \
                .lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER \
        }

static void stream_order(void)
{
        struct gate gate = GATE;
        cu_deviceptr at;
        cu_stream stream;
        cu_context context, own = begin();
        cu_event event;

        OK(cuMemAlloc_v2(&at, EXTENT));
        fill(at, 1);
        OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
        OK(cuStreamGetCtx(stream, &context));
        CHECK(context == own);
        OK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
        OK(cuEventQuery(event)); /* never recorded */
        OK(cuStreamQuery(stream));
        OK(cuLaunchHostFunc(stream, gate_pass, &gate));
        OK(cuMemsetD8Async(at, 2, EXTENT, stream));
        OK(cuEventRecord(event, stream));
        GIVES(cuStreamQuery(stream), CU_NOT_READY);
        GIVES(cuEventQuery(event), CU_NOT_READY);
        CHECK(holds(at, EXTENT, 1)); /* a non-blocking stream isn't ordered with the NULL stream */
        gate_open(&gate);
        OK(cuEventSynchronize(event));
        CHECK(gate.passed == 1);
        CHECK(holds(at, EXTENT, 2));
        OK(cuStreamSynchronize(stream));
        OK(cuStreamQuery(stream));
        OK(cuEventQuery(event));
        OK(cuEventDestroy_v2(event));
        OK(cuStreamDestroy_v2(stream));
        OK(cuMemFree_v2(at));
        end();
}

/* The NULL stream waits for blocking streams. A destroyed stream still does its work. */
static void legacy_order(void)
{
        struct gate gate = GATE;
        cu_stream stream;
        cu_event event;

        begin();
        OK(cuStreamCreate(&stream, 0));
        OK(cuEventCreate(&event, 0));
        OK(cuLaunchHostFunc(stream, gate_pass, &gate));
        OK(cuStreamDestroy_v2(stream));
        OK(cuEventRecord(event, NULL));
        GIVES(cuEventQuery(event), CU_NOT_READY);
        gate_open(&gate);
        OK(cuEventSynchronize(event));
        CHECK(gate.passed == 1);
        OK(cuCtxSynchronize());
        OK(cuEventDestroy_v2(event));
        end();
}

/* Registered memory is read when the copy's turn comes, other memory at once. */
static void host_copies(void)
{
        struct gate gate = GATE;
        char *registered = mmap(
                     NULL, 2 * MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0),
             *pageable = malloc(4096), back[2];
        cu_stream stream;
        cu_deviceptr at;

        begin();
        OK(cuMemAlloc_v2(&at, EXTENT));
        OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
        OK(cuMemHostRegister_v2(registered, 2 * MIB, CU_HOST_REGISTER_PORTABLE));
        GIVES(cuMemHostRegister_v2(registered + MIB, MIB, 0), CU_HOST_MEMORY_ALREADY_REGISTERED);
        memset(registered, 1, 4096);
        memset(pageable, 1, 4096);
        OK(cuLaunchHostFunc(stream, gate_pass, &gate));
        OK(cuMemcpyHtoDAsync_v2(at, registered, 4096, stream));
        OK(cuMemcpyHtoDAsync_v2(at + 4096, pageable, 4096, stream));
        memset(registered, 2, 4096);
        memset(pageable, 2, 4096);
        gate_open(&gate);
        OK(cuMemcpyDtoDAsync_v2(at + MIB, at, 8192, stream));
        OK(cuMemcpyDtoHAsync_v2(registered + MIB, at, 4096, stream));
        OK(cuMemcpyDtoHAsync_v2(back, at + MIB + 4095, 2, stream)); /* waits by itself */
        CHECK(back[0] == 2 && back[1] == 1);
        CHECK(registered[MIB] == 2 && registered[MIB + 4095] == 2);
        OK(cuMemHostUnregister(registered));
        GIVES(cuMemHostUnregister(registered), CU_HOST_MEMORY_NOT_REGISTERED);
        munmap(registered, 2 * MIB);
        free(pageable);
        OK(cuStreamDestroy_v2(stream));
        OK(cuMemFree_v2(at));
        end();
}

static void read_only_host(void)
{
        void *host = mmap(NULL, MIB, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

        begin();
        GIVES(cuMemHostRegister_v2(host, MIB, 0), CU_INVALID_VALUE);
        OK(cuMemHostRegister_v2(host, MIB, CU_HOST_REGISTER_READ_ONLY));
        OK(cuMemHostUnregister(host));
        munmap(host, MIB);
        GIVES(cuMemHostRegister_v2(host, MIB, CU_HOST_REGISTER_READ_ONLY), CU_INVALID_VALUE);
        end();
}

static void batches(void)
{
        char host[2][8192];
        cu_memcpy_attributes attributes = {.src_access_order = CU_ACCESS_ORDER_STREAM};
        cu_deviceptr at, dsts[2], srcs[2];
        size_t bytes[2] = {8192, 100}, first = 0, failed = 7;
        cu_stream stream;

        begin();
        OK(cuMemAlloc_v2(&at, EXTENT));
        OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
        memset(host[0], 1, sizeof(host[0]));
        memset(host[1], 2, sizeof(host[1]));
        for (unsigned i = 0; i < 2; i++) {
                srcs[i] = (uintptr_t)host[i];
                dsts[i] = at + i * MIB;
        }
        OK(cuMemcpyBatchAsync(dsts, srcs, bytes, 2, &attributes, &first, 1, &failed, stream));
        OK(cuStreamSynchronize(stream));
        CHECK(holds(at, 8192, 1) && holds(at + MIB, 100, 2));
        memset(host, 0, sizeof(host));
        OK(cuMemcpyBatchAsync_v2(srcs, dsts, bytes, 2, &attributes, &first, 1, stream));
        OK(cuStreamSynchronize(stream));
        CHECK(host[0][8191] == 1 && host[1][99] == 2 && host[1][100] == 0);
        OK(cuStreamDestroy_v2(stream));
        OK(cuMemFree_v2(at));
        end();
}

/* Kernels */

static void kernels(void)
{
        char image[4096];
        cu_function function;
        cu_module module;
        cu_deviceptr at;
        uint32_t n = 1000, value = 7;
        void *parameters[] = {&at, &n, &value};

        begin();
        OK(cuMemAlloc_v2(&at, EXTENT));
        fill(at, 0);
        GIVES(cuModuleLoadData(&module, "PTX"), CU_INVALID_IMAGE);
        GIVES(cuModuleLoadData(&module, FAKE_MODULE_MAGIC "/nonexistent\n"), CU_INVALID_IMAGE);
        snprintf(image, sizeof(image), FAKE_MODULE_MAGIC "%s\n", TEST_KERNELS);
        OK(cuModuleLoadData(&module, image));
        GIVES(cuModuleGetFunction(&function, module, "nothing"), CU_NOT_FOUND);
        OK(cuModuleGetFunction(&function, module, "test_fill"));
        GIVES(cuLaunchKernel(function, 1, 1, 1, 2048, 1, 1, 0, NULL, parameters, NULL),
                CU_INVALID_VALUE);
        OK(cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, NULL, parameters, NULL));
        value = 8; /* the launch has copied it */
        OK(cuCtxSynchronize());
        CHECK(holds(at, 1000, 7) && holds(at + 1000, 1000, 0));
        OK(cuModuleUnload(module));
        OK(cuMemFree_v2(at));
        end();
}

/* Faults */

static void fault_counts(void)
{
        cu_mem_allocation_prop prop = prop_of(0);
        cu_mem_handle a, b;
        const char *name;
        cu_deviceptr at;

        setenv("FAKECUDA_FAIL", "cuMemCreate:2:2:2;cuMemAddressReserve:999:1:0", 1);
        begin();
        a = create();
        GIVES(cuMemCreate(&b, EXTENT, &prop, 0), CU_OUT_OF_MEMORY);
        GIVES(cuMemCreate(&b, EXTENT, &prop, 0), CU_OUT_OF_MEMORY);
        b = create();
        for (unsigned i = 0; i < 3; i++)
                GIVES(cuMemAddressReserve(&at, EXTENT, 0, 0, 0), CU_UNKNOWN);
        OK(cuMemRelease(a));
        OK(cuMemRelease(b));
        OK(cuGetErrorName(CU_ECC_UNCORRECTABLE, &name));
        CHECK(strcmp(name, "CUDA_ERROR_ECC_UNCORRECTABLE") == 0);
        GIVES(cuGetErrorName(12345, &name), CU_INVALID_VALUE);
        CHECK(!name);
        end();
}

static void control(const char *text)
{
        FILE *f = fopen(getenv("FAKECUDA_CONTROL"), "w");

        CHECK(f && fputs(text, f) >= 0 && fclose(f) == 0);
}

static void *stuck_call(void *data)
{
        int n;

        OK(cuDeviceGetCount(&n));
        __atomic_store_n((bool *)data, true, __ATOMIC_RELEASE);
        return NULL;
}

static bool is_set(void *data)
{
        return __atomic_load_n((bool *)data, __ATOMIC_ACQUIRE);
}

/* The rules of the file change while the process runs; a delay that goes ends the wait. */
static void fault_control(void)
{
        char path[4096];
        bool done = false;
        pthread_t thread;
        uint64_t start;
        int n;

        snprintf(path, sizeof(path), "%s/control", getenv("FAKECUDA_DIR"));
        setenv("FAKECUDA_CONTROL", path, 1);
        setenv("FAKECUDA_DELAY", "cuDriverGetVersion:50", 1);
        OK(cuInit(0));
        start = now_msec();
        OK(cuDriverGetVersion(&n));
        CHECK(now_msec() - start >= 50);
        control("fail=cuDeviceGetCount:999\n");
        GIVES(cuDeviceGetCount(&n), CU_UNKNOWN);
        OK(cuDeviceGetCount(&n));
        control("delay=cuDeviceGetCount:40000:1:0\n");
        CHECK(pthread_create(&thread, NULL, stuck_call, &done) == 0);
        nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
        CHECK(!is_set(&done));
        control("");
        wait_until(is_set, &done);
        CHECK(pthread_join(thread, NULL) == 0);
}

/* A broken context stays so, and what was queued isn't called. */
static void sticky(void)
{
        /* The thread at the gate may read it until the process ends. */
        static struct gate gate = GATE;
        cu_stream stream;
        cu_deviceptr at;
        cu_event event;
        size_t n;

        setenv("FAKECUDA_FAIL", "cuMemAlloc:214", 1);
        begin();
        OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
        OK(cuEventCreate(&event, 0));
        OK(cuLaunchHostFunc(stream, gate_pass, &gate)); /* at its gate, or not begun */
        OK(cuLaunchHostFunc(stream, gate_pass, &gate));
        OK(cuEventRecord(event, stream));
        GIVES(cuMemAlloc_v2(&at, EXTENT), CU_ECC_UNCORRECTABLE);
        gate_open(&gate);
        GIVES(cuMemAlloc_v2(&at, EXTENT), CU_ECC_UNCORRECTABLE);
        GIVES(cuStreamQuery(stream), CU_ECC_UNCORRECTABLE);
        GIVES(cuEventQuery(event), CU_ECC_UNCORRECTABLE);
        GIVES(cuEventSynchronize(event), CU_ECC_UNCORRECTABLE);
        GIVES(cuStreamSynchronize(stream), CU_ECC_UNCORRECTABLE);
        GIVES(cuLaunchHostFunc(stream, gate_pass, &gate), CU_ECC_UNCORRECTABLE);
        GIVES(cuMemGetInfo_v2(&n, &n), CU_ECC_UNCORRECTABLE);
        CHECK(gate.passed <= 1);
        OK(cuCtxPopCurrent_v2(NULL));
        OK(cuDevicePrimaryCtxRelease_v2(0));
}

/* Work that fails when its turn comes. */
static void sticky_later(void)
{
        struct gate gate = GATE;
        cu_deviceptr at;

        setenv("FAKECUDA_FAIL", "stream:700:2", 1);
        begin();
        OK(cuMemAlloc_v2(&at, EXTENT));
        gate.is_open = true;
        OK(cuMemsetD8Async(at, 1, EXTENT, NULL));
        OK(cuMemsetD8Async(at, 2, EXTENT, NULL));
        OK(cuLaunchHostFunc(NULL, gate_pass, &gate));
        GIVES(cuStreamSynchronize(NULL), CU_ILLEGAL_ADDRESS);
        CHECK(gate.passed == 0);
}

static void bad_memset(void)
{
        cu_deviceptr at;

        setenv("FAKECUDA_BAD", "memset", 1);
        begin();
        OK(cuMemAlloc_v2(&at, EXTENT));
        fill(at, 0);
        CHECK(holds(at, 4096, 0xA5));
        OK(cuMemFree_v2(at));
        end();
}

/* A program that is meant to end with everything in use. */
static void lenient(void)
{
        setenv("FAKECUDA_LENIENT", "exit", 1);
        begin();
        map(create());
}

#define CLEAN(fn)                                                          \
        {                                                                  \
#fn, test_clean, test_fds_note, test_fds_check, (void *)fn \
        }

int main(void)
{
        const struct CMUnitTest tests[] = {
                CLEAN(stream_order),
                CLEAN(legacy_order),
                CLEAN(host_copies),
                CLEAN(read_only_host),
                CLEAN(batches),
                CLEAN(kernels),
                CLEAN(fault_counts),
                CLEAN(fault_control),
                CLEAN(sticky),
                CLEAN(sticky_later),
                CLEAN(bad_memset),
                CLEAN(lenient),
        };

        return RUN_TESTS(tests);
}
