/* Rules on which the simulated driver aborts: each is broken once, in a process of its own. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/fakecuda/fake.h"
#include "tests/fakecuda/kernel.h"
#include "tests/unit/child.h"
#include "tests/unit/test-support.h"

#define MIB    ((size_t)1 << 20)
#define EXTENT (4 * MIB)

/* In a process of a rule, where cmocka's assertions don't work. */
#define CHECK(x)                                             \
        do {                                                 \
                if (!(x))                                    \
                        child_fails(__FILE__, __LINE__, #x); \
        } while (0)
#define OK(call) child_expects(__FILE__, __LINE__, #call, call, CU_OK)

_Noreturn static void child_fails(const char *file, int line, const char *what)
{
        fprintf(stderr, "%s:%d: %s\n", file, line, what);
        _exit(1);
}

static void child_expects(const char *file, int line, const char *what, int got, int want)
{
        if (got == want)
                return;
        fprintf(stderr, "%s:%d: %s: %d instead of %d\n", file, line, what, got, want);
        _exit(1);
}

/* Runs fn in a process of its own with a fresh $FAKECUDA_DIR. Returns its status, and its standard
 * error in `said`. */
static int run_process(void (*fn)(void), char *said, size_t size)
{
        const char *dir = test_dir_make();
        int to_us[2], status;
        size_t len = 0;
        ssize_t n;
        pid_t pid;

        assert_int_equal(pipe(to_us), 0);
        fflush(NULL);
        pid = child_fork();
        assert_true(pid >= 0);
        if (pid == 0) {
                setrlimit(RLIMIT_CORE, &(struct rlimit){0});
                dup2(to_us[1], STDERR_FILENO);
                close(to_us[0]);
                close(to_us[1]);
                setenv("FAKECUDA_DIR", dir, 1);
                alarm(50);
                signal(SIGABRT, SIG_DFL);
                fn();
                exit(0);
        }
        close(to_us[1]);
        while ((n = read(to_us[0], said + len, size - 1 - len)) > 0)
                len += (size_t)n;
        said[len] = '\0';
        close(to_us[0]);
        assert_int_equal(waitpid(pid, &status, 0), pid);
        test_dir_remove(dir);
        return status;
}

static void expect_abort(void (*fn)(void), const char *line)
{
        char said[4096], want[512];
        int status = run_process(fn, said, sizeof(said));

        snprintf(want, sizeof(want), "fakecuda: %s", line);
        if (strncmp(said, want, strlen(want)) != 0)
                fail_msg("\"%s\" instead of \"%s\"", said, want);
        assert_ptr_equal(strchr(said, '\n'), said + strlen(said) - 1);
        assert_true(WIFSIGNALED(status));
        assert_int_equal(WTERMSIG(status), SIGABRT);
}

struct peer {
        pid_t pid;
        int fd;
};

/* Starts a second process, and a socket between the two, before the driver is used. */
static struct peer peer_start(void (*fn)(int fd))
{
        struct peer p;
        int pair[2];

        CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) == 0);
        p.pid = child_fork();
        CHECK(p.pid >= 0);
        if (p.pid == 0) {
                close(pair[0]);
                alarm(50);
                fn(pair[1]);
                exit(0);
        }
        close(pair[1]);
        p.fd = pair[0];
        return p;
}

static void say(int fd)
{
        CHECK(write(fd, "x", 1) == 1);
}

static void hear(int fd)
{
        char c;

        CHECK(read(fd, &c, 1) == 1);
}

static void send_bytes(int fd, const void *data, size_t len)
{
        CHECK(write(fd, data, len) == (ssize_t)len);
}

static void receive_bytes(int fd, void *data, size_t len)
{
        CHECK(recv(fd, data, len, MSG_WAITALL) == (ssize_t)len);
}

static cu_context begin(void)
{
        cu_context context;

        OK(cuInit(0));
        OK(cuDevicePrimaryCtxRetain(&context, 0));
        OK(cuCtxPushCurrent_v2(context));
        return context;
}

static void end(void)
{
        OK(cuCtxPopCurrent_v2(NULL));
        OK(cuDevicePrimaryCtxRelease_v2(0));
}

