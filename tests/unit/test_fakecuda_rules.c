/* Rules on which the simulated driver aborts: each is broken once, in a process of its own. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/fakecuda/kernel.h"
#include "tests/unit/child.h"
#include "tests/unit/fakecuda-process.h"
#include "tests/unit/test-support.h"

struct rule {
        child_fn fn;
        const char *line;
};

static void test_rule(void **state)
{
        const struct rule *rule = *state;

        expect_abort(rule->fn, rule->line);
}

/* Something that goes through when its gate opens: never. */
static void wait_for_ever(void *data)
{
        pause();
}

static cu_deviceptr allocate(void)
{
        cu_deviceptr at;

        OK(cuMemAlloc_v2(&at, EXTENT));
        return at;
}

static cu_stream busy_stream(void)
{
        cu_stream stream;

        OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
        OK(cuLaunchHostFunc(stream, wait_for_ever, NULL));
        return stream;
}

static char *host_pages(size_t bytes)
{
        void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

        CHECK(at != MAP_FAILED);
        return at;
}

/* VMM */

static void create_size(void)
{
        cu_mem_allocation_prop prop = prop_of(0);
        cu_mem_handle handle;

        begin();
        (void)cuMemCreate(&handle, MIB, &prop, 0);
}

static void create_prop(void)
{
        cu_mem_allocation_prop prop = prop_of(0);
        cu_mem_handle handle;

        begin();
        prop.flags.usage = 1;
        (void)cuMemCreate(&handle, EXTENT, &prop, 0);
}

static void reserve_size(void)
{
        cu_deviceptr at;

        begin();
        (void)cuMemAddressReserve(&at, MIB, 0, 0, 0);
}

static void reserve_alignment(void)
{
        cu_deviceptr at;

        begin();
        (void)cuMemAddressReserve(&at, EXTENT, 3, 0, 0);
}

static void map_offset(void)
{
        cu_deviceptr at;

        begin();
        OK(cuMemAddressReserve(&at, EXTENT, 0, 0, 0));
        (void)cuMemMap(at, 2 * MIB, 2 * MIB, create(), 0);
}

static void map_part(void)
{
        cu_deviceptr at;

        begin();
        OK(cuMemAddressReserve(&at, EXTENT, 0, 0, 0));
        (void)cuMemMap(at, 2 * MIB, 0, create(), 0);
}

static void map_unaligned(void)
{
        cu_deviceptr at;

        begin();
        OK(cuMemAddressReserve(&at, 2 * EXTENT, 0, 0, 0));
        (void)cuMemMap(at + MIB, EXTENT, 0, create(), 0);
}

static void map_twice(void)
{
        cu_mem_handle handle;

        begin();
        handle = create();
        (void)cuMemMap(map(handle), EXTENT, 0, handle, 0);
}

static void map_unreserved(void)
{
        begin();
        (void)cuMemMap((cu_deviceptr)1 << 40, EXTENT, 0, create(), 0);
}

static void map_past_end(void)
{
        cu_deviceptr at;

        begin();
        OK(cuMemAddressReserve(&at, EXTENT, 0, 0, 0));
        (void)cuMemMap(at + 2 * MIB, EXTENT, 0, create(), 0);
}

static void map_released(void)
{
        cu_mem_handle handle;
        cu_deviceptr at;

        begin();
        handle = create();
        OK(cuMemRelease(handle));
        OK(cuMemAddressReserve(&at, EXTENT, 0, 0, 0));
        (void)cuMemMap(at, EXTENT, 0, handle, 0);
}

static void access_of_part(void)
{
        cu_mem_access_desc desc = {
                .location = {CU_LOCATION_DEVICE, 0}, .flags = CU_ACCESS_READ_WRITE};

        begin();
        (void)cuMemSetAccess(map(create()), 2 * MIB, &desc, 1);
}

