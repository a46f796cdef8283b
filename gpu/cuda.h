/*
 * Internal header of the CUDA backend: cuda.c (devices, contexts, streams), cuda-vmm.c and
 * cuda-ipc.c (the two kinds of memory), cuda-copy.c (zeroing and copies).
 *
 *   device:  open -> (context, streams: from the first call that needs them) -> closed
 *               \-> broken: after a fatal result only releasing functions still call the driver;
 *                   all others return -ENXIO.
 *
 * The context is the device's primary one, which an engine in this process also uses. It is
 * retained, made current around each call that needs it, and never configured or reset.
 *
 * Threads: as in device.h; the list of exported IPC handles has a lock of its own.
 */
#ifndef KVL_GPU_CUDA_H
#define KVL_GPU_CUDA_H

#include <stdbool.h>
#include <stdint.h>

#include "base/list.h"
#include "base/macros.h"
#include "gpu/cuda_load.h"
#include "gpu/device.h"

/* One registration of 512 GiB failed on drivers from 580; 64 GiB is a common choice. */
#define CUDA_REGISTER_CHUNK_BYTES (64ULL << 30)

/* Blocks of a fresh extent that are read back to check that they are zero: the first, the last, and
 * some between. A block is a GPU's smallest page. The number isn't tuned. */
#define CUDA_PROBES      8
#define CUDA_PROBE_BYTES 4096

struct cuda_extent;

/* Memory of one transport. */
struct cuda_memory {
        struct device_ops ops;
        /* Allocates memory for an owner's extent, at x->address; not zeroed. In the context. After
         * a failure, release() frees what it got. */
        int (*allocate)(struct cuda_extent *x);
        /* Releases all that x holds, also if it is imported; best effort. Without the context
         * (which can't be had any more, or never was): only objects that don't need it. */
        void (*release)(struct cuda_extent *x, bool in_context);
};

/* Host memory of one registration with the driver. */
struct cuda_registration {
        uintptr_t at;
        uint64_t bytes;
};

enum cuda_stream {
        CUDA_STREAM_TO_HOST = DEVICE_TO_HOST,
        CUDA_STREAM_FROM_HOST = DEVICE_FROM_HOST,
        CUDA_STREAM_SYNC, /* calls that wait */
        CUDA_N_STREAMS,
};

struct cuda_device {
        struct device device;
        const struct cuda *cuda; /* borrowed, forever */
        const struct cuda_memory *memory;
        cu_device ordinal;
        enum device_side side;
        cu_mem_allocation_prop allocation; /* VMM */
        cu_context context;                /* retained; NULL: none needed so far */
        cu_stream streams[CUDA_N_STREAMS]; /* NULL: none needed so far */
        bool no_batches;                   /* the driver has the call, but refused it */
        bool is_broken;
        char broken_why[DEVICE_WHY_BYTES];
        struct cuda_device *registrar; /* device whose registrations are used here; NULL: its own */
        struct cuda_registration *registrations; /* owned */
        size_t n_registrations;
        uint64_t register_chunk_bytes;
        uint8_t probes[CUDA_PROBES][CUDA_PROBE_BYTES];
};

struct cuda_extent {
        struct extent extent;
        bool is_imported;
        /* Address for copies: an owner's own mapping, or one in an arena; 0: not reachable. */
        cu_deviceptr address;
        cu_deviceptr arena_address; /* where an arena has it, the last of several; 0: nowhere */

        /* VMM */
        cu_mem_handle handle;
        bool has_handle;
        cu_deviceptr own_range; /* an owner's; 0: none */
        bool own_is_mapped;

        /* cudaIpc */
        cu_deviceptr allocation;   /* an owner's; 0: none */
        cu_ipc_mem_handle ipc;     /* exported, or to be opened */
        struct list_link exported; /* of all exported handles of this process, where is_exported */
        bool is_exported;
};

struct cuda_arena {
        struct device_arena arena;
        cu_deviceptr base; /* 0: cudaIpc has none */
        uint64_t reserved_bytes;
        unsigned n_maps;
};

static inline struct cuda_device *cuda_device(struct device *d)
{
        return container_of(d, struct cuda_device, device);
}

static inline struct cuda_extent *cuda_extent(const struct extent *e)
{
        return container_of((struct extent *)e, struct cuda_extent, extent);
}