static cu_mem_allocation_prop prop_of(int ordinal)
{
        return (cu_mem_allocation_prop){.type = CU_ALLOC_PINNED,
                .requested_handle_type = CU_HANDLE_POSIX_FD,
                .location = {CU_LOCATION_DEVICE, ordinal}};
}

static cu_mem_handle create(void)
{
        cu_mem_allocation_prop prop = prop_of(0);
        cu_mem_handle handle;

        OK(cuMemCreate(&handle, EXTENT, &prop, 0));
        return handle;
}

static void set_access(cu_deviceptr at, int flags)
{
        cu_mem_access_desc desc = {.location = {CU_LOCATION_DEVICE, 0}, .flags = flags};

        OK(cuMemSetAccess(at, EXTENT, &desc, 1));
}

static cu_deviceptr map(cu_mem_handle handle)
{
        cu_deviceptr at;

        OK(cuMemAddressReserve(&at, EXTENT, 0, 0, 0));
        OK(cuMemMap(at, EXTENT, 0, handle, 0));
        set_access(at, CU_ACCESS_READ_WRITE);
        return at;
}

static bool holds(cu_deviceptr at, size_t bytes, uint8_t value)
{
        uint8_t *copy = malloc(bytes);
        bool same = true;

        CHECK(copy);
        OK(cuMemcpyDtoHAsync_v2(copy, at, bytes, NULL));
        OK(cuStreamSynchronize(NULL));
        for (size_t i = 0; i < bytes; i++)
                same &= copy[i] == value;
        free(copy);
        return same;
}

