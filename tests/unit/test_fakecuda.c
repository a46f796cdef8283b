/* The driver double's memory and devices, normal ways. Work: test_fakecuda_work.c. What aborts:
 * test_fakecuda_rules.c. */
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/unit/child.h"
#include "tests/unit/fakecuda-process.h"
#include "tests/unit/test-support.h"

static void test_clean(void **state)
{
        expect_clean((child_fn)*state);
}

static size_t free_bytes(void)
{
        size_t free, total;

        OK(cuMemGetInfo_v2(&free, &total));
        return free;
}

/* Devices */

static void devices(void)
{
        cu_device device;
        cu_context context;
        cu_uuid uuid;
        size_t bytes;
        char name[64];
        int n, value;

        GIVES(cuDeviceGetCount(&n), CU_NOT_INITIALIZED);
        setenv("FAKECUDA_DEVICES", "3", 1);
        setenv("FAKECUDA_MEMORY", "1073741824", 1);
        setenv("CUDA_VISIBLE_DEVICES", "2,GPU-fa4ecada-0000-0000-0000-000000000001", 1);
        OK(cuInit(0));
        OK(cuDeviceGetCount(&n));
        CHECK(n == 2);
        GIVES(cuDeviceGet(&device, 2), CU_INVALID_DEVICE);
        OK(cuDeviceGet(&device, 0));
        OK(cuDeviceGetUuid_v2(&uuid, device));
        CHECK(memcmp(uuid.bytes, "\xfa\x4e\xca\xda\0\0\0\0\0\0\0\0\0\0\0\x02", 16) == 0);
        OK(cuDeviceGetUuid(&uuid, 1));
        CHECK(uuid.bytes[15] == 1);
        OK(cuDeviceTotalMem_v2(&bytes, device));
        CHECK(bytes == 1024 * MIB);
        OK(cuDeviceGetName(name, sizeof(name), device));
        OK(cuDeviceGetAttribute(&value, CU_ATTR_VMM_POSIX_FD, device));
        CHECK(value == 1);
        OK(cuCtxGetCurrent(&context));
        CHECK(!context);
}

static void no_device(void)
{
        int n;

        setenv("FAKECUDA_DEVICES", "0", 1);
        GIVES(cuInit(0), CU_NO_DEVICE);
        GIVES(cuDeviceGetCount(&n), CU_NOT_INITIALIZED);
        setenv("FAKECUDA_DEVICES", "1", 1);
        setenv("FAKECUDA_DIR", "/nonexistent", 1);
        GIVES(cuInit(0), CU_NO_DEVICE);
        unsetenv("FAKECUDA_DIR");
        GIVES(cuInit(0), CU_NO_DEVICE);
}

/* Symbols by version */

static void *symbol(const char *name, int version, cu_result want)
{
        void *pfn = &pfn;
        int status;

        GIVES(cuGetProcAddress_v2(name, &pfn, version, 0, &status), want);
        return pfn;
}