static void access_unmapped(void)
{
        cu_mem_access_desc desc = {
                .location = {CU_LOCATION_DEVICE, 0}, .flags = CU_ACCESS_READ_WRITE};
        cu_deviceptr at;

        begin();
        OK(cuMemAddressReserve(&at, EXTENT, 0, 0, 0));
        (void)cuMemSetAccess(at, EXTENT, &desc, 1);
}

static void unmap_part(void)
{
        begin();
        (void)cuMemUnmap(map(create()), 2 * MIB);
}

static void unmap_nothing(void)
{
        cu_deviceptr at;

        begin();
        OK(cuMemAddressReserve(&at, EXTENT, 0, 0, 0));
        (void)cuMemUnmap(at, EXTENT);
}

static void unmap_busy(void)
{
        cu_deviceptr at;

        begin();
        at = map(create());
        OK(cuMemsetD8Async(at, 0, EXTENT, busy_stream()));
        (void)cuMemUnmap(at, EXTENT);
}

static void free_mapped(void)
{
        begin();
        (void)cuMemAddressFree(map(create()), EXTENT);
}

static void free_part(void)
{
        cu_deviceptr at;

        begin();
        OK(cuMemAddressReserve(&at, EXTENT, 0, 0, 0));
        (void)cuMemAddressFree(at, 2 * MIB);
}

static void release_twice(void)
{
        cu_mem_handle handle;

        begin();
        handle = create();
        OK(cuMemRelease(handle));
        (void)cuMemRelease(handle);
}

static void export_private(void)
{
        cu_mem_allocation_prop prop = prop_of(0);
        cu_mem_handle handle;
        int fd;

        begin();
        prop.requested_handle_type = CU_HANDLE_NONE;
        OK(cuMemCreate(&handle, EXTENT, &prop, 0));
        (void)cuMemExportToShareableHandle(&fd, handle, CU_HANDLE_POSIX_FD, 0);
}

/* Use of memory */

static void memset_unmapped(void)
{
        cu_deviceptr at;

        begin();
        at = map(create());
        OK(cuMemUnmap(at, EXTENT));
        (void)cuMemsetD8Async(at, 0, EXTENT, NULL);
}

static void memset_no_access(void)
{
        cu_deviceptr at;

        begin();
        OK(cuMemAddressReserve(&at, EXTENT, 0, 0, 0));
        OK(cuMemMap(at, EXTENT, 0, create(), 0));
        (void)cuMemsetD8Async(at, 0, EXTENT, NULL);
}

static void memset_read_only(void)
{
        cu_deviceptr at;

        begin();
        at = map(create());
        set_access(at, CU_ACCESS_READ);
        CHECK(holds(at, 4096, 0xA5));
        (void)cuMemsetD8Async(at, 0, EXTENT, NULL);
}

static void memset_past_end(void)
{
        begin();
        (void)cuMemsetD8Async(map(create()), 0, EXTENT + 1, NULL);
}

static void copy_past_allocation(void)
{
        cu_deviceptr at;

        begin();
        OK(cuMemAlloc_v2(&at, 100));
        (void)cuMemsetD8Async(at, 0, 101, NULL);
}

static void copy_to_host_address(void)
{
        char bytes[16] = "";

        begin();
        (void)cuMemcpyHtoDAsync_v2((uintptr_t)bytes, bytes, 8, NULL);
}

static void copy_overlap(void)
{
        cu_deviceptr at;

        begin();
        at = allocate();
        (void)cuMemcpyDtoDAsync_v2(at + 8, at, 16, NULL);
}

static void copy_straddles(void)
{
        char *host = host_pages(2 * MIB);

        begin();
        OK(cuMemHostRegister_v2(host, MIB, 0));
        OK(cuMemHostRegister_v2(host + MIB, MIB, 0));
        (void)cuMemcpyHtoDAsync_v2(allocate(), host, 2 * MIB, NULL);
}

