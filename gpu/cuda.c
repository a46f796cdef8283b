/* Devices of the CUDA driver: finding and opening them by UUID, results, contexts, own streams. */
#include "gpu/cuda.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* Legacy IPC can't safely share sizes that aren't multiples of it; also the granularity of VMM on
 * all GPUs so far. */
#define IPC_GRANULARITY_BYTES (2ULL << 20)

/* "GPU-" and a UUID. */
#define UUID_NAME_BYTES 41

/* ---- results, the primary context, and the device's own streams ------------------------------ */

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

void cuda_close(struct device *device)
{
        struct cuda_device *d = cuda_device(device);

        (void)cuda_host_unregister(device, NULL, UINT64_MAX);
        if (cuda_enter_release(d)) {
                for (unsigned i = 0; i < CUDA_N_STREAMS; i++)
                        if (d->streams[i])
                                cuda_ignore(d, "cuStreamDestroy",
                                        d->cuda->StreamDestroy(d->streams[i]));
                cuda_leave(d);
        }
        if (d->context)
                cuda_ignore(d, "cuDevicePrimaryCtxRelease",
                        d->cuda->DevicePrimaryCtxRelease(d->ordinal));
        free(d->registrations);
        free(d);
}

/* ---- names ----------------------------------------------------------------------------------- */

static void format_uuid(const char *prefix, const cu_uuid *uuid, char name[UUID_NAME_BYTES])
{
        char *at = name + sprintf(name, "%s-", prefix);

        for (unsigned i = 0; i < sizeof(uuid->bytes); i++)
                at += sprintf(at, "%s%02x", i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "",
                        (uint8_t)uuid->bytes[i]);
}

/* A MIG instance has its own UUID; the older call returns its GPU's. */
static int get_name(struct cuda_device *d, char name[UUID_NAME_BYTES])
{
        cu_uuid uuid, own;
        int r;

        r = cuda_check(d, "cuDeviceGetUuid", d->cuda->DeviceGetUuid(&uuid, d->ordinal));
        if (r < 0)
                return r;
        format_uuid("GPU", &uuid, name);
        if (!(d->cuda->capabilities & CUDA_HAS_UUID2))
                return 0;
        r = cuda_check(d, "cuDeviceGetUuid", d->cuda->DeviceGetUuid2(&own, d->ordinal));
        if (r == 0 && memcmp(&own, &uuid, sizeof(uuid)) != 0)
                format_uuid("MIG", &own, name);
        return r;
}

static bool is_uuid_name(const char *name)
{
        return strncasecmp(name, "GPU-", 4) == 0 || strncasecmp(name, "MIG-", 4) == 0;
}

/* ---- properties ------------------------------------------------------------------------------ */

static int get_attribute(struct cuda_device *d, cu_device_attribute attribute, bool *ret_value)
{
        int value = 0, r;

        r = cuda_check(d, "cuDeviceGetAttribute",
                d->cuda->DeviceGetAttribute(&value, attribute, d->ordinal));
        if (r == 0)
                *ret_value = value != 0;
        return r;
}

/* Drivers before 12.2 don't know it. */
static int get_numa_node(struct cuda_device *d, int *ret_node)
{
        int node = -1, r;

        r = cuda_check(d, "cuDeviceGetAttribute",
                d->cuda->DeviceGetAttribute(&node, CU_ATTR_HOST_NUMA_ID, d->ordinal));
        if (r == -EINVAL || r == -EOPNOTSUPP) {
                d->device.why[0] = '\0';
                r = 0;
                node = -1;
        }
        *ret_node = node;
        return r;
}

static int has_vmm(struct cuda_device *d, bool *ret_has)
{
        bool has = d->cuda->capabilities & CUDA_HAS_VMM, has_fd = false;
        int r = 0;

        if (has)
                r = get_attribute(d, CU_ATTR_VMM, &has);
        if (r == 0 && has)
                r = get_attribute(d, CU_ATTR_VMM_POSIX_FD, &has_fd);
        if (r == 0)
                *ret_has = has && has_fd;
        return r;
}