static void symbols(void)
{
        void *pfn;

        setenv("FAKECUDA_VERSION", "13000", 1);
        CHECK(symbol("cuMemcpyBatchAsync", 12080, CU_OK) == (void *)cuMemcpyBatchAsync);
        CHECK(symbol("cuMemcpyBatchAsync", 13000, CU_OK) == (void *)cuMemcpyBatchAsync_v2);
        CHECK(symbol("cuDeviceGetUuid", 9020, CU_OK) == (void *)cuDeviceGetUuid);
        CHECK(symbol("cuDeviceGetUuid", 11040, CU_OK) == (void *)cuDeviceGetUuid_v2);
        CHECK(symbol("cuMemFree", 3020, CU_OK) == (void *)cuMemFree_v2);
        CHECK(!symbol("cuMemCreate", 13010, CU_INVALID_VALUE));
        CHECK(!symbol("cuNothing", 13000, CU_NOT_FOUND));
        CHECK(!symbol("cuMemCreate", 10000, CU_OK)); /* success without an address */
        setenv("FAKECUDA_NO", "vmm,batch", 1);
        CHECK(!symbol("cuMemCreate", 13000, CU_NOT_FOUND));
        CHECK(!symbol("cuMemcpyBatchAsync", 13000, CU_NOT_FOUND));
        CHECK(symbol("cuIpcGetMemHandle", 13000, CU_OK) == (void *)cuIpcGetMemHandle);
        setenv("FAKECUDA_VERSION", "11030", 1);
        setenv("FAKECUDA_NO", "", 1);
        GIVES(cuGetProcAddress_v2("cuInit", &pfn, 2000, 0, NULL), CU_NOT_SUPPORTED);
        OK(cuGetProcAddress("cuMemCreate", &pfn, 10020, 0));
        CHECK(pfn == (void *)cuMemCreate);
        GIVES(cuGetProcAddress("cuMemcpyBatchAsync", &pfn, 11030, 0), CU_NOT_FOUND);
        GIVES(cuGetProcAddress("cuMemcpyBatchAsync", &pfn, 12080, 0), CU_INVALID_VALUE);
        OK(cuGetProcAddress("cuDeviceGetUuid", &pfn, 11030, 0));
        CHECK(pfn == (void *)cuDeviceGetUuid);
}

/* VMM */

static void vmm_one_process(void)
{
        cu_context context = begin(), current;
        size_t before = free_bytes();
        cu_mem_handle handle = create();
        cu_deviceptr at = map(handle);

        OK(cuCtxGetCurrent(&current));
        CHECK(current == context);
        CHECK(free_bytes() == before - EXTENT);
        CHECK(holds(at, 4096, 0xA5));
        CHECK(holds(at + EXTENT - 4096, 4096, 0xA5));
        OK(cuMemRelease(handle));
        fill(at, 0);
        CHECK(holds(at, EXTENT, 0));
        fill(at, 0x17);
        CHECK(holds(at, EXTENT, 0x17));
        CHECK(free_bytes() == before - EXTENT);
        unmap(at);
        CHECK(free_bytes() == before);
        end();
}

/* Odd borders: only the bytes asked for. */
static void memset_borders(void)
{
        cu_mem_handle handle;
        cu_deviceptr at;

        begin();
        handle = create();
        at = map(handle);
        fill(at, 0x11);
        OK(cuMemsetD8Async(at + 5000, 0, 20000, NULL));
        OK(cuStreamSynchronize(NULL));
        CHECK(holds(at, 5000, 0x11));
        CHECK(holds(at + 5000, 20000, 0));
        CHECK(holds(at + 25000, 20000, 0x11));
        unmap(at);
        OK(cuMemRelease(handle));
        end();
}

/* A CPU access faults, as on hardware. */
static void cpu_faults(void)
{
        cu_deviceptr at;
        int status;
        pid_t pid = child_fork();

        if (pid == 0) {
                begin();
                at = map(create());
                signal(SIGSEGV, SIG_DFL);
                *(volatile char *)(uintptr_t)at = 1;
                _exit(0);
        }
        CHECK(waitpid(pid, &status, 0) == pid);
        CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
}

static bool is_cpu_memory(cu_deviceptr at)
{
        int ends[2];
        bool readable;

        CHECK(pipe(ends) == 0);
        readable = write(ends[1], (void *)(uintptr_t)at, 1) == 1;
        close(ends[0]);
        close(ends[1]);
        return readable;
}

static void reserve_wanted(void)
{
        cu_deviceptr at, again, other;

        OK(cuInit(0));
        OK(cuMemAddressReserve(&at, 8 * MIB, 0, 0, 0));
        OK(cuMemAddressFree(at, 8 * MIB));
        OK(cuMemAddressReserve(&again, 8 * MIB, 0, at, 0));
        CHECK(again == at);
        CHECK(!is_cpu_memory(again));
        OK(cuMemAddressReserve(&other, 8 * MIB, 0, at, 0));
        CHECK(other != at && other % (2 * MIB) == 0);
        OK(cuMemAddressFree(again, 8 * MIB));
        OK(cuMemAddressFree(other, 8 * MIB));
        OK(cuMemAddressReserve(&at, 2 * MIB, 64 * MIB, 0, 0));
        CHECK(at % (64 * MIB) == 0);
        OK(cuMemAddressFree(at, 2 * MIB));
}

