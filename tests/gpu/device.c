/* The device, memory on it, and patterns in that. */
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/fd.h"
#include "tests/gpu/facts.h"
#include "tests/integration/private-daemon.h"

#define STAGING_BYTES (4u << 20) /* not tuned */
#define SHARE_OF_FREE 4          /* others may use the device, too */
#define DOUBLE_BYTES  (8u << 20)

/* ---- finding it ----------------------------------------------------------------------------- */

static void uuid_text(const cu_uuid *uuid, char buf[48])
{
        const unsigned char *b = (const unsigned char *)uuid->bytes;

        snprintf(buf, 48,
                "GPU-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", b[0],
                b[1], b[2], b[3], b[4], b[5], b[6], b[7], b[8], b[9], b[10], b[11], b[12], b[13],
                b[14], b[15]);
}

static cu_result uuid_of(const struct cuda *c, cu_device device, char buf[48])
{
        cu_uuid uuid = {0};
        cu_result r = c->DeviceGetUuid2 ? c->DeviceGetUuid2(&uuid, device)
                                        : c->DeviceGetUuid(&uuid, device);

        uuid_text(&uuid, buf);
        return r;
}

/* The ordinal of $KVL_DEVICE_UUID, 0 without it, -1: not here. */
static int find_ordinal(const struct cuda *c)
{
        const char *wanted = getenv("KVL_DEVICE_UUID");
        int n = 0;

        need(c->DeviceGetCount(&n), "cuDeviceGetCount");
        if (!wanted || !*wanted)
                return n > 0 ? 0 : -1;
        for (int i = 0; i < n; ++i) {
                char uuid[48];
                cu_device device;

                need(c->DeviceGet(&device, i), "cuDeviceGet");
                need(uuid_of(c, device, uuid), "cuDeviceGetUuid");
                if (strcmp(uuid, wanted) == 0)
                        return i;
        }
        return -1;
}

void gpu_find(struct gpu *g)
{
        char why[CUDA_WHY_BYTES];
        int ordinal;

        *g = (struct gpu){0};
        if (cuda_get(&g->c, why) < 0)
                fact_die("%s", why);
        ordinal = find_ordinal(g->c);
        if (ordinal < 0)
                fact_die("there is no such device here");
        need(g->c->DeviceGet(&g->device, ordinal), "cuDeviceGet");
        more_calls_find(&g->more);
}