static void copy_to_read_only(void)
{
        char *host = host_pages(MIB);

        begin();
        OK(cuMemHostRegister_v2(host, MIB, CU_HOST_REGISTER_READ_ONLY));
        (void)cuMemcpyDtoHAsync_v2(host, allocate(), 8, NULL);
}

static void batch_on_null(void)
{
        cu_memcpy_attributes attributes = {.src_access_order = CU_ACCESS_ORDER_STREAM};
        char host[8] = "";
        cu_deviceptr at, src = (uintptr_t)host;
        size_t bytes = 8, first = 0;

        begin();
        at = allocate();
        (void)cuMemcpyBatchAsync_v2(&at, &src, &bytes, 1, &attributes, &first, 1, NULL);
}

static void batch_order(void)
{
        cu_memcpy_attributes attributes = {.src_access_order = 3};
        char host[8] = "";
        cu_deviceptr at, src = (uintptr_t)host;
        size_t bytes = 8, first = 0;

        begin();
        at = allocate();
        (void)cuMemcpyBatchAsync_v2(&at, &src, &bytes, 1, &attributes, &first, 1, busy_stream());
}

static void kernel_unmapped(void)
{
        char image[4096];
        cu_function function;
        cu_module module;
        uint64_t at = (uint64_t)1 << 40;
        uint32_t n = 8, value = 7;
        void *parameters[] = {&at, &n, &value};

        begin();
        snprintf(image, sizeof(image), FAKE_MODULE_MAGIC "%s\n", TEST_KERNELS);
        OK(cuModuleLoadData(&module, image));
        OK(cuModuleGetFunction(&function, module, "test_fill"));
        OK(cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, NULL, parameters, NULL));
        (void)cuCtxSynchronize();
}

/* Legacy IPC */

static void free_twice(void)
{
        cu_deviceptr at;

        begin();
        at = allocate();
        OK(cuMemFree_v2(at));
        (void)cuMemFree_v2(at);
}

static void ipc_not_base(void)
{
        cu_ipc_mem_handle handle;

        begin();
        (void)cuIpcGetMemHandle(&handle, allocate() + 2 * MIB);
}

static void ipc_size(void)
{
        cu_ipc_mem_handle handle;
        cu_deviceptr at;

        begin();
        OK(cuMemAlloc_v2(&at, MIB));
        (void)cuIpcGetMemHandle(&handle, at);
}

static void ipc_same_process(void)
{
        cu_ipc_mem_handle handle;
        cu_deviceptr at;

        begin();
        OK(cuIpcGetMemHandle(&handle, allocate()));
        (void)cuIpcOpenMemHandle_v2(&at, handle, CU_IPC_LAZY_ENABLE_PEER_ACCESS);
}

static void ipc_owner(int fd)
{
        cu_ipc_mem_handle handle;

        begin();
        OK(cuIpcGetMemHandle(&handle, allocate()));
        send_bytes(fd, &handle, sizeof(handle));
        (void)!read(fd, &handle, 1);
        _exit(0);
}

static cu_ipc_mem_handle ipc_handle(void)
{
        struct peer peer = peer_start(ipc_owner);
        cu_ipc_mem_handle handle;

        receive_bytes(peer.fd, &handle, sizeof(handle));
        begin();
        return handle;
}

static void ipc_close_too_often(void)
{
        cu_ipc_mem_handle handle = ipc_handle();
        cu_deviceptr at;

        for (unsigned i = 0; i < 2; i++)
                OK(cuIpcOpenMemHandle_v2(&at, handle, CU_IPC_LAZY_ENABLE_PEER_ACCESS));
        for (unsigned i = 0; i < 2; i++)
                OK(cuIpcCloseMemHandle(at));
        (void)cuIpcCloseMemHandle(at);
}

static void ipc_flags(void)
{
        cu_ipc_mem_handle handle = ipc_handle();
        cu_deviceptr at;

        (void)cuIpcOpenMemHandle_v2(&at, handle, 0);
}

