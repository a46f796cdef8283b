/*
 * A namespace as users have it (<kvlease.h>): what the daemon said of it, its shared memory, where
 * its pages are mapped, and what is open or under way in it.
 */
#ifndef KVL_LIB_NS_H
#define KVL_LIB_NS_H

#include <assert.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/divide.h"
#include "base/list.h"
#include "client/lib/kvlease.h"
#include "client/lib/objects/client.h"
#include "client/lib/shared/fast.h"
#include "client/lib/shared/touch.h"
#include "gpu/device.h"

#define NS_NAME_BYTES_MAX (KVL_NS_NAME_BYTES - 1)
#define NS_WORD_UNITS     64 /* bits of a word of ns_populated.bits */

/* One extent per plane, mapped from the first of ns_planes on; unmapped at once: when the daemon
 * asked for it (safepoint.c), or when the namespace is closed. */
struct mapped_set {
        /* [L] The daemon wants it back, and nobody holds a page of it; in conn.n_recalled. */
        bool is_recalled;
        uint64_t taker;            /* [L] number of the kvl_safepoint() that is about to; 0: none */
        bool is_waited_for;        /* [L] that call's stream was, or is being, waited for */
        _Atomic uint32_t n_planes; /* mapped; read without the lock. 0 of a set below the device */
        struct extent **extents;   /* owned, ns_planes.n of them, made with the first */
        /* Owned, where extents aren't contiguous: where each lies; read without the lock once
         * all planes were mapped, NULL where they no longer are. */
        void *_Atomic *bases;
        /* Where a set in host memory is mapped, read-only, and its extent (owned). NULL: it isn't
         * mapped. Read without the lock. */
        uint8_t *_Atomic host;
        struct extent *host_extent;
};

/* Page 0, where its user wants one that nobody else has (KVL_NS_KEEP_PAGE_ZERO). */
struct ns_null {
        bool has_page;         /* page 0 is there, whatever is mapped */
        bool has_set;          /* set 0 is never bound: page 0 is this process' */
        struct extent *extent; /* owned; on a GPU, mapped at page 0 in every plane */
        uint32_t n_planes;     /* in so many it is */
};

/* The planes that this connection maps. */
struct ns_planes {
        uint32_t first, n;
        uint32_t each; /* that lie on a member of ns.device; 0: it has no members */
};

/* Which pages this process has populated: populate.c. */
struct ns_populated {
        unsigned unit_shift;    /* 2^unit_shift pages are a unit */
        _Atomic uint64_t *bits; /* owned, with sets; a bit for each unit; without the lock */
};

/* Where sets in host memory, below the device, are mapped. */
struct ns_below {
        uint64_t extent_bytes; /* of a set; 0: there is none to be mapped */
        struct device *device; /* owned, as the arena; [L] NULL until a set is mapped */
        struct device_arena *arena;
};

/* What waits for streams of the device, and whether they are in order: stream.c. */
struct ns_streams {
        struct list_link waiting;  /* oldest first */
        _Atomic unsigned n_flying; /* host functions that may touch the namespace */
        _Atomic bool are_broken;   /* a context of the device is: nothing is published any more */
};

struct kvl_ns {
        char name[NS_NAME_BYTES_MAX + 1]; /* first: base/probe.h */
        struct list_link link;            /* conn.namespaces */
        struct kvl_conn *conn;
        bool is_open; /* [L] its user has it, or is about to, and isn't closing it: there are events
                         of it */
        uint32_t id;
        struct kvl_ns_info info;
        struct ns_planes planes;
        char members[DEVICE_MEMBERS_TEXT + 1]; /* that the device spans; "": none */
        uint64_t extent_bytes;                 /* set_pages * stride_bytes */
        uint32_t transport;                    /* enum device_transport, as the daemon says */
        bool huge_pages;             /* likewise: extents are mapped in them, where it can be */
        bool imports;                /* what isn't cached may come from other hosts: import.c */
        uint32_t n_sets;             /* that capacity_pages make */
        uint32_t n_device_sets;      /* the first of them; the others are below the device */
        uint32_t first_lower;        /* page: those from here on are */
        uint64_t set_factor;         /* divide_factor() of set_pages */
        struct fast fast;            /* where it is shared memory */
        struct touches touches;      /* likewise */
        struct device *device;       /* owned; NULL and the rest too where metadata-only */
        struct device_arena *arena;  /* owned; plane after plane */
        uint8_t *base;               /* of the arena; NULL where extents aren't contiguous */
        uint64_t address;            /* common to all clients; 0: none */
        uint64_t plane_stride_bytes; /* n_device_sets * extent_bytes */
        struct mapped_set *sets;     /* owned, n_sets */
        struct ns_null null;
        struct ns_populated populated;
        struct ns_below below;
        struct ns_streams streams;
        struct list_link ops;      /* started, and their callback isn't running yet */
        struct list_link sessions; /* [L] open ones */
        struct list_link windows;  /* [L] open ones */
        uint32_t n_callbacks;      /* running in other threads than one that closes it */
};
static_assert(offsetof(struct kvl_ns, name) == 0, "probes");