/* Begins the code of a process, which the driver must abort with `line` (a prefix). */
#define RULE(fn, line)                            \
        static void fn##_process(void);           \
        TEST(fn)                                  \
        {                                         \
                expect_abort(fn##_process, line); \
        }                                         \
        static void fn##_process(void)

/* RULE_CALL() begins and makes one call, with the context of device 0 current. */
#define RULE_CALL(fn, line, call) \
        RULE(fn, line)            \
        {                         \
                begin();          \
                (void)call;       \
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

static cu_deviceptr reserve(size_t bytes)
{
        cu_deviceptr at;

        OK(cuMemAddressReserve(&at, bytes, 0, 0, 0));
        return at;
}

static cu_mem_handle released(void)
{
        cu_mem_handle handle = create();

        OK(cuMemRelease(handle));
        return handle;
}

static int set_access_of(cu_deviceptr at, size_t bytes)
{
        cu_mem_access_desc desc = {
                .location = {CU_LOCATION_DEVICE, 0}, .flags = CU_ACCESS_READ_WRITE};

        return cuMemSetAccess(at, bytes, &desc, 1);
}

static cu_module load_kernels(void)
{
        char image[4096];
        cu_module module;

        snprintf(image, sizeof(image), FAKE_MODULE_MAGIC "%s\n", TEST_KERNELS);
        OK(cuModuleLoadData(&module, image));
        return module;
}

static char *registered(size_t bytes, unsigned flags)
{
        char *at = host_pages(bytes);

        OK(cuMemHostRegister_v2(at, bytes, flags));
        return at;
}

/* Copies 8 bytes to the device in a batch. */
static int copy_in_batch(int order, cu_stream stream)
{
        cu_memcpy_attributes attributes = {.src_access_order = order};
        char host[8] = "";
        cu_deviceptr at = allocate(), src = (uintptr_t)host;
        size_t bytes = 8, first = 0;

        return cuMemcpyBatchAsync_v2(&at, &src, &bytes, 1, &attributes, &first, 1, stream);
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

static cu_deviceptr ipc_open(cu_ipc_mem_handle handle)
{
        cu_deviceptr at;

        OK(cuIpcOpenMemHandle_v2(&at, handle, CU_IPC_LAZY_ENABLE_PEER_ACCESS));
        return at;
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

static void *push_and_end(void *context)
{
        OK(cuCtxPushCurrent_v2(context));
        return NULL;
}

static void call_driver(void *data)
{
        (void)cuStreamQuery(NULL);
}

/* VMM */

RULE(create_size, "cuMemCreate: the size 0x100000 is no multiple")
{
        cu_mem_allocation_prop prop = prop_of(0);
        cu_mem_handle handle;

        begin();
        (void)cuMemCreate(&handle, MIB, &prop, 0);
}

RULE(map_twice, "cuMemMap: something is mapped there already")
{
        cu_mem_handle handle;

        begin();
        handle = create();
        (void)cuMemMap(map(handle), EXTENT, 0, handle, 0);
}

RULE_CALL(map_unreserved, "cuMemMap: 0x10000000000, 4194304 bytes: not in one reserved",
        cuMemMap((cu_deviceptr)1 << 40, EXTENT, 0, create(), 0))

RULE_CALL(map_released, "cuMemMap: 0x", cuMemMap(reserve(EXTENT), EXTENT, 0, released(), 0))

RULE_CALL(access_unmapped, "cuMemSetAccess: nothing is mapped",
        set_access_of(reserve(EXTENT), EXTENT))

RULE(unmap_busy, "cuMemUnmap: 0x")
{
        cu_deviceptr at;

        begin();
        at = map(create());
        OK(cuMemsetD8Async(at, 0, EXTENT, busy_stream()));
        (void)cuMemUnmap(at, EXTENT);
}

RULE_CALL(free_mapped, "cuMemAddressFree: memory is still mapped at",
        cuMemAddressFree(map(create()), EXTENT))

RULE_CALL(release_twice, "cuMemRelease: 0x", cuMemRelease(released()))

RULE(export_private, "cuMemExportToShareableHandle: the memory wasn't made")
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

RULE(memset_unmapped, "cuMemsetD8Async: destination: nothing is mapped at")
{
        cu_deviceptr at;

        begin();
        at = map(create());
        OK(cuMemUnmap(at, EXTENT));
        (void)cuMemsetD8Async(at, 0, EXTENT, NULL);
}

RULE(memset_read_only, "cuMemsetD8Async: destination: no write access")
{
        cu_deviceptr at;

        begin();
        at = map(create());
        set_access(at, CU_ACCESS_READ);
        CHECK(holds(at, 4096, 0xA5));
        (void)cuMemsetD8Async(at, 0, EXTENT, NULL);
}

RULE(copy_past_allocation, "cuMemsetD8Async: destination: nothing is mapped at")
{
        cu_deviceptr at;

        begin();
        OK(cuMemAlloc_v2(&at, 100));
        (void)cuMemsetD8Async(at, 0, 101, NULL);
}

RULE(copy_overlap, "cuMemcpyDtoDAsync: source and destination overlap")
{
        cu_deviceptr at;

        begin();
        at = allocate();
        (void)cuMemcpyDtoDAsync_v2(at + 8, at, 16, NULL);
}

RULE(copy_straddles, "cuMemcpyHtoDAsync: 2097152 bytes at")
{
        char *host = host_pages(2 * MIB);

        begin();
        OK(cuMemHostRegister_v2(host, MIB, 0));
        OK(cuMemHostRegister_v2(host + MIB, MIB, 0));
        (void)cuMemcpyHtoDAsync_v2(allocate(), host, 2 * MIB, NULL);
}

RULE_CALL(copy_to_read_only, "cuMemcpyDtoHAsync: the destination",
        cuMemcpyDtoHAsync_v2(registered(MIB, CU_HOST_REGISTER_READ_ONLY), allocate(), 8, NULL))

RULE_CALL(batch_order, "cuMemcpyBatchAsync: the access order of the source",
        copy_in_batch(3, busy_stream()))

RULE(kernel_unmapped, "stream: a kernel: 0x10000000000 is no device memory")
{
        cu_function function;
        uint64_t at = (uint64_t)1 << 40;
        uint32_t n = 8, value = 7;
        void *parameters[] = {&at, &n, &value};

        begin();
        OK(cuModuleGetFunction(&function, load_kernels(), "test_fill"));
        OK(cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, NULL, parameters, NULL));
        (void)cuCtxSynchronize();
}

/* Legacy IPC */

RULE(free_twice, "cuMemFree: 0x")
{
        cu_deviceptr at;

        begin();
        at = allocate();
        OK(cuMemFree_v2(at));
        (void)cuMemFree_v2(at);
}

RULE(ipc_same_process, "cuIpcOpenMemHandle: the handle is of this process")
{
        cu_ipc_mem_handle handle;

        begin();
        OK(cuIpcGetMemHandle(&handle, allocate()));
        ipc_open(handle);
}

RULE(ipc_close_too_often, "cuIpcCloseMemHandle: 0x")
{
        cu_ipc_mem_handle handle = ipc_handle();
        cu_deviceptr at = ipc_open(handle);

        ipc_open(handle);
        OK(cuIpcCloseMemHandle(at));
        OK(cuIpcCloseMemHandle(at));
        (void)cuIpcCloseMemHandle(at);
}

RULE(ipc_free_while_open, "cuMemFree: another process has the memory open")
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

RULE(free_busy, "cuMemFree: 0x")
{
        cu_deviceptr at;

        begin();
        at = allocate();
        OK(cuMemsetD8Async(at, 0, EXTENT, busy_stream()));
        (void)cuMemFree_v2(at);
}

/* Contexts and threads */

RULE(no_context, "cuMemAlloc: no current context")
{
        OK(cuInit(0));
        allocate();
}

RULE(pop_too_many, "cuCtxPopCurrent: no context was pushed")
{
        OK(cuInit(0));
        (void)cuCtxPopCurrent_v2(NULL);
}

RULE(thread_imbalance, "cuCtxPushCurrent: the thread ends with 1 contexts")
{
        cu_context context = begin();

        pthread_t thread;
        CHECK(pthread_create(&thread, NULL, push_and_end, context) == 0);
        CHECK(pthread_join(thread, NULL) == 0);
}

RULE(push_released, "cuCtxPushCurrent: not a context that is retained")
{
        cu_context context = begin();

        end();
        (void)cuCtxPushCurrent_v2(context);
}

RULE_CALL(release_current, "cuDevicePrimaryCtxRelease: the context still has 1 place",
        cuDevicePrimaryCtxRelease_v2(0))

RULE(other_context, "cuStreamQuery: the stream is of another context")
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

RULE(after_fork, "cuDeviceGetCount: called in a child of the process")
{
        int status, n;
        pid_t pid;

        OK(cuInit(0));
        pid = child_fork();
        if (pid == 0)
                cuDeviceGetCount(&n);
        CHECK(waitpid(pid, &status, 0) == pid);
        abort();
}

RULE(host_function_calls, "cuStreamQuery: called by a host function")
{
        begin();
        OK(cuLaunchHostFunc(NULL, call_driver, NULL));
        (void)cuStreamSynchronize(NULL);
}

RULE(stream_destroyed, "cuStreamQuery: 0x")
{
        cu_stream stream;

        begin();
        OK(cuStreamCreate(&stream, 0));
        OK(cuStreamDestroy_v2(stream));
        (void)cuStreamQuery(stream);
}

/* Host registration */

RULE_CALL(register_unaligned, "cuMemHostRegister: 4096 bytes at",
        cuMemHostRegister_v2(host_pages(MIB) + 8, 4096, 0))

RULE(unregister_busy, "cuMemHostUnregister: 0x")
{
        char *host;

        begin();
        host = registered(MIB, 0);
        OK(cuMemcpyHtoDAsync_v2(allocate(), host, 8, busy_stream()));
        (void)cuMemHostUnregister(host);
}

/* Leaks */

RULE(leaks_vmm, "exit: leaked 1 handle, 1 reservation, 1 mapping\n")
{
        begin();
        map(create());
        end();
}

RULE(leaks_others, "exit: leaked 1 allocation, 1 stream, 1 event, 1 host registration, "
                   "1 module, 1 retained primary context, 1 pushed context\n")
{
        cu_stream stream;
        cu_event event;

        begin();
        allocate();
        OK(cuStreamCreate(&stream, 0));
        OK(cuEventCreate(&event, 0));
        registered(MIB, 0);
        load_kernels();
}

RULE(leaks_opened, "exit: leaked 1 opened IPC handle, 1 retained primary")
{
        ipc_open(ipc_handle());
}

/* Rules and settings that can't be read */

RULE(bad_fault_rule, "cuInit: can't read the rule \"cuInit\"")
{
        setenv("FAKECUDA_FAIL", "cuInit", 1);
        (void)cuInit(0);
}