static int set_up_vmm(struct cuda_device *d)
{
        size_t granularity_bytes;
        bool has_rdma = false;
        int r = get_attribute(d, CU_ATTR_RDMA_WITH_VMM, &has_rdma);

        if (r < 0)
                return r;
        d->allocation = (cu_mem_allocation_prop){
                .type = CU_ALLOC_PINNED,
                .requested_handle_type = CU_HANDLE_POSIX_FD,
                .location = {.type = CU_LOCATION_DEVICE, .id = d->ordinal},
                .flags.gpu_direct_rdma_capable = has_rdma,
        };
        r = cuda_check(d, "cuMemGetAllocationGranularity",
                d->cuda->MemGetAllocationGranularity(
                        &granularity_bytes, &d->allocation, CU_GRANULARITY_MINIMUM));
        if (r < 0)
                return r;
        d->memory = &vmm_memory;
        d->device.ops = &vmm_memory.ops;
        d->device.props.transport = TRANSPORT_VMM;
        d->device.props.unit_bytes = d->device.props.granularity_bytes = granularity_bytes;
        d->device.props.survives_restart = true;
        d->device.props.is_contiguous = true;
        return 0;
}

static void set_up_ipc(struct cuda_device *d)
{
        d->memory = &ipc_memory;
        d->device.ops = &ipc_memory.ops;
        d->device.props.transport = TRANSPORT_CUDAIPC;
        d->device.props.unit_bytes = d->device.props.granularity_bytes = IPC_GRANULARITY_BYTES;
}

/* Returns 0; with a sentence: a fallback transport was chosen. */
static int choose_transport(struct cuda_device *d, enum device_transport wanted)
{
        bool vmm = false;
        int r;

        if (wanted == TRANSPORT_MEMFD)
                return cuda_fail(d, -EOPNOTSUPP,
                        "GPU memory is handed over by vmm or cudaipc, not as memory files");
        if (wanted != TRANSPORT_CUDAIPC) {
                r = has_vmm(d, &vmm);
                if (r < 0)
                        return r;
                if (vmm)
                        return set_up_vmm(d);
                if (wanted == TRANSPORT_VMM && d->side == DEVICE_USER)
                        return cuda_fail(d, -EOPNOTSUPP,
                                "this process' CUDA driver can't import vmm memory (virtual memory "
                                "management with file descriptors): let the owner use cudaipc");
        }
        if (!(d->cuda->capabilities & CUDA_HAS_IPC))
                return cuda_fail(d, -EOPNOTSUPP,
                        "the CUDA driver has no call to hand memory to another process");
        set_up_ipc(d);
        if (wanted == TRANSPORT_CUDAIPC)
                return 0;
        return cuda_fail(d, 0,
                "the device has no virtual memory management with file descriptors, so its memory "
                "is handed over by cudaipc: a restart of kvleased loses what is cached there");
}

/* Gets all properties except the transport. */
static int get_props(struct cuda_device *d)
{
        char name[UUID_NAME_BYTES];
        size_t total_bytes;
        int r, numa_node = -1;

        r = get_name(d, name);
        if (r == 0)
                r = cuda_check(
                        d, "cuDeviceTotalMem", d->cuda->DeviceTotalMem(&total_bytes, d->ordinal));
        if (r == 0)
                r = get_numa_node(d, &numa_node);
        if (r < 0)
                return r;
        d->device.props = (struct device_props){
                .backend = "cuda",
                .total_bytes = total_bytes,
                .may_block = true,
                .writes_linger = true,
                .numa_node = numa_node,
        };
        snprintf(d->device.props.name, sizeof(d->device.props.name), "%s", name);
        return 0;
}

/* ---- opening --------------------------------------------------------------------------------- */

/* Makes a device without properties or operations, enough to ask the driver about it by its
 * ordinal. */
static int new_device(const struct cuda *cuda, int ordinal, struct cuda_device **ret_device,
        char why[DEVICE_WHY_BYTES])
{
        _cleanup_free_ struct cuda_device *d = calloc(1, sizeof(*d));
        int r;

        if (!d)
                return -ENOMEM;
        d->cuda = cuda;
        d->register_chunk_bytes = CUDA_REGISTER_CHUNK_BYTES;
        r = cuda_check(d, "cuDeviceGet", cuda->DeviceGet(&d->ordinal, ordinal));
        if (r == 0)
                r = get_props(d);
        if (r < 0) {
                memcpy(why, d->device.why, DEVICE_WHY_BYTES);
                return r;
        }
        *ret_device = TAKE(d);
        return 0;
}