void gpu_open(struct gpu *g)
{
        gpu_find(g);
        need(g->c->DevicePrimaryCtxRetain(&g->context, g->device), "cuDevicePrimaryCtxRetain");
        need(g->c->CtxPushCurrent(g->context), "cuCtxPushCurrent");
        need(g->c->StreamCreate(&g->stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
}

void gpu_close(struct gpu *g)
{
        cu_context old;

        if (g->module)
                g->c->ModuleUnload(g->module);
        need(g->c->StreamDestroy(g->stream), "cuStreamDestroy");
        need(g->c->CtxPopCurrent(&old), "cuCtxPopCurrent");
        need(g->c->DevicePrimaryCtxRelease(g->device), "cuDevicePrimaryCtxRelease");
}

static int attribute(struct gpu *g, cu_device_attribute which)
{
        int value = 0;

        return g->c->DeviceGetAttribute(&value, which, g->device) == CU_OK ? value : 0;
}

int gpu_probe(struct device_facts *ret_facts, char why[CUDA_WHY_BYTES])
{
        struct device_facts d = {0};
        const struct cuda *c;
        cu_mem_allocation_prop prop;
        size_t total = 0, granularity = 0;
        struct gpu g;
        int r = cuda_get(&c, why);

        if (r < 0)
                return r;
        gpu_open(&g);
        need(c->DeviceGetName(d.name, (int)sizeof(d.name), g.device), "cuDeviceGetName");
        need(uuid_of(c, g.device, d.uuid), "cuDeviceGetUuid");
        need(c->DeviceTotalMem(&total, g.device), "cuDeviceTotalMem");
        d.driver_version = c->version;
        d.capabilities = c->capabilities;
        d.compute_major = attribute(&g, CU_ATTR_COMPUTE_MAJOR);
        d.compute_minor = attribute(&g, CU_ATTR_COMPUTE_MINOR);
        d.has_posix_fd = c->capabilities & CUDA_HAS_VMM && attribute(&g, CU_ATTR_VMM) &&
                         attribute(&g, CU_ATTR_VMM_POSIX_FD);
        d.has_read_only_host = attribute(&g, CU_ATTR_READ_ONLY_HOST);
        d.has_memops = attribute(&g, CU_ATTR_MEMOPS_64);
        d.is_double = strncmp(d.uuid, "GPU-fa4ecada-", 13) == 0;
        d.total_bytes = total;
        d.free_bytes = gpu_free_bytes(&g);
        if (d.has_posix_fd) {
                prop = chunk_prop(&g);
                need(c->MemGetAllocationGranularity(&granularity, &prop, CU_GRANULARITY_MINIMUM),
                        "cuMemGetAllocationGranularity");
        }
        d.granularity_bytes = granularity;
        gpu_close(&g);
        *ret_facts = d;
        return 0;
}

/* ---- work ----------------------------------------------------------------------------------- */

uint64_t gpu_free_bytes(struct gpu *g)
{
        size_t free_bytes, total;

        need(g->c->MemGetInfo(&free_bytes, &total), "cuMemGetInfo");
        return free_bytes;
}

void gpu_sync(struct gpu *g)
{
        need(g->c->StreamSynchronize(g->stream), "cuStreamSynchronize");
}

bool gpu_wait_idle(struct gpu *g, cu_stream stream, unsigned msec)
{
        uint64_t start = now_nsec();
        cu_result r;

        while ((r = g->c->StreamQuery(stream)) == CU_NOT_READY) {
                if (msec_since(start) > msec)
                        return false;
                sched_yield();
        }
        need(r, "cuStreamQuery");
        return true;
}

/* ---- chunks --------------------------------------------------------------------------------- */

cu_mem_allocation_prop chunk_prop(struct gpu *g)
{
        return (cu_mem_allocation_prop){
                .type = CU_ALLOC_PINNED,
                .requested_handle_type = CU_HANDLE_POSIX_FD,
                .location = {CU_LOCATION_DEVICE, g->device},
        };
}

void chunk_create(struct gpu *g, uint64_t bytes, struct chunk *ret)
{
        cu_mem_allocation_prop prop = chunk_prop(g);

        *ret = (struct chunk){.bytes = bytes};
        need(g->c->MemCreate(&ret->handle, bytes, &prop, 0), "cuMemCreate");
}

int chunk_export(struct gpu *g, struct chunk *chunk)
{
        int fd = -1;

        need(g->c->MemExport(&fd, chunk->handle, CU_HANDLE_POSIX_FD, 0),
                "cuMemExportToShareableHandle");
        return fd;
}

void chunk_import(struct gpu *g, int fd, uint64_t bytes, struct chunk *ret)
{
        *ret = (struct chunk){.bytes = bytes};
        need(g->c->MemImport(&ret->handle, (void *)(intptr_t)fd, CU_HANDLE_POSIX_FD),
                "cuMemImportFromShareableHandle");
        close(fd);
}

void chunk_map_at(struct gpu *g, struct chunk *chunk, cu_deviceptr at)
{
        cu_mem_access_desc access = {{CU_LOCATION_DEVICE, g->device}, CU_ACCESS_READ_WRITE};

        need(g->c->MemMap(at, chunk->bytes, 0, chunk->handle, 0), "cuMemMap");
        need(g->c->MemSetAccess(at, chunk->bytes, &access, 1), "cuMemSetAccess");
        chunk->at = at;
}

void chunk_map(struct gpu *g, struct chunk *chunk)
{
        cu_deviceptr at;

        need(g->c->MemAddressReserve(&at, chunk->bytes, 0, 0, 0), "cuMemAddressReserve");
        chunk_map_at(g, chunk, at);
}

void chunk_unmap(struct gpu *g, struct chunk *chunk)
{
        need(g->c->MemUnmap(chunk->at, chunk->bytes), "cuMemUnmap");
        need(g->c->MemAddressFree(chunk->at, chunk->bytes), "cuMemAddressFree");
        chunk->at = 0;
}

void chunk_free(struct gpu *g, struct chunk *chunk)
{
        if (chunk->at)
                chunk_unmap(g, chunk);
        need(g->c->MemRelease(chunk->handle), "cuMemRelease");
}

/* ---- content -------------------------------------------------------------------------------- */

static uint64_t word_of(uint64_t seed, uint64_t i)
{
        uint64_t x = (seed << 40) + i + 1;

        x *= UINT64_C(0x9e3779b97f4a7c15);
        return x ^ x >> 29;
}

static uint64_t *staging(void)
{
        static uint64_t *words;

        if (!words)
                words = malloc(STAGING_BYTES);
        if (!words)
                fact_die("out of memory");
        return words;
}

void pattern_put(struct gpu *g, cu_deviceptr at, uint64_t bytes, uint64_t seed)
{
        uint64_t *words = staging();

        for (uint64_t done = 0; done < bytes; done += STAGING_BYTES) {
                uint64_t n = MIN(bytes - done, (uint64_t)STAGING_BYTES);

                for (uint64_t i = 0; i < n / 8; ++i)
                        words[i] = word_of(seed, done / 8 + i);
                need(g->c->MemcpyHtoDAsync(at + done, words, n, g->stream), "cuMemcpyHtoDAsync");
                gpu_sync(g);
        }
}

uint64_t pattern_differs(struct gpu *g, cu_deviceptr at, uint64_t bytes, uint64_t seed)
{
        uint64_t *words = staging(), n_differ = 0;

        for (uint64_t done = 0; done < bytes; done += STAGING_BYTES) {
                uint64_t n = MIN(bytes - done, (uint64_t)STAGING_BYTES);

                need(g->c->MemcpyDtoHAsync(words, at + done, n, g->stream), "cuMemcpyDtoHAsync");
                gpu_sync(g);
                for (uint64_t i = 0; i < n / 8; ++i)
                        n_differ += words[i] != word_of(seed, done / 8 + i);
        }
        return n_differ;
}

uint64_t read_word(struct gpu *g, cu_deviceptr at)
{
        uint64_t word;

        need(g->c->MemcpyDtoHAsync(&word, at, sizeof(word), g->stream), "cuMemcpyDtoHAsync");
        gpu_sync(g);
        return word;
}

void *memfd_map(uint64_t bytes, int *ret_fd)
{
        int fd = memfd_create_sized("kvl-gpu-facts", bytes);
        void *at;

        if (fd < 0)
                fact_die("memfd: %s", strerror(-fd));
        at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, 0);
        if (at == MAP_FAILED)
                fact_die("mmap: %s", strerror(errno));
        *ret_fd = fd;
        return at;
}

uint64_t fact_bytes(const struct fact *f, uint64_t real, uint64_t quick)
{
        uint64_t unit = MAX(the_device.granularity_bytes, UINT64_C(2) << 20);
        uint64_t bytes = f->quick ? quick : real;

        if (the_device.is_double)
                bytes = MIN(bytes, (uint64_t)DOUBLE_BYTES);
        bytes = MIN(bytes, the_device.free_bytes / SHARE_OF_FREE);
        return MAX(bytes / unit * unit, unit);
}