static void ipc_close_twice(void)
{
        cu_ipc_mem_handle handle = ipc_handle();
        cu_deviceptr at;

        OK(cuIpcOpenMemHandle_v2(&at, handle, CU_IPC_LAZY_ENABLE_PEER_ACCESS));
        OK(cuIpcCloseMemHandle(at));
        (void)cuIpcCloseMemHandle(at);
}

static void ipc_holder(int fd)
{
        cu_ipc_mem_handle handle;
        cu_deviceptr at;

        receive_bytes(fd, &handle, sizeof(handle));
        begin();
        OK(cuIpcOpenMemHandle_v2(&at, handle, CU_IPC_LAZY_ENABLE_PEER_ACCESS));
        say(fd);
        (void)!read(fd, &handle, 1);
        _exit(0);
}

static void ipc_free_while_open(void)
{
        struct peer peer = peer_start(ipc_holder);
        cu_ipc_mem_handle handle;
        cu_deviceptr at;

        begin();
        at = allocate();
        OK(cuIpcGetMemHandle(&handle, at));
        send_bytes(peer.fd, &handle, sizeof(handle));
        hear(peer.fd);
        (void)cuMemFree_v2(at);
}

static void free_busy(void)
{
        cu_deviceptr at;

        begin();
        at = allocate();
        OK(cuMemsetD8Async(at, 0, EXTENT, busy_stream()));
        (void)cuMemFree_v2(at);
}

/* Contexts and threads */

static void no_context(void)
{
        cu_deviceptr at;

        OK(cuInit(0));
        (void)cuMemAlloc_v2(&at, EXTENT);
}

static void no_context_memset(void)
{
        cu_deviceptr at;

        begin();
        at = allocate();
        OK(cuCtxPopCurrent_v2(NULL));
        (void)cuMemsetD8Async(at, 0, EXTENT, NULL);
}

static void pop_too_many(void)
{
        OK(cuInit(0));
        (void)cuCtxPopCurrent_v2(NULL);
}

static void *push_and_end(void *context)
{
        OK(cuCtxPushCurrent_v2(context));
        return NULL;
}

static void thread_imbalance(void)
{
        cu_context context = begin();
        pthread_t thread;

        CHECK(pthread_create(&thread, NULL, push_and_end, context) == 0);
        CHECK(pthread_join(thread, NULL) == 0);
}

static void push_released(void)
{
        cu_context context = begin();

        end();
        (void)cuCtxPushCurrent_v2(context);
}

static void release_current(void)
{
        begin();
        (void)cuDevicePrimaryCtxRelease_v2(0);
}

static void release_unretained(void)
{
        OK(cuInit(0));
        (void)cuDevicePrimaryCtxRelease_v2(0);
}

static void other_context(void)
{
        cu_context context;
        cu_stream stream;

        setenv("FAKECUDA_DEVICES", "2", 1);
        begin();
        OK(cuStreamCreate(&stream, 0));
        OK(cuDevicePrimaryCtxRetain(&context, 1));
        OK(cuCtxPushCurrent_v2(context));
        (void)cuStreamQuery(stream);
}

static void after_fork(void)
{
        int status, n;
        pid_t pid;

        OK(cuInit(0));
        pid = child_fork();
        if (pid == 0)
                (void)cuDeviceGetCount(&n);
        CHECK(waitpid(pid, &status, 0) == pid);
        abort();
}

static void call_driver(void *data)
{
        (void)cuStreamQuery(NULL);
}

static void host_function_calls(void)
{
        begin();
        OK(cuLaunchHostFunc(NULL, call_driver, NULL));
        (void)cuStreamSynchronize(NULL);
}

static void stream_destroyed(void)
{
        cu_stream stream;

        begin();
        OK(cuStreamCreate(&stream, 0));
        OK(cuStreamDestroy_v2(stream));
        (void)cuStreamQuery(stream);
}

static void event_destroyed(void)
{
        cu_event event;

        begin();
        OK(cuEventCreate(&event, 0));
        OK(cuEventDestroy_v2(event));
        (void)cuEventQuery(event);
}