static void out_of_memory(void)
{
        cu_mem_allocation_prop prop = prop_of(0);
        cu_mem_handle handle, more;
        cu_deviceptr at;

        setenv("FAKECUDA_MEMORY", "8388608", 1);
        begin();
        handle = create();
        GIVES(cuMemCreate(&more, 6 * MIB, &prop, 0), CU_OUT_OF_MEMORY);
        GIVES(cuMemAlloc_v2(&at, 6 * MIB), CU_OUT_OF_MEMORY);
        OK(cuMemAlloc_v2(&at, 4 * MIB));
        OK(cuMemFree_v2(at));
        OK(cuMemRelease(handle));
        prop = prop_of(1);
        GIVES(cuMemCreate(&handle, EXTENT, &prop, 0), CU_INVALID_DEVICE);
        end();
}

static void vmm_user(int fd)
{
        cu_mem_handle handle;
        cu_deviceptr at;
        int received = receive_fd(fd);

        begin();
        OK(cuMemImportFromShareableHandle(&handle, (void *)(intptr_t)received, CU_HANDLE_POSIX_FD));
        CHECK(fcntl(received, F_GETFD) >= 0); /* still ours */
        close(received);
        at = map(handle);
        OK(cuMemRelease(handle));
        CHECK(holds(at, EXTENT, 0x21));
        fill(at, 0x22);
        say(fd);
        hear(fd); /* the owner has given its own up */
        CHECK(holds(at, EXTENT, 0x22));
        CHECK(free_bytes() == (size_t)8192 * MIB - EXTENT);
        unmap(at);
        CHECK(free_bytes() == (size_t)8192 * MIB);
        end();
}

static void vmm_two_processes(void)
{
        struct peer peer = peer_start(vmm_user);
        cu_mem_handle handle;
        cu_deviceptr at;
        int fd;

        begin();
        handle = create();
        at = map(handle);
        fill(at, 0x21);
        OK(cuMemExportToShareableHandle(&fd, handle, CU_HANDLE_POSIX_FD, 0));
        CHECK(fcntl(fd, F_GETFD) & FD_CLOEXEC);
        send_fd(peer.fd, fd);
        close(fd);
        hear(peer.fd);
        CHECK(holds(at, EXTENT, 0x22));
        unmap(at);
        OK(cuMemRelease(handle));
        CHECK(free_bytes() == (size_t)8192 * MIB - EXTENT);
        say(peer.fd);
        peer_join(&peer);
        CHECK(free_bytes() == (size_t)8192 * MIB);
        end();
}

/* An exporter that is killed: the memory lives as long as an fd of it, and no longer. */
static void vmm_exporter(int fd)
{
        cu_mem_handle handle;
        int exported;

        begin();
        handle = create();
        fill(map(handle), 0x31);
        create(); /* private: freed with the process */
        OK(cuMemExportToShareableHandle(&exported, handle, CU_HANDLE_POSIX_FD, 0));
        send_fd(fd, exported);
        hear(fd);
}

static void vmm_exporter_dies(void)
{
        struct peer peer = peer_start(vmm_exporter);
        int fd = receive_fd(peer.fd);
        cu_mem_handle handle;
        cu_deviceptr at;

        begin();
        CHECK(free_bytes() == (size_t)8192 * MIB - 2 * EXTENT);
        peer_kill(&peer);
        CHECK(free_bytes() == (size_t)8192 * MIB - EXTENT);
        OK(cuMemImportFromShareableHandle(&handle, (void *)(intptr_t)fd, CU_HANDLE_POSIX_FD));
        at = map(handle);
        CHECK(holds(at, EXTENT, 0x31));
        unmap(at);
        OK(cuMemRelease(handle));
        CHECK(free_bytes() == (size_t)8192 * MIB - EXTENT);
        close(fd);
        CHECK(free_bytes() == (size_t)8192 * MIB);
        end();
}

