/*
 * Devices: where pages' bytes live. One vtable, one backend per kind of memory.
 *
 * A device hands out extents (the unit of physical memory, export and scrubbing) and maps them in
 * an arena. The daemon creates, exports, zeroes, copies and destroys extents; clients import and
 * map. The same backend code runs on both sides.
 *
 *   extent:  created or imported -> (mapped in one arena of this process)* -> destroyed
 *   arena:   an address range, reserved at once, never moved, backed extent by extent
 *
 * Addresses are of the process on the host device; on a GPU they are the GPU's, which only kernels
 * and the copies of this file can follow.
 *
 * Functions may block in the backend (a driver call, perhaps for ever): the daemon calls them
 * through a queue (queue.h), never from its loop. None may be called from two threads at a time for
 * the same device, except where said, and but for the host's arena_unmap, arena_release and
 * extent_destroy of what no other call is about. Backends never log: they return -errno and leave
 * a sentence in device.why. Nor do they end the process, which may be an engine's: arguments that
 * break a rule of this file are -EINVAL, and where nothing is returned nothing is done.
 */
#ifndef KVL_GPU_DEVICE_H
#define KVL_GPU_DEVICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define DEVICE_NAME_MAX  64
#define DEVICE_WHY_BYTES 256

/* A device may span so many others, its members. As many GPUs as a host has. */
#define DEVICE_MEMBERS_MAX 16
/* Names of members, separated by commas: as many UUIDs of GPUs. */
#define DEVICE_MEMBERS_TEXT 671

/* How an extent is handed to another process; on the wire as NsOpenReply.transport. */
enum device_transport {
        TRANSPORT_MEMFD = 1,   /* one fd; contiguous stable addresses */
        TRANSPORT_VMM = 2,     /* one fd (CUDA VMM); contiguous stable addresses */
        TRANSPORT_CUDAIPC = 3, /* 64 bytes; a base address per extent */
};

#define DEVICE_HANDLE_BYTES 64

/* What export gives and import takes. */
struct extent_handle {
        int fd;                             /* TRANSPORT_MEMFD, _VMM; else -1 */
        uint8_t bytes[DEVICE_HANDLE_BYTES]; /* TRANSPORT_CUDAIPC */
};

struct device_props {
        /* UUID of a GPU, or "host", "host-1" ...; of a device with members as its owner chose. */
        char name[DEVICE_NAME_MAX + 1];
        char members[DEVICE_MEMBERS_TEXT + 1]; /* their names, in order; "": it has none */
        unsigned n_members;                    /* 0, or 2..DEVICE_MEMBERS_MAX */
        const char *backend;                   /* "host", "cuda"; static */
        enum device_transport transport;
        uint64_t unit_bytes; /* extents are multiples of it; >= 1 */
        /* They had best be multiples of it, a multiple of unit_bytes: huge pages of the host. On a
         * GPU the same. */
        uint64_t granularity_bytes;
        uint64_t total_bytes;  /* memory of the device */
        bool survives_restart; /* exported memory outlives this process */
        bool huge_pages;       /* DEVICE_OWNER asks for them, and users had best do so, too */
        /* Calls can block for long, or for ever: not from a loop (queue.h). */
        bool may_block;
        /*
         * Who was allowed to write may still do so for a while after its process is gone (GPU work
         * under way): what it held is not reused before. Only DEVICE_OWNER looks at it.
         */
        bool writes_linger;
        /* Addresses of this process' CPU. False: only copies and kernels reach the memory. */
        bool is_cpu_memory;
        int numa_node; /* of the machine, nearest to a GPU; -1: the driver doesn't say, or the host
                        */
        /* Extents lie one behind the other in an arena. False (cudaipc): each has a base of its
         * own. */
        bool is_contiguous;
};

/* What for. An owner creates extents; a user imports those of an owner in another process. */
enum device_side { DEVICE_USER, DEVICE_OWNER };

struct device_options {
        enum device_side side;
        /* Not empty: the device spans these, names separated by commas, or "all": all GPUs. */
        char members[DEVICE_MEMBERS_TEXT + 1];
        enum device_transport transport; /* 0: the backend's best */
        /*
         * Of the host's memory, as it is mapped; what was touched before stays as it is. Where the
         * machine can't, open() says so in `why` to an owner, and the memory is as it would be
         * without.
         */
        bool huge_pages;    /* 2 MiB for each access of the TLB instead of 4 KiB */
        bool has_numa_node; /* from this node while it has any: */
        unsigned numa_node;
        /* Of an owner of the host's memory: extents are touched as they are made, which takes tens
         * of milliseconds for 64 MiB, so that the owner's control group is charged with them. */
        bool populate;
};

