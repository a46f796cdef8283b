/*
 * Devices: memory for the bytes of pages. One vtable, one backend per kind of memory.
 *
 * A device hands out extents (the unit of physical memory, export and scrubbing) and maps them in
 * an arena. The daemon creates, exports, zeroes, copies and destroys extents; clients import and
 * map. The same backend code runs on both sides.
 *
 *   extent:  created or imported -> (mapped in one arena of this process)* -> destroyed
 *   arena:   an address range, reserved at once, never moved, backed extent by extent;
 *
 * On the host device, addresses are the process's; on a GPU they are the GPU's, usable only by
 * kernels and the copies of this file.
 *
 * Functions may block in the backend (a driver call, perhaps forever): the daemon calls them
 * through a queue (queue.h), never from its loop. No two threads may call functions of one device
 * at the same time, unless noted. Exception: the host's arena_unmap, arena_release and
 * extent_destroy, for objects that no other call uses.
 *
 * Backends never log: they return -errno and leave a sentence in device.why. They never end the
 * process, which may be an engine's. Arguments that break a rule of this file are -EINVAL;
 * functions without a result then do nothing.
 */
#ifndef KVL_GPU_DEVICE_H
#define KVL_GPU_DEVICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define DEVICE_NAME_MAX  64
#define DEVICE_WHY_BYTES 256

/* Bound of a device's members: as many as GPUs of a host. */
#define DEVICE_MEMBERS_MAX 16
/* Names of members, separated by commas: UUIDs of that many GPUs. */
#define DEVICE_MEMBERS_TEXT 671

/* How an extent is handed to another process; on the wire as NsOpenReply.transport. */
enum device_transport {
        TRANSPORT_MEMFD = 1,   /* one fd; contiguous stable addresses */
        TRANSPORT_VMM = 2,     /* one fd (CUDA VMM); contiguous stable addresses */
        TRANSPORT_CUDAIPC = 3, /* 64 bytes; a base address per extent */
};

#define DEVICE_HANDLE_BYTES 64

/* An exported extent, for import. */
struct extent_handle {
        int fd;                             /* TRANSPORT_MEMFD, _VMM; else -1 */
        uint8_t bytes[DEVICE_HANDLE_BYTES]; /* TRANSPORT_CUDAIPC */
};

struct device_props {
        /* UUID of a GPU, or "host", "host-1" ...; of a device with members: its owner's choice. */
        char name[DEVICE_NAME_MAX + 1];
        char members[DEVICE_MEMBERS_TEXT + 1]; /* their names, in order; "": it has none */
        unsigned n_members;                    /* 0, or 2..DEVICE_MEMBERS_MAX */
        const char *backend;                   /* "host", "cuda"; static */
        enum device_transport transport;
        uint64_t unit_bytes; /* extents are multiples of it; >= 1 */
        /* Preferred multiple for extents, a multiple of unit_bytes: huge pages of the host. On a
         * GPU the same as unit_bytes. */
        uint64_t granularity_bytes;
        uint64_t total_bytes;  /* memory of the device */
        bool survives_restart; /* exported memory outlives this process */
        bool huge_pages;       /* DEVICE_OWNER asks for them, and users should, too */
        /* Calls can block for long, or forever: don't call from a loop (queue.h). */
        bool may_block;
        /*
         * After its process has exited, GPU work of a client may still write to its memory: the
         * memory is reused only later. Only DEVICE_OWNER uses this.
         */
        bool writes_linger;
        /* The CPU can access addresses. False: only copies and kernels can. */
        bool is_cpu_memory;
        int numa_node; /* the machine's node nearest to a GPU; -1: unknown, or the host */
        /* Extents are contiguous in an arena. False (cudaipc): each has its own base address. */
        bool is_contiguous;
};

/* An owner creates extents; a user imports those of an owner in another process. */
enum device_side { DEVICE_USER, DEVICE_OWNER };

struct device_options {
        enum device_side side;
        /* Not empty: spans these devices, names separated by commas, or "all": all GPUs. */
        char members[DEVICE_MEMBERS_TEXT + 1];
        enum device_transport transport; /* 0: the backend's best */
        /*
         * Options of host memory as it is mapped; pages touched before don't change. If the machine
         * lacks a feature, open() tells an owner in `why`, and works without it.
         */
        bool huge_pages;    /* 2 MiB for each access of the TLB instead of 4 KiB */
        bool has_numa_node; /* from this node while it has any: */
        unsigned numa_node;
        /* An owner of host memory touches extents as they are made, which takes tens of
         * milliseconds for 64 MiB. So the owner's control group is charged with them. */
        bool populate;
};

struct device;       /* embedded first in the backend's own struct */
struct extent;       /* likewise */
struct device_arena; /* likewise */

enum device_access { DEVICE_READ_ONLY, DEVICE_READ_WRITE };