static inline struct cuda_arena *cuda_arena(const struct device_arena *a)
{
        return container_of((struct device_arena *)a, struct cuda_arena, arena);
}

/* The device of an extent. */
static inline struct cuda_device *cuda_device_of(const struct cuda_extent *x)
{
        return cuda_device(x->extent.device);
}

/* Closes the device, of struct device_ops. */
void cuda_close(struct device *device);

/*
 * Checks the result of a driver call: returns 0 or -errno, sets device.why, notices a broken
 * device. cuda_ignore(): for calls that release; keeps device.why.
 */
int cuda_check(struct cuda_device *d, const char *call, cu_result result);
void cuda_ignore(struct cuda_device *d, const char *call, cu_result result);

/* Sets device.why to our sentence (NULL: ""), and returns `error`. */
int cuda_fail(struct cuda_device *d, int error, const char *why);

/* Called first in every function that doesn't release: returns 0, or -ENXIO if the device is
 * broken. */
int cuda_start(struct cuda_device *d);

/*
 * Makes the primary context current, retaining it the first time. After 0, cuda_leave() restores
 * the caller's. cuda_enter_release(): also on a broken device; false: there is no context, or it
 * can't be made current.
 */
int cuda_enter(struct cuda_device *d);
bool cuda_enter_release(struct cuda_device *d);
void cuda_leave(struct cuda_device *d);

/* The device's own stream, borrowed; made at the first call. In the context. */
int cuda_stream_get(struct cuda_device *d, enum cuda_stream which, cu_stream *ret_stream);

/* cuda-copy.c; as in device.h. */
int cuda_extent_zero(struct extent *e, uint64_t offset, uint64_t len);
int cuda_extent_copy(struct extent *dst, uint64_t dst_offset, struct extent *src,
        uint64_t src_offset, uint64_t len);
int cuda_extent_read(struct extent *e, uint64_t offset, void *dst, uint64_t len);
int cuda_extent_write(struct extent *e, uint64_t offset, const void *src, uint64_t len);
int cuda_batch_start(struct device *d, enum device_direction direction,
        const struct device_copy *copies, size_t n, struct device_batch **ret_batch);
int cuda_batch_poll(struct device_batch *b);
int cuda_host_register(struct device *d, void *at, uint64_t bytes);
int cuda_host_unregister(struct device *d, void *at, uint64_t bytes);
void cuda_host_follow(struct device *d, struct device *first);

/* Reads probes of a zeroed extent: returns 0, or -EIO if a byte isn't zero. */
int cuda_prove_zero(struct cuda_extent *x);

/* cuda-extent.c: shared by both kinds of memory. */
int cuda_extent_new(struct cuda_device *d, uint64_t bytes, struct cuda_extent **ret_extent);
int cuda_extent_create(struct device *d, uint64_t bytes, struct extent **ret_extent);
void cuda_extent_destroy(struct extent *e, bool last_owner);
void *cuda_extent_address(const struct extent *e);

/* The two kinds of memory: cuda-vmm.c, cuda-ipc.c. */
extern const struct cuda_memory vmm_memory, ipc_memory;

/* cuda-stream.c; as in device.h. */
int cuda_stream_call(struct device *d, void *stream, void (*fn)(void *data), void *data);
int cuda_stream_query(struct device *d, void *stream);
int cuda_stream_wait(struct device *d, void *stream);

/* Members of struct device_ops that are the same for both kinds of memory. */
#define CUDA_COMMON_OPS                                                           \
        .close = cuda_close, .extent_create = cuda_extent_create,                 \
        .extent_destroy = cuda_extent_destroy, .extent_zero = cuda_extent_zero,   \
        .extent_copy = cuda_extent_copy, .extent_read = cuda_extent_read,         \
        .extent_write = cuda_extent_write, .batch_start = cuda_batch_start,       \
        .batch_poll = cuda_batch_poll, .host_register = cuda_host_register,       \
        .host_unregister = cuda_host_unregister, .host_follow = cuda_host_follow, \
        .extent_address = cuda_extent_address, .stream_call = cuda_stream_call,   \
        .stream_query = cuda_stream_query, .stream_wait = cuda_stream_wait

#endif