static inline struct conn *conn_of(const struct kvl_ns *ns)
{
        return ns->conn->conn;
}

/* Refuses to publish where a context of the namespace's device is broken, as its pages may hold
 * what a kernel didn't finish: -EIO with the sentence; else 0. */
int ns_check_device(const struct kvl_ns *ns);

/* Writes the sentence that says so of the device with this name. */
void ns_explain_broken(const char *device, char ret_why[CONN_DETAIL_BYTES]);

/* [L] Tells who listens that a context of the namespace's device is broken. */
void ns_break_device(const struct kvl_ns *ns);

static inline bool ns_is_mapped(const struct kvl_ns *ns, uint32_t set)
{
        return !ns->sets ||
               atomic_load_explicit(&ns->sets[set].n_planes, memory_order_acquire) == ns->planes.n;
}

/* Has it an address on the device here, where its set is mapped? */
static inline bool ns_has_plane(const struct kvl_ns *ns, uint32_t plane)
{
        return plane >= ns->planes.first && plane - ns->planes.first < ns->planes.n;
}

/* Where a set in host memory is mapped; NULL: it isn't. */
static inline uint8_t *ns_host_set(const struct kvl_ns *ns, uint32_t set)
{
        return atomic_load_explicit(&ns->sets[set].host, memory_order_acquire);
}

/* [L] Whether the set is mapped, or a part of it is. */
static inline bool ns_maps_some(const struct kvl_ns *ns, uint32_t set)
{
        return atomic_load_explicit(&ns->sets[set].n_planes, memory_order_relaxed) > 0 ||
               ns_host_set(ns, set);
}

static inline uint32_t ns_set_of(const struct kvl_ns *ns, uint32_t page)
{
        return divide(page, ns->set_factor);
}

static inline bool ns_is_lower(const struct kvl_ns *ns, uint32_t page)
{
        return page >= ns->first_lower;
}

static inline bool ns_are_on_device(const struct kvl_ns *ns, const uint32_t *pages, uint32_t n)
{
        for (uint32_t i = 0; i < n; i++)
                if (ns_is_lower(ns, pages[i]))
                        return false;
        return true;
}

/* Whether the pages are on the device and, where this connection maps anything, mapped: sets below
 * the device never count as that, which is why this costs nothing for them. */
static inline bool ns_are_mapped(const struct kvl_ns *ns, const uint32_t *pages, uint32_t n)
{
        if (!ns->sets)
                return ns_are_on_device(ns, pages, n);
        for (uint32_t i = 0; i < n; i++)
                if (!ns_is_mapped(ns, ns_set_of(ns, pages[i])))
                        return false;
        return true;
}

/* Whether the pages are mapped, and were touched by this process, or what is around them was
 * (populate.c). */
static inline bool ns_are_populated(const struct kvl_ns *ns, const uint32_t *pages, uint32_t n)
{
        if (!ns->sets)
                return ns_are_on_device(ns, pages, n);
        for (uint32_t i = 0; i < n; i++) {
                uint32_t unit = pages[i] >> ns->populated.unit_shift;
                uint64_t word = atomic_load_explicit(
                        &ns->populated.bits[unit / NS_WORD_UNITS], memory_order_acquire);

                if (!(word >> unit % NS_WORD_UNITS & 1))
                        return false;
        }
        return true;
}

#endif
