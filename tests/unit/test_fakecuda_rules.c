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

/* VMM */

RULE(create_size, "cuMemCreate: the size 0x100000 is no multiple")
{
        cu_mem_allocation_prop prop = prop_of(0);
        cu_mem_handle handle;

        begin();
        (void)cuMemCreate(&handle, MIB, &prop, 0);
}

RULE_CALL(map_unreserved, "cuMemMap: 0x10000000000, 4194304 bytes: not in one reserved",
        cuMemMap((cu_deviceptr)1 << 40, EXTENT, 0, create(), 0))

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

/* Use of memory */

RULE(memset_unmapped, "cuMemsetD8Async: destination: nothing is mapped at")
{
        cu_deviceptr at;

        begin();
        at = map(create());
        OK(cuMemUnmap(at, EXTENT));
        (void)cuMemsetD8Async(at, 0, EXTENT, NULL);
}

RULE(copy_overlap, "cuMemcpyDtoDAsync: source and destination overlap")
{
        cu_deviceptr at;

        begin();
        at = allocate();
        (void)cuMemcpyDtoDAsync_v2(at + 8, at, 16, NULL);
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

RULE_CALL(release_current, "cuDevicePrimaryCtxRelease: the context still has 1 place",
        cuDevicePrimaryCtxRelease_v2(0))

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

/* Leaks */

RULE(leaks_vmm, "exit: leaked 1 handle, 1 reservation, 1 mapping\n")
{
        begin();
        map(create());
        end();
}

/* Rules and settings that can't be read */