/* Backing of an arena where no extent is mapped. All 0: none, touching it faults. */
struct arena_backing {
        bool reads_zeros; /* reads give zeros, writes fault */
        /*
         * The first null_bytes of every null_stride_bytes, from the arena's beginning on, are
         * writable private memory of this process, initially zero. 0: none. The stride is a
         * multiple of the device's unit. A mapped extent replaces it; after an unmap it is zero
         * again.
         */
        uint64_t null_bytes, null_stride_bytes;
};

enum device_direction { DEVICE_TO_HOST, DEVICE_FROM_HOST };

struct device_copy {
        struct extent *extent;
        uint64_t offset;
        void *host;
        uint64_t len;
};

/* A batch of copies under way; embedded in the backend's own struct. */
struct device_batch {
        struct device *device;
};

struct device_ops {
        void (*close)(struct device *d);

        /* Borrowed, 0..n_members-1. NULL: the device has no members. */
        struct device *(*member)(struct device *d, unsigned index);

        /* Memory that `first` registers counts as registered for `d` from now on. `first` is closed
         * after the last use of `d`. NULL: the device doesn't use registrations. */
        void (*host_follow)(struct device *d, struct device *first);

        /* Makes a zeroed extent of `bytes` (a multiple of the unit). Returns 0; -ENOMEM: the device
         * is full; -errno. */
        int (*extent_create)(struct device *d, uint64_t bytes, struct extent **ret_extent);

        /* Takes the handle (its fd is closed with the extent, or on failure). -EINVAL: not an
         * extent of `bytes`. On a GPU only arena_map() may detect that: no driver call tells the
         * size. */
        int (*extent_import)(struct device *d, struct extent_handle *handle, uint64_t bytes,
                struct extent **ret_extent);

        /* Returns an owned handle (the caller closes its fd). */
        int (*extent_export)(struct extent *e, struct extent_handle *ret_handle);

        /*
         * The extent must be unmapped in this process (or arena_unmap() failed). `last_owner` (the
         * daemon's own extent): its memory is freed first, so that a leaked handle reads zeros.
         */
        void (*extent_destroy)(struct extent *e, bool last_owner);

        /* Zeroes all or part of an extent. */
        int (*extent_zero)(struct extent *e, uint64_t offset, uint64_t len);

        /* Copies between extents of this device, and between an extent and this process' memory.
         * Synchronous. */
        int (*extent_copy)(struct extent *dst, uint64_t dst_offset, struct extent *src,
                uint64_t src_offset, uint64_t len);
        int (*extent_read)(struct extent *e, uint64_t offset, void *dst, uint64_t len);
        int (*extent_write)(struct extent *e, uint64_t offset, const void *src, uint64_t len);

        /*
         * Starts n copies in one direction, in parallel to those of the other. `copies` is borrowed
         * during the call, the memory until the batch is done. Copies are fast if the host memory
         * is registered. NULL in all four: copy one by one with extent_read() and extent_write().
         */
        int (*batch_start)(struct device *d, enum device_direction direction,
                const struct device_copy *copies, size_t n, struct device_batch **ret_batch);

        /* Returns -EBUSY: not done; 0 or -errno: done, and the batch is freed. Doesn't block. */
        int (*batch_poll)(struct device_batch *b);

        /* Registers host memory for fast copies, in chunks that the driver takes; page-aligned.
         * Returns 0, or -errno (nothing stays registered). */
        int (*host_register)(struct device *d, void *at, uint64_t bytes);
        int (*host_unregister)(struct device *d, void *at, uint64_t bytes);

        /*
         * Reserves `bytes` of addresses without backing; touching them faults. Not inherited by
         * fork. `wanted` 0: anywhere; else exactly there, or -EBUSY (the range is in use).
         */
        int (*arena_reserve)(
                struct device *d, uint64_t bytes, uint64_t wanted, struct device_arena **ret_arena);

        /*
         * Sets the backing of unmapped ranges: arena_map() and arena_unmap() replace and restore it
         * so that no reader faults in between. Called once, before anything is mapped. Returns 0;
         * -EOPNOTSUPP: not supported; -errno: some of it may be backed. NULL: no backing is
         * supported.
         */
        int (*arena_back)(struct device_arena *a, const struct arena_backing *backing);

        /* Requires that no extent is mapped. */
        void (*arena_release)(struct device_arena *a);

        /* The arena's first address; constant. NULL where props.is_contiguous is false. */
        void *(*arena_base)(const struct device_arena *a);

        /* Address of a mapped extent, the last of several. From any thread while it stays
         * mapped. */
        void *(*extent_address)(const struct extent *e);

        /*
         * Maps a whole extent at `offset` (a multiple of the unit). The arena shares the extent
         * until unmap. A user's extent is mapped once, and may then only be unmapped and destroyed
         * (and read and written, if addresses aren't the CPU's): the backend releases its handle,
         * which the mapping doesn't need. An extent created by a GPU's backend may be mapped at
         * several offsets; these are unmapped in reverse order.
         */
        int (*arena_map)(struct device_arena *a, uint64_t offset, struct extent *e,
                enum device_access access);