/* Host registration */

static void register_unaligned(void)
{
        begin();
        (void)cuMemHostRegister_v2(host_pages(MIB) + 8, 4096, 0);
}

static void register_large(void)
{
        begin();
        (void)cuMemHostRegister_v2(host_pages(MIB), ((size_t)64 << 30) + 4096, 0);
}

static void unregister_busy(void)
{
        char *host = host_pages(MIB);

        begin();
        OK(cuMemHostRegister_v2(host, MIB, 0));
        OK(cuMemcpyHtoDAsync_v2(allocate(), host, 8, busy_stream()));
        (void)cuMemHostUnregister(host);
}

static void unregister_unmapped(void)
{
        char *host = host_pages(MIB);

        begin();
        OK(cuMemHostRegister_v2(host, MIB, 0));
        munmap(host, MIB);
        (void)cuMemHostUnregister(host);
}

/* Leaks */

static void leaks_vmm(void)
{
        begin();
        map(create());
        end();
}

static void leaks_others(void)
{
        char image[4096];
        cu_stream stream;
        cu_event event;
        cu_module module;

        begin();
        allocate();
        OK(cuStreamCreate(&stream, 0));
        OK(cuEventCreate(&event, 0));
        OK(cuMemHostRegister_v2(host_pages(MIB), MIB, 0));
        snprintf(image, sizeof(image), FAKE_MODULE_MAGIC "%s\n", TEST_KERNELS);
        OK(cuModuleLoadData(&module, image));
}

static void leaks_opened(void)
{
        cu_ipc_mem_handle handle = ipc_handle();
        cu_deviceptr at;

        OK(cuIpcOpenMemHandle_v2(&at, handle, CU_IPC_LAZY_ENABLE_PEER_ACCESS));
}

static void release_with_stream(void)
{
        cu_stream stream;

        begin();
        OK(cuStreamCreate(&stream, 0));
        end();
}

/* Rules and settings that can't be read */

static void bad_fault_rule(void)
{
        setenv("FAKECUDA_FAIL", "cuInit", 1);
        (void)cuInit(0);
}

#define RULE(fn, line)                                                        \
        {                                                                     \
#fn, test_rule, test_fds_note, test_fds_check, &(struct rule) \
                {                                                             \
                        fn, line                                              \
                }                                                             \
        }

