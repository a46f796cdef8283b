/*
 * Each driver call of the CUDA backend fails once: the failure comes back with the call's name,
 * and everything is released after it, which the double looks after at exit.
 */
#include <sys/mman.h>

#include "tests/unit/cuda-process.h"
#include "tests/unit/test-support.h"

#define PAGE 4096

/* The first failure of a journey. */
static int failure;
static char failure_why[DEVICE_WHY_BYTES];

/* Did it work? */
static bool went(struct device *d, int r)
{
        if (r < 0 && failure == 0) {
                failure = r;
                if (d)
                        memcpy(failure_why, d->why, sizeof(failure_why));
        }
        return r == 0;
}

static struct device *open_side(enum device_side side, enum device_transport transport)
{
        struct device_options options = {.side = side, .transport = transport};
        char why[DEVICE_WHY_BYTES];
        struct device *d = NULL;
        int r = device_open("", &options, &d, why);

        if (!went(NULL, r))
                memcpy(failure_why, why, sizeof(failure_why));
        return r == 0 ? d : NULL;
}

static void go_batches(struct device *d, struct extent *e, uint8_t *host)
{
        struct device_copy copy = {.extent = e, .host = host, .len = 3 * PAGE};
        struct device_batch *b = NULL;

        cuda_device(d)->register_chunk_bytes = 2 * PAGE;
        if (!went(d, d->ops->host_register(d, host, 4 * PAGE)))
                return;
        if (went(d, d->ops->batch_start(d, DEVICE_FROM_HOST, &copy, 1, &b)))
                went(d, batch_wait(d, b));
        if (went(d, d->ops->batch_start(d, DEVICE_TO_HOST, &copy, 1, &b)))
                went(d, batch_wait(d, b));
        went(d, d->ops->host_unregister(d, host, 4 * PAGE));
}

static void go_arena(struct device *d, struct extent *e, struct extent_handle *handle)
{
        struct device_arena *a = NULL;
        struct extent *theirs = NULL;
        uint8_t byte;

        if (!went(d, d->ops->arena_reserve(d, 4 * STEP, 0, &a)))
                return;
        if (e && went(d, d->ops->arena_map(a, 0, e, DEVICE_READ_WRITE)))
                went(d, d->ops->arena_unmap(a, 0, e));
        if (handle && went(d, d->ops->extent_import(d, handle, 2 * STEP, &theirs))) {
                if (went(d, d->ops->arena_map(a, 2 * STEP, theirs, DEVICE_READ_WRITE))) {
                        went(d, d->ops->extent_read(theirs, 0, &byte, 1));
                        went(d, d->ops->arena_unmap(a, 2 * STEP, theirs));
                }
                d->ops->extent_destroy(theirs, false);
        }
        d->ops->arena_release(a);
}

static void fn(void *data)
{
}

static void go_streams(struct device *d)
{
        went(d, d->ops->stream_call(d, NULL, fn, NULL));
        went(d, d->ops->stream_wait(d, NULL));
        went(d, d->ops->stream_query(d, NULL));
}