struct device;       /* embedded first in the backend's own struct */
struct extent;       /* likewise */
struct device_arena; /* likewise */

enum device_access { DEVICE_READ_ONLY, DEVICE_READ_WRITE };

/* What an arena has where no extent is mapped. All 0: nothing, touching it faults. */
struct arena_backing {
        bool reads_zeros; /* it can be read, as zeros; writing faults */
        /*
         * The first null_bytes of every null_stride_bytes from the arena's beginning on are memory
         * of this process alone, zero at first, to be read and written. 0: none. The stride is a
         * multiple of the device's unit. An extent that is mapped there takes its place; when that
         * is unmapped it is zero again.
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

        /* Host memory that `first` registers counts as registered for `d` from now on. `first` is
         * closed after the last use of `d`. NULL: registrations are no concern of the device. */
        void (*host_follow)(struct device *d, struct device *first);

        /* New zeroed extent of `bytes` (multiple of the unit). 0; -ENOMEM where the device
         * is full; -errno. */
        int (*extent_create)(struct device *d, uint64_t bytes, struct extent **ret_extent);

        /* Takes the handle (its fd is closed with the extent, or on failure). -EINVAL: not an
         * extent of `bytes`; on a GPU arena_map() says it, if anything does: the driver has no call
         * that tells the size. */
        int (*extent_import)(struct device *d, struct extent_handle *handle, uint64_t bytes,
                struct extent **ret_extent);

        /* Returns an owned handle (the caller closes its fd). */
        int (*extent_export)(struct extent *e, struct extent_handle *ret_handle);

        /*
         * Must not be mapped in this process any more (or arena_unmap() failed). Where `last_owner`
         * (the daemon's own extent) the memory is given back first, so that a handle left somewhere
         * reads zeros.
         */
        void (*extent_destroy)(struct extent *e, bool last_owner);

        /* All or part of an extent reads as zeros when it returns. */
        int (*extent_zero)(struct extent *e, uint64_t offset, uint64_t len);

        /* Copies between extents of this device, and between an extent and this process' memory.
         * Synchronous. */
        int (*extent_copy)(struct extent *dst, uint64_t dst_offset, struct extent *src,
                uint64_t src_offset, uint64_t len);
        int (*extent_read)(struct extent *e, uint64_t offset, void *dst, uint64_t len);
        int (*extent_write)(struct extent *e, uint64_t offset, const void *src, uint64_t len);

        /*
         * Starts n copies in one direction, which may overlap those of the other; `copies` is
         * borrowed during the call, the memory until the batch is done. They run at full speed
         * where the host's memory is registered. NULL in all four: copy one by one with
         * extent_read() and extent_write().
         */
        int (*batch_start)(struct device *d, enum device_direction direction,
                const struct device_copy *copies, size_t n, struct device_batch **ret_batch);

        /* -EBUSY: not yet. 0 or -errno: done, and the batch is freed. Doesn't block. */
        int (*batch_poll)(struct device_batch *b);

        /* Host memory for copies at full speed, in pieces as the driver likes them; page-aligned.
         * 0; -errno, nothing stays registered. */
        int (*host_register)(struct device *d, void *at, uint64_t bytes);
        int (*host_unregister)(struct device *d, void *at, uint64_t bytes);

        /*
         * Reserves `bytes` of addresses without backing; touching them faults. Not inherited by
         * fork. `wanted` 0: anywhere; else just there, or -EBUSY (something is there already).
         */
        int (*arena_reserve)(
                struct device *d, uint64_t bytes, uint64_t wanted, struct device_arena **ret_arena);

        /*
         * Backs what isn't mapped, from now on: arena_map() and arena_unmap() replace it and bring
         * it back without a moment at which a reader faults. Once, before anything is mapped. 0;
         * -EOPNOTSUPP: the device can't back it like that; -errno: some of it may be backed. NULL:
         * it can back nothing.
         */
        int (*arena_back)(struct device_arena *a, const struct arena_backing *backing);

        /* Everything in it must be unmapped. */
        void (*arena_release)(struct device_arena *a);

        /* The arena's first address; constant. NULL where props.is_contiguous is false. */
        void *(*arena_base)(const struct device_arena *a);

        /* Where an extent that is mapped lies, of several places the last. From any thread while
         * it stays mapped. */
        void *(*extent_address)(const struct extent *e);