int main(void)
{
        const struct CMUnitTest tests[] = {
                RULE(create_size, "cuMemCreate: the size 0x100000 is no multiple"),
                RULE(create_prop, "cuMemCreate: unused members"),
                RULE(reserve_size, "cuMemAddressReserve: the size 0x100000 is no multiple"),
                RULE(reserve_alignment, "cuMemAddressReserve: the alignment 3 is no power"),
                RULE(map_offset, "cuMemMap: offset must be zero"),
                RULE(map_part, "cuMemMap: 2097152 bytes of a handle of 4194304"),
                RULE(map_unaligned, "cuMemMap: the address"),
                RULE(map_twice, "cuMemMap: something is mapped there already"),
                RULE(map_unreserved, "cuMemMap: 0x10000000000, 4194304 bytes: not in one reserved"),
                RULE(map_past_end, "cuMemMap: 0x"),
                RULE(map_released, "cuMemMap: 0x"),
                RULE(access_of_part, "cuMemSetAccess: a part of a mapping"),
                RULE(access_unmapped, "cuMemSetAccess: nothing is mapped"),
                RULE(unmap_part, "cuMemUnmap: 0x"),
                RULE(unmap_nothing, "cuMemUnmap: nothing is mapped at"),
                RULE(unmap_busy, "cuMemUnmap: 0x"),
                RULE(free_mapped, "cuMemAddressFree: memory is still mapped at"),
                RULE(free_part, "cuMemAddressFree: 0x"),
                RULE(release_twice, "cuMemRelease: 0x"),
                RULE(export_private, "cuMemExportToShareableHandle: the memory wasn't made"),
                RULE(memset_unmapped, "cuMemsetD8Async: destination: nothing is mapped at"),
                RULE(memset_no_access, "cuMemsetD8Async: destination: no write access"),
                RULE(memset_read_only, "cuMemsetD8Async: destination: no write access"),
                RULE(memset_past_end, "cuMemsetD8Async: destination: 4194305 bytes"),
                RULE(copy_past_allocation, "cuMemsetD8Async: destination: nothing is mapped at"),
                RULE(copy_to_host_address, "cuMemcpyHtoDAsync: destination: 0x"),
                RULE(copy_overlap, "cuMemcpyDtoDAsync: source and destination overlap"),
                RULE(copy_straddles, "cuMemcpyHtoDAsync: 2097152 bytes at"),
                RULE(copy_to_read_only, "cuMemcpyDtoHAsync: the destination"),
                RULE(batch_on_null, "cuMemcpyBatchAsync: not on the NULL stream"),
                RULE(batch_order, "cuMemcpyBatchAsync: the access order of the source"),
                RULE(kernel_unmapped, "stream: a kernel: 0x10000000000 is no device memory"),
                RULE(free_twice, "cuMemFree: 0x"),
                RULE(ipc_not_base, "cuIpcGetMemHandle: 0x"),
                RULE(ipc_size, "cuIpcGetMemHandle: 1048576 bytes: only multiples of 2 MiB"),
                RULE(ipc_same_process, "cuIpcOpenMemHandle: the handle is of this process"),
                RULE(ipc_close_too_often, "cuIpcCloseMemHandle: 0x"),
                RULE(ipc_flags, "cuIpcOpenMemHandle: flags must be LAZY_ENABLE_PEER_ACCESS"),
                RULE(ipc_close_twice, "cuIpcCloseMemHandle: 0x"),
                RULE(ipc_free_while_open, "cuMemFree: another process has the memory open"),
                RULE(free_busy, "cuMemFree: 0x"),
                RULE(no_context, "cuMemAlloc: no current context"),
                RULE(no_context_memset, "cuMemsetD8Async: no current context"),
                RULE(pop_too_many, "cuCtxPopCurrent: no context was pushed"),
                RULE(thread_imbalance, "cuCtxPushCurrent: the thread ends with 1 contexts"),
                RULE(push_released, "cuCtxPushCurrent: not a context that is retained"),
                RULE(release_current, "cuDevicePrimaryCtxRelease: the context still has 1 place"),
                RULE(release_unretained, "cuDevicePrimaryCtxRelease: the primary context isn't"),
                RULE(other_context, "cuStreamQuery: the stream is of another context"),
                RULE(after_fork, "cuDeviceGetCount: called in a child of the process"),
                RULE(host_function_calls, "cuStreamQuery: called by a host function"),
                RULE(stream_destroyed, "cuStreamQuery: 0x"),
                RULE(event_destroyed, "cuEventQuery: 0x"),
                RULE(register_unaligned, "cuMemHostRegister: 4096 bytes at"),
                RULE(register_large, "cuMemHostRegister: 68719480832 bytes: more than 64 GiB"),
                RULE(unregister_busy, "cuMemHostUnregister: 0x"),
                RULE(unregister_unmapped, "cuMemHostUnregister: 0x"),
                RULE(leaks_vmm, "exit: leaked 1 handle, 1 reservation, 1 mapping\n"),
                RULE(leaks_others,
                        "exit: leaked 1 allocation, 1 stream, 1 event, 1 host registration, "
                        "1 module, 1 retained primary context, 1 pushed context\n"),
                RULE(leaks_opened, "exit: leaked 1 opened IPC handle, 1 retained primary"),
                RULE(release_with_stream, "cuDevicePrimaryCtxRelease: the context still has 1 str"),
                RULE(bad_fault_rule, "cuInit: can't read the rule \"cuInit\""),
        };

        return RUN_TESTS(tests);
}