static void owner_journey(enum device_transport transport)
{
        struct device *d = open_side(DEVICE_OWNER, transport);
        uint8_t *host =
                mmap(NULL, 4 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        struct extent_handle handle = {.fd = -1};
        struct extent *e = NULL;

        CHECK(host != MAP_FAILED);
        if (!d)
                return;
        if (went(d, d->ops->extent_create(d, 2 * STEP, &e))) {
                went(d, d->ops->extent_write(e, 0, host, PAGE));
                went(d, d->ops->extent_read(e, 0, host, PAGE));
                went(d, d->ops->extent_copy(e, 0, e, PAGE, PAGE));
                went(d, d->ops->extent_zero(e, 0, PAGE));
                went(d, d->ops->extent_export(e, &handle));
                go_batches(d, e, host);
                go_arena(d, e, handle.fd >= 0 ? &handle : NULL);
                go_streams(d);
                d->ops->extent_destroy(e, true);
        }
        device_close(d);
        /* `host` stays mapped: a copy that failed to be waited for may still be under way. */
}

/* Imports from a process without faults. */
static void own_ipc(int fd)
{
        struct device *d = open_gpu(DEVICE_OWNER, TRANSPORT_CUDAIPC);
        struct extent *e = create(d, 2 * STEP);
        struct extent_handle handle = export(e);

        /* A close that fails on demand leaves it open there, and what comes then is no concern. */
        setenv("FAKECUDA_LENIENT", "exit", 1);
        send_handle(fd, &handle);
        hear(fd);
        _exit(0);
}

static void user_journey(void)
{
        struct peer p = peer_start(own_ipc);
        struct extent_handle handle = receive_handle(p.fd);
        struct device *d = open_side(DEVICE_USER, TRANSPORT_CUDAIPC);

        if (d) {
                go_arena(d, NULL, &handle);
                go_streams(d);
                device_close(d);
        }
        peer_join(&p);
}

/* The call that fails now, and whether the journey must notice. */
static const char *failing;
static bool must_notice, is_user;
static enum device_transport of_transport;

static void journey(void)
{
        if (is_user)
                user_journey();
        else
                owner_journey(of_transport);
        if (!must_notice)
                return;
        if (failure == 0 || !strstr(failure_why, failing)) {
                fprintf(stderr, "%s: %d, \"%s\"\n", failing, failure, failure_why);
                _exit(97);
        }
}

/* Results that say nothing about the device, and one that does; fewer of them, and of the calls,
 * but with KVL_FULL. */
static void fail_call(const char *call, bool noticed)
{
        static const cu_result results[] = {CU_OUT_OF_MEMORY, CU_ILLEGAL_ADDRESS, CU_NOT_PERMITTED};
        const bool is_full = getenv("KVL_FULL") != NULL;
        const unsigned n_results = is_full ? ARRAY_SIZE(results) : 2, last = is_full ? 4 : 2;
        char env[200];

        failing = call;
        for (unsigned i = 0; i < n_results; i++)
                for (unsigned nth = 1; nth <= last; nth++) {
                        snprintf(env, sizeof(env), "FAKECUDA_FAIL=%s:%d:%u", call, results[i], nth);
                        must_notice = noticed && nth == 1;
                        run_broken(journey, env);
                }
}

/* Failures of these calls, which release something, are not reported. */
static const char *const releases[] = {"cuCtxPopCurrent", "cuMemAddressFree", "cuMemRelease",
        "cuMemFree", "cuStreamDestroy", "cuEventDestroy", "cuDevicePrimaryCtxRelease",
        "cuMemGetInfo", "cuCtxSynchronize"};

static const char *const opening[] = {
        "cuDeviceGetCount", "cuDeviceGet", "cuDeviceGetUuid", "cuDeviceTotalMem"};

static const char *const working[] = {"cuDevicePrimaryCtxRetain", "cuCtxPushCurrent",
        "cuStreamCreate", "cuStreamSynchronize", "cuEventCreate", "cuEventRecord", "cuEventQuery",
        "cuMemsetD8Async", "cuMemcpyHtoDAsync", "cuMemcpyDtoHAsync", "cuMemcpyDtoDAsync",
        "cuMemHostRegister", "cuMemHostUnregister", "cuMemcpyBatchAsync", "cuLaunchHostFunc",
        "cuCtxGetCurrent", "cuCtxGetDevice", "cuStreamQuery", "cuStreamIsCapturing"};

static const char *const vmm[] = {"cuDeviceGetAttribute", "cuMemGetAllocationGranularity",
        "cuMemCreate", "cuMemExportToShareableHandle", "cuMemImportFromShareableHandle",
        "cuMemAddressReserve", "cuMemMap", "cuMemSetAccess", "cuMemUnmap"};

static const char *const ipc_owner[] = {"cuMemAlloc", "cuIpcGetMemHandle"};

static const char *const ipc_user[] = {"cuDevicePrimaryCtxRetain", "cuCtxPushCurrent",
        "cuIpcOpenMemHandle", "cuIpcCloseMemHandle", "cuStreamCreate", "cuMemcpyDtoHAsync",
        "cuStreamSynchronize", "cuLaunchHostFunc"};

static void fail_each(const char *const *calls, size_t n, bool noticed)
{
        for (size_t i = 0; i < n; i++)
                fail_call(calls[i], noticed);
}

#define FAIL_EACH(calls, noticed) fail_each(calls, ARRAY_SIZE(calls), noticed)

TEST(test_vmm)
{
        of_transport = TRANSPORT_VMM;
        is_user = false;
        must_notice = false;
        run(journey, NULL);
        FAIL_EACH(opening, true);
        FAIL_EACH(working, true);
        FAIL_EACH(vmm, true);
        FAIL_EACH(releases, false);
}

TEST(test_ipc_owner)
{
        of_transport = TRANSPORT_CUDAIPC;
        is_user = false;
        must_notice = false;
        run(journey, NULL);
        FAIL_EACH(ipc_owner, true);
        FAIL_EACH(releases, false);
}

TEST(test_ipc_user)
{
        is_user = true;
        must_notice = false;
        run_broken(journey, NULL);
        FAIL_EACH(ipc_user, true);
        FAIL_EACH(releases, false);
}

int main(int argc, char **argv)
{
        use_double(argv);
        return test_run_all(NULL, NULL);
}
