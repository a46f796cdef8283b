/*
 * Devices: where pages' bytes live. One vtable, one backend per kind of memory.
 *
 * A device hands out extents (the unit of physical memory, export and scrubbing) and maps them at
 * consecutive addresses of an arena. The daemon creates, exports, zeroes and destroys extents and
 * maps none of them for longer than a copy; clients import and map. The same backend code runs on
 * both sides.
 *
 *   extent:  created or imported -> (mapped in one arena of this process)* -> destroyed
 *   arena:   an address range, reserved at once, never moved, backed extent by extent
 *
 * Functions may block in the backend (a driver call); none may be called from two threads for the
 * same device, except where said. Backends never log: they return -errno.
 */
#ifndef KVL_GPU_DEVICE_H
#define KVL_GPU_DEVICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define DEVICE_NAME_MAX 64

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
        char name[DEVICE_NAME_MAX + 1]; /* UUID of a GPU, or "host" */
        const char *backend;            /* "host", "cuda"; static */
        enum device_transport transport;
        uint64_t granularity_bytes; /* extents are multiples of it; >= 1 */
        uint64_t total_bytes;       /* memory of the device */
        bool survives_restart;      /* exported memory outlives this process */
        /*
         * An extent may go to another tenant once zeroed (GPU). Where false (host) it is destroyed
         * and a fresh one made: the kernel hands out zeros.
         */
        bool extents_change_hands;
};

struct device;       /* embedded first in the backend's own struct */
struct extent;       /* likewise */
struct device_arena; /* likewise */

enum device_access { DEVICE_READ_ONLY, DEVICE_READ_WRITE };

struct device_ops {
        void (*close)(struct device *d);

        /* New zeroed extent of `bytes` (multiple of the granularity). 0; -ENOMEM where the device
         * is full; -errno. */
        int (*extent_create)(struct device *d, uint64_t bytes, struct extent **ret_extent);

        /* Takes the handle (its fd is closed with the extent, or on failure). -EINVAL: not an
         * extent of `bytes`. */
        int (*extent_import)(struct device *d, struct extent_handle *handle, uint64_t bytes,
                struct extent **ret_extent);

        /* Returns an owned handle (the caller closes its fd). */
        int (*extent_export)(struct extent *e, struct extent_handle *ret_handle);

        /*
         * Must not be mapped in this process any more. Where `last_owner` (the daemon's own extent)
         * the memory is given back first, so that a handle left somewhere reads zeros.
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

        /* Reserves `bytes` of addresses without backing; touching them faults. Not inherited by
         * fork. */
        int (*arena_reserve)(struct device *d, uint64_t bytes, struct device_arena **ret_arena);

        /* Everything in it must be unmapped. */
        void (*arena_release)(struct device_arena *a);

        /* The arena's first address; constant. */
        void *(*arena_base)(const struct device_arena *a);

        /*
         * Maps a whole extent at `offset` (multiple of the granularity). The arena shares the
         * extent until unmap. An imported extent is mapped once, and may only be unmapped and
         * destroyed from then on: the backend gives its handle back, which the mapping doesn't
         * need.
         */
        int (*arena_map)(struct device_arena *a, uint64_t offset, struct extent *e,
                enum device_access access);

        /* Leaves the range reserved, without backing. */
        int (*arena_unmap)(struct device_arena *a, uint64_t offset, struct extent *e);
};

struct device {
        const struct device_ops *ops;
        struct device_props props;
};

struct extent {
        struct device *device;
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
        /* Opens the device called `name` ("" or NULL: the backend's first). 0; -ENODEV: none here;
         * -errno. */
        int (*open)(const char *name, struct device **ret_device);
        /* Fills up to `max` properties of devices that are there. Count (may be more than max), or
         * -errno. */
        int (*enumerate)(struct device_props *props, unsigned max);
};

extern const struct device_backend host_backend;

/* Backends in order of preference, NULL at the end: GPUs first, host last. */
extern const struct device_backend *const device_backends[];

/* Opens a device by name through the backends. 0; -ENODEV where no backend knows it; -errno. */
int device_open(const char *name, struct device **ret_device);

static inline void device_close(struct device *d)
{
        if (d)
                d->ops->close(d);
}

#endif