static void foreign_fd(void)
{
        int fd = memfd_create("foreign", MFD_CLOEXEC);
        cu_mem_handle handle;

        OK(cuInit(0));
        CHECK(ftruncate(fd, EXTENT) == 0);
        GIVES(cuMemImportFromShareableHandle(&handle, (void *)(intptr_t)fd, CU_HANDLE_POSIX_FD),
                CU_INVALID_VALUE);
        close(fd);
        GIVES(cuMemImportFromShareableHandle(&handle, (void *)(intptr_t)fd, CU_HANDLE_POSIX_FD),
                CU_INVALID_VALUE);
}

static void lacking(void)
{
        cu_mem_allocation_prop prop = prop_of(0);
        cu_mem_handle handle;
        int value;

        begin();
        prop.flags.gpu_direct_rdma_capable = 1;
        OK(cuMemCreate(&handle, EXTENT, &prop, 0));
        OK(cuMemRelease(handle));
        setenv("FAKECUDA_NO", "fd,rdma", 1);
        GIVES(cuMemCreate(&handle, EXTENT, &prop, 0), CU_NOT_SUPPORTED);
        OK(cuDeviceGetAttribute(&value, CU_ATTR_VMM, 0));
        CHECK(value == 1);
        OK(cuDeviceGetAttribute(&value, CU_ATTR_VMM_POSIX_FD, 0));
        CHECK(value == 0);
        setenv("FAKECUDA_NO", "vmm-attribute", 1);
        OK(cuDeviceGetAttribute(&value, CU_ATTR_VMM, 0));
        CHECK(value == 0);
        GIVES(cuMemCreate(&handle, EXTENT, &prop, 0), CU_NOT_SUPPORTED);
        end();
}

/* Legacy IPC */

static void ipc_user(int fd)
{
        cu_ipc_mem_handle handle;
        cu_deviceptr at, again;

        receive_bytes(fd, &handle, sizeof(handle));
        begin();
        OK(cuIpcOpenMemHandle_v2(&at, handle, CU_IPC_LAZY_ENABLE_PEER_ACCESS));
        CHECK(holds(at, EXTENT, 0x41));
        /* Once more in the same process: counted, as the API documentation says. */
        OK(cuIpcOpenMemHandle_v2(&again, handle, CU_IPC_LAZY_ENABLE_PEER_ACCESS));
        CHECK(again == at);
        OK(cuIpcCloseMemHandle(again));
        fill(at, 0x42);
        OK(cuIpcCloseMemHandle(at));
        OK(cuIpcOpenMemHandle_v2(&at, handle, CU_IPC_LAZY_ENABLE_PEER_ACCESS));
        OK(cuIpcCloseMemHandle(at));
        say(fd);
        hear(fd); /* freed */
        GIVES(cuIpcOpenMemHandle_v2(&at, handle, CU_IPC_LAZY_ENABLE_PEER_ACCESS),
                CU_INVALID_HANDLE);
        end();
}

static void ipc_two_processes(void)
{
        struct peer peer = peer_start(ipc_user);
        cu_ipc_mem_handle handle;
        cu_deviceptr at;

        begin();
        OK(cuMemAlloc_v2(&at, EXTENT));
        CHECK(at % (2 * MIB) == 0);
        CHECK(holds(at, 4096, 0xA5));
        fill(at, 0x41);
        OK(cuIpcGetMemHandle(&handle, at));
        send_bytes(peer.fd, &handle, sizeof(handle));
        hear(peer.fd);
        CHECK(holds(at, EXTENT, 0x42));
        OK(cuMemFree_v2(at));
        CHECK(free_bytes() == (size_t)8192 * MIB);
        say(peer.fd);
        peer_join(&peer);
        end();
}