        /*
         * Maps a whole extent at `offset` (multiple of the unit). The arena shares the
         * extent until unmap. A user's extent is mapped once, and may only be unmapped and
         * destroyed from then on (and read and written, where addresses aren't the CPU's): the
         * backend gives its handle back, which the mapping doesn't need. One that a GPU's backend
         * created may be mapped at several offsets, and is unmapped from the last one first.
         */
        int (*arena_map)(struct device_arena *a, uint64_t offset, struct extent *e,
                enum device_access access);

        /* Leaves the range reserved, with arena_back()'s backing or none. */
        int (*arena_unmap)(struct device_arena *a, uint64_t offset, struct extent *e);

        /*
         * Has this process' page tables know what there is of these bytes, which are mapped, before
         * they are accessed: of each 64 KiB the first page of the system among them is touched, as
         * a reader would, and the kernel maps what memory there is around it. What isn't there yet
         * is made for the touched pages, and for no other. A hint: where it fails, or an older
         * kernel can't, it is as without. From any thread, also while another thread is in a call
         * of the same device. NULL: nothing is gained by it.
         */
        void (*arena_populate)(const struct device_arena *a, uint64_t offset, uint64_t bytes);

        /*
         * Streams (cuda.h's CUstream), of clients. NULL in all three: the device has none, and NULL
         * is the only stream. A device that spans GPUs can wait for theirs, and has no call and no
         * query.
         */

        /* fn(data) runs in a thread of the driver once everything before it on the stream is done;
         * it must not block, nor call the driver. Never where the context is broken. */
        int (*stream_call)(struct device *d, void *stream, void (*fn)(void *data), void *data);

        /* 0: idle; -EBUSY: at work; -ENXIO: broken, what was started with stream_call() and hasn't
         * run never will; -errno. Doesn't block. */
        int (*stream_query)(struct device *d, void *stream);

        /* Waits for everything on it. 0; -ENXIO: broken; -EINVAL: it is being captured; -errno.
         * Also while another thread is in a call of the same device; leaves device.why alone. */
        int (*stream_wait)(struct device *d, void *stream);
};

struct device {
        const struct device_ops *ops;
        struct device_props props;
        struct device *span; /* that it is a member of; NULL: of none */
        /* Why the last call that failed did so, in this process: a sentence without a full stop, or
         * "" where the errno says it all. Written by the thread that may call the device. */
        char why[DEVICE_WHY_BYTES];
};

struct extent {
        struct device *device; /* that it lies on: a member, where the device has members */
        uint64_t bytes;
};

struct device_arena {
        struct device *device;
        uint64_t bytes;
};

/*
 * A backend finds devices: calls fn for each, which takes the device by returning 0. Daemon and
 * library walk the same table.
 */
struct device_backend {
        const char *name; /* "host" */
        /*
         * Opens the device called `name` ("" or NULL: the backend's first). 0 (`why`, not empty,
         * warns of something: a transport that it had to fall back to); -ENODEV: none of this name
         * here; -errno. On failure `why` is a sentence, or empty.
         */
        int (*open)(const char *name, const struct device_options *options,
                struct device **ret_device, char why[DEVICE_WHY_BYTES]);
        /* Fills up to `max` properties of devices that are there. Count (may be more than max, 0:
         * none, `why` says why), or -errno with `why`. */
        int (*enumerate)(struct device_props *props, unsigned max, char why[DEVICE_WHY_BYTES]);
};

extern const struct device_backend host_backend, cuda_backend;

/*
 * Is it the name of memory of the host: "host", or "host-1", "host-2", ..., further devices of the
 * same memory, which enumerate() doesn't show?
 */
bool host_is_name(const char *name);

/* Could a device have that name: one of the host's memory, or a GPU's UUID, "GPU-" or "MIG-" before
 * it? Whether it is there nobody is asked. */
bool device_is_name(const char *name);

/* Backends in order of preference, NULL at the end: GPUs first, host last. */
extern const struct device_backend *const device_backends[];

/*
 * Opens a device by name through the backends: returns as their open(). `why` is of the backend
 * that came nearest. With options->members it opens these and a device of this name that spans
 * them (span.c); -EINVAL, -EOPNOTSUPP: they can't be spanned, `why` says what for.
 */
int device_open(const char *name, const struct device_options *options, struct device **ret_device,
        char why[DEVICE_WHY_BYTES]);

/* span.c. As device_open(), with options->members. */
int span_open(const char *name, const struct device_options *options, struct device **ret_device,
        char why[DEVICE_WHY_BYTES]);

/*
 * The member on which one of n_planes planes of a namespace lies: equally many consecutive planes
 * on each. 0 where the device has no members, or n_planes isn't a multiple of n_members.
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

/* In a failed call of a member: the device that spans it has its sentence, with its name. Returns
 * r. Does nothing where no device spans it. */
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