static int count_devices(const struct cuda *cuda, char why[DEVICE_WHY_BYTES])
{
        cu_result result;
        int n = 0;

        result = cuda->DeviceGetCount(&n);
        if (result == CU_OK)
                return n;
        cuda_describe("cuDeviceGetCount", result, why, DEVICE_WHY_BYTES);
        return cuda_errno(result);
}

/* Lists the existing devices, as far as they fit. */
static void explain_unknown(const char *name, const char *there, char why[DEVICE_WHY_BYTES])
{
        const char *visible = getenv("CUDA_VISIBLE_DEVICES");
        char limit[80] = "";

        if (visible)
                snprintf(limit, sizeof(limit), " (CUDA_VISIBLE_DEVICES is '%.40s')", visible);
        if (there[0])
                snprintf(why, DEVICE_WHY_BYTES, "no GPU '%.48s' here%s; there is%s", name, limit,
                        there);
        else
                snprintf(why, DEVICE_WHY_BYTES, "no GPU '%.48s' here%s, nor another", name, limit);
}

/* name NULL: the first. -ENODEV: none of this name, or none at all. */
static int find_device(const struct cuda *cuda, const char *name, struct cuda_device **ret_device,
        char why[DEVICE_WHY_BYTES])
{
        char there[DEVICE_WHY_BYTES] = "";
        int n = count_devices(cuda, why), failure = -ENODEV;

        if (n < 0)
                return n;
        for (int i = 0; i < n; i++) {
                _cleanup_free_ struct cuda_device *d = NULL;
                size_t len = strlen(there);
                int r = new_device(cuda, i, &d, why);

                /* A device that doesn't answer may be the wanted one. */
                if (r < 0) {
                        failure = r;
                        continue;
                }
                if (!name || strcasecmp(name, d->device.props.name) == 0) {
                        *ret_device = TAKE(d);
                        return 0;
                }
                snprintf(there + len, sizeof(there) - len, "%s %s", len > 0 ? "," : "",
                        d->device.props.name);
        }
        if (name && failure == -ENODEV)
                explain_unknown(name, there, why);
        return failure;
}

static int open_device(const char *name, const struct device_options *options,
        struct device **ret_device, char why[DEVICE_WHY_BYTES])
{
        _cleanup_free_ struct cuda_device *d = NULL;
        char driver_why[CUDA_WHY_BYTES];
        const struct cuda *cuda;
        int r;

        _Static_assert(sizeof(driver_why) == DEVICE_WHY_BYTES, "one is copied to the other");

        if (name && !*name)
                name = NULL;
        /* The driver is loaded for a GPU only. */
        if (name && !is_uuid_name(name))
                return -ENODEV;
        r = cuda_get(&cuda, driver_why);
        if (r < 0) {
                /* Without a name, a machine without GPUs needs no explanation. */
                if (r != -ENODEV || name)
                        memcpy(why, driver_why, sizeof(driver_why));
                return r;
        }
        r = find_device(cuda, name, &d, why);
        if (r < 0)
                return r;
        d->side = options ? options->side : DEVICE_USER;
        r = choose_transport(d, options ? options->transport : 0);
        memcpy(why, d->device.why, DEVICE_WHY_BYTES);
        if (r < 0)
                return r;
        *ret_device = &TAKE(d)->device;
        return 0;
}

static int enumerate(struct device_props *props, unsigned max, char why[DEVICE_WHY_BYTES])
{
        const struct cuda *cuda;
        int r, n;

        r = cuda_get(&cuda, why);
        if (r < 0)
                return r == -ENODEV ? 0 : r;
        n = count_devices(cuda, why);
        for (int i = 0; i < n && (unsigned)i < max; i++) {
                _cleanup_free_ struct cuda_device *d = NULL;

                r = new_device(cuda, i, &d, why);
                if (r < 0)
                        return r;
                r = choose_transport(d, 0);
                if (r < 0) {
                        memcpy(why, d->device.why, DEVICE_WHY_BYTES);
                        return r;
                }
                props[i] = d->device.props;
        }
        if (n == 0)
                snprintf(why, DEVICE_WHY_BYTES, "the CUDA driver finds no device");
        return n;
}

const struct device_backend cuda_backend = {
        .name = "cuda",
        .open = open_device,
        .enumerate = enumerate,
};