/* The importer is killed with the memory open: the owner may free it. */
static void ipc_holder(int fd)
{
        cu_ipc_mem_handle handle;
        cu_deviceptr at;

        receive_bytes(fd, &handle, sizeof(handle));
        begin();
        OK(cuIpcOpenMemHandle_v2(&at, handle, CU_IPC_LAZY_ENABLE_PEER_ACCESS));
        say(fd);
        hear(fd);
}

static void ipc_importer_dies(void)
{
        struct peer peer = peer_start(ipc_holder);
        cu_ipc_mem_handle handle;
        cu_deviceptr at;

        begin();
        OK(cuMemAlloc_v2(&at, EXTENT));
        OK(cuIpcGetMemHandle(&handle, at));
        send_bytes(peer.fd, &handle, sizeof(handle));
        hear(peer.fd);
        peer_kill(&peer);
        OK(cuMemFree_v2(at));
        end();
}

/* The exporter is killed: processes that have the memory open keep it, others can't open it. */
static void ipc_exporter(int fd)
{
        cu_ipc_mem_handle handle;
        cu_deviceptr at;

        begin();
        OK(cuMemAlloc_v2(&at, EXTENT));
        fill(at, 0x51);
        OK(cuIpcGetMemHandle(&handle, at));
        send_bytes(fd, &handle, sizeof(handle));
        hear(fd);
}

static void ipc_latecomer(int fd)
{
        cu_ipc_mem_handle handle;
        cu_deviceptr at;

        receive_bytes(fd, &handle, sizeof(handle));
        begin();
        GIVES(cuIpcOpenMemHandle_v2(&at, handle, CU_IPC_LAZY_ENABLE_PEER_ACCESS),
                CU_INVALID_HANDLE);
        end();
}

static void ipc_exporter_dies(void)
{
        struct peer late = peer_start(ipc_latecomer), peer = peer_start(ipc_exporter);
        cu_ipc_mem_handle handle;
        cu_deviceptr at;

        begin();
        receive_bytes(peer.fd, &handle, sizeof(handle));
        OK(cuIpcOpenMemHandle_v2(&at, handle, CU_IPC_LAZY_ENABLE_PEER_ACCESS));
        peer_kill(&peer);
        CHECK(holds(at, EXTENT, 0x51));
        CHECK(free_bytes() == (size_t)8192 * MIB - EXTENT);
        send_bytes(late.fd, &handle, sizeof(handle));
        peer_join(&late);
        OK(cuIpcCloseMemHandle(at));
        CHECK(free_bytes() == (size_t)8192 * MIB);
        GIVES(cuIpcOpenMemHandle_v2(&at, handle, CU_IPC_LAZY_ENABLE_PEER_ACCESS),
                CU_INVALID_HANDLE);
        memset(&handle, 0, sizeof(handle));
        GIVES(cuIpcOpenMemHandle_v2(&at, handle, CU_IPC_LAZY_ENABLE_PEER_ACCESS), CU_INVALID_VALUE);
        end();
}

#define CLEAN(fn)                                                          \
        {                                                                  \
#fn, test_clean, test_fds_note, test_fds_check, (void *)fn \
        }

int main(void)
{
        const struct CMUnitTest tests[] = {
                CLEAN(devices),
                CLEAN(no_device),
                CLEAN(symbols),
                CLEAN(vmm_one_process),
                CLEAN(memset_borders),
                CLEAN(cpu_faults),
                CLEAN(reserve_wanted),
                CLEAN(out_of_memory),
                CLEAN(vmm_two_processes),
                CLEAN(vmm_exporter_dies),
                CLEAN(foreign_fd),
                CLEAN(lacking),
                CLEAN(ipc_two_processes),
                CLEAN(ipc_importer_dies),
                CLEAN(ipc_exporter_dies),
        };

        return RUN_TESTS(tests);
}