        /* Unmaps; the range stays reserved, with arena_back()'s backing or none. */
        int (*arena_unmap)(struct device_arena *a, uint64_t offset, struct extent *e);

        /*
         * Fills this process's page tables for mapped bytes before they are accessed. The first
         * system page of each 64 KiB is read, and the kernel maps existing memory around it.
         * Missing memory is made only for the touched pages. This is a hint: failures, as on older
         * kernels, have no effect. From any thread, also while another thread is in a call of the
         * same device. NULL: useless on this device.
         */
        void (*arena_populate)(const struct device_arena *a, uint64_t offset, uint64_t bytes);

        /*
         * Streams (cuda.h's CUstream), of clients. NULL in all three: the device has none, and NULL
         * is the only stream. A device that spans GPUs can wait for theirs, and has no call and no
         * query.
         */

        /* Calls fn(data) in a thread of the driver, once all earlier work on the stream is done. It
         * must not block, nor call the driver. Never called if the context is broken. */
        int (*stream_call)(struct device *d, void *stream, void (*fn)(void *data), void *data);

        /* Returns 0: idle; -EBUSY: at work; -ENXIO: broken, pending stream_call() functions will
         * never run; -errno. Doesn't block. */
        int (*stream_query)(struct device *d, void *stream);

        /* Waits for all work on the stream. Returns 0; -ENXIO: broken; -EINVAL: the stream is being
         * captured; -errno. Also while another thread is in a call of the same device; doesn't
         * change device.why. */
        int (*stream_wait)(struct device *d, void *stream);
};

struct device {
        const struct device_ops *ops;
        struct device_props props;
        struct device *span; /* device that it is a member of; NULL: none */
        /* The last failed call's reason, in this process: a sentence without a full stop, or "" if
         * the errno says it all. Written by the thread that may call the device. */
        char why[DEVICE_WHY_BYTES];
};

struct extent {
        struct device *device; /* its device: a member, if the device has members */
        uint64_t bytes;
};

struct device_arena {
        struct device *device;
        uint64_t bytes;
};

/* A kind of devices. Daemon and library walk the same table. */
struct device_backend {
        const char *name; /* "host" */
        /*
         * Opens the device `name` ("" or NULL: the backend's first). Returns 0 (`why`, not empty,
         * is a warning, as of a fallback transport); -ENODEV: no such device; -errno. On failure
         * `why` is a sentence, or empty.
         */
        int (*open)(const char *name, const struct device_options *options,
                struct device **ret_device, char why[DEVICE_WHY_BYTES]);
        /* Fills in up to `max` properties of existing devices. Returns their count (may exceed max;
         * 0: none, `why` says why), or -errno with `why`. */
        int (*enumerate)(struct device_props *props, unsigned max, char why[DEVICE_WHY_BYTES]);
};

extern const struct device_backend host_backend, cuda_backend;

/*
 * True for names of host memory: "host", or "host-1", "host-2", ..., further devices of the same
 * memory, which enumerate() doesn't list.
 */
bool host_is_name(const char *name);

/* Could a device have that name? Valid names: host memory, or a GPU's UUID with "GPU-" or "MIG-".
 * No driver is asked whether it exists. */
bool device_is_name(const char *name);

/* Backends in order of preference, NULL at the end: GPUs first, host last. */
extern const struct device_backend *const device_backends[];

/*
 * Opens a device by name through the backends: returns as their open(). `why` is of the
 * best-matching backend. With options->members it opens these, and a device of this name that spans
 * them (span.c); -EINVAL, -EOPNOTSUPP: they can't be spanned, `why` says why.
 */
int device_open(const char *name, const struct device_options *options, struct device **ret_device,
        char why[DEVICE_WHY_BYTES]);

/* span.c. As device_open(), with options->members. */
int span_open(const char *name, const struct device_options *options, struct device **ret_device,
        char why[DEVICE_WHY_BYTES]);

/*
 * The member for one of n_planes planes of a namespace: equally many consecutive planes on each. 0
 * if the device has no members, or n_planes isn't a multiple of n_members.
 */
static inline unsigned device_member_of(
        const struct device_props *props, uint32_t plane, uint32_t n_planes)
{
        uint32_t each = props->n_members > 0 ? n_planes / props->n_members : 0;

        return each > 0 && plane / each < props->n_members ? plane / each : 0;
}

/* The name of a member; of a device without members its own. */
void device_member_name(
        const struct device_props *props, unsigned index, char ret_name[DEVICE_NAME_MAX + 1]);

/* After a failed call of a member: copies its sentence, with its name, to the device that spans it,
 * if any. Returns r. */
int device_take_failure(const struct device *member, int r);

/* extent_create() and extent_import() on a member (device_member_of()), with device.why of `d`. */
int device_create(struct device *d, unsigned member, uint64_t bytes, struct extent **ret_extent);
int device_import(struct device *d, unsigned member, struct extent_handle *handle, uint64_t bytes,
        struct extent **ret_extent);

static inline void device_close(struct device *d)
{
        if (d)
                d->ops->close(d);
}

#endif
