/* A namespace as users have it (<kvlease.h>): the daemon's description of it, its shared memory,
 * where its pages are mapped, and its open objects and calls under way. */
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

/* One extent per plane, mapped from the first of ns_planes on. A set is unmapped as a whole: when
 * the daemon recalls it (safepoint.c), or when the namespace is closed. */
struct mapped_set {
        /* [L] Recalled by the daemon; no client holds a page of it. Counted in conn.n_recalled. */
        bool is_recalled;
        uint64_t taker;            /* [L] number of the kvl_safepoint() about to unmap it */
        bool is_waited_for;        /* [L] that call's stream was waited for, or is being */
        _Atomic uint32_t n_planes; /* mapped; read without the lock; 0 in lower tiers */
        struct extent **extents;   /* owned, ns_planes.n of them, allocated with the first */
        /* Owned, if extents aren't contiguous: the address of each. Read without the lock once all
         * planes are mapped. An entry is NULL once unmapped. */
        void *_Atomic *bases;
        /* Address of a set in host memory, mapped read-only, and its extent (owned). NULL: it isn't
         * mapped. Read without the lock. */
        uint8_t *_Atomic host;
        struct extent *host_extent;
};

/* Page 0, if its user wants one of its own (KVL_NS_KEEP_PAGE_ZERO). */
struct ns_null {
        bool has_page;         /* page 0 is readable even if nothing is mapped */
        bool has_set;          /* set 0 is never bound: page 0 is private to this process */
        struct extent *extent; /* owned; on a GPU, mapped at page 0 in every plane */
        uint32_t n_planes;     /* planes in which it is mapped */
};

/* The planes that this connection maps. */
struct ns_planes {
        uint32_t first, n;
        uint32_t each; /* planes on each member of ns.device; 0: it has no members */
};

/* Which pages this process has populated: populate.c. */
struct ns_populated {
        unsigned unit_shift;    /* 2^unit_shift pages are a unit */
        _Atomic uint64_t *bits; /* owned, with sets; a bit for each unit; without the lock */
};

/* Mappings of sets in host memory (a lower tier). */
struct ns_below {
        uint64_t extent_bytes; /* of a set; 0: none can be mapped */
        struct device *device; /* owned, like the arena; [L] NULL until a set is mapped */
        struct device_arena *arena;
};

/* Operations that wait for streams of the device, and the streams' health: stream.c. */
struct ns_streams {
        struct list_link waiting;  /* oldest first */
        _Atomic unsigned n_flying; /* host functions that may touch the namespace */
        _Atomic bool are_broken;   /* nothing is published any more */
};

struct kvl_ns {
        char name[NS_NAME_BYTES_MAX + 1]; /* first: base/probe.h */
        struct list_link link;            /* conn.namespaces */
        struct kvl_conn *conn;
        bool is_open; /* [L] the user has it, or soon, and isn't closing it: gets events */
        uint32_t id;
        struct kvl_ns_info info;
        struct ns_planes planes;
        char members[DEVICE_MEMBERS_TEXT + 1]; /* devices that it spans */
        uint64_t extent_bytes;                 /* set_pages * stride_bytes */
        uint32_t transport;                    /* enum device_transport, as the daemon says */
        bool huge_pages;                       /* as the daemon says; if possible */
        bool imports;                /* pages may be imported from other hosts: import.c */
        uint32_t n_sets;             /* of capacity_pages */
        uint32_t n_device_sets;      /* the first sets; the others are in lower tiers */
        uint32_t first_lower;        /* first page in a lower tier */
        uint64_t set_factor;         /* divide_factor() of set_pages */
        struct fast fast;            /* if it is in shared memory */
        struct touches touches;      /* if it is in shared memory */
        struct device *device;       /* owned; NULL, as the rest, if metadata-only */
        struct device_arena *arena;  /* owned; plane after plane */
        uint8_t *base;               /* of the arena; NULL if extents aren't contiguous */
        uint64_t address;            /* common to all clients; 0: none */
        uint64_t plane_stride_bytes; /* n_device_sets * extent_bytes */
        struct mapped_set *sets;     /* owned, n_sets */
        struct ns_null null;
        struct ns_populated populated;
        struct ns_below below;
        struct ns_streams streams;
        struct list_link ops;      /* started, and their callback hasn't begun */
        struct list_link sessions; /* [L] open ones */
        struct list_link windows;  /* [L] open ones */
        uint32_t n_callbacks;      /* running in threads other than one that closes it */
};
static_assert(offsetof(struct kvl_ns, name) == 0, "probes");

static inline struct conn *conn_of(const struct kvl_ns *ns)
{
        return ns->conn->conn;
}

/* Refuses to publish if a context of the namespace's device is broken, as its pages may be half
 * written: -EIO with the sentence; else 0. */
int ns_check_device(const struct kvl_ns *ns);

/* Writes the sentence for a broken context of the device with this name. */
void ns_explain_broken(const char *device, char ret_why[CONN_DETAIL_BYTES]);

/* [L] Tells the listeners that a context of the namespace's device is broken. */
void ns_break_device(const struct kvl_ns *ns);

static inline bool ns_is_mapped(const struct kvl_ns *ns, uint32_t set)
{
        return !ns->sets ||
               atomic_load_explicit(&ns->sets[set].n_planes, memory_order_acquire) == ns->planes.n;
}

/* Whether the plane has an address on the device here when its set is mapped. */
static inline bool ns_has_plane(const struct kvl_ns *ns, uint32_t plane)
{
        return plane >= ns->planes.first && plane - ns->planes.first < ns->planes.n;
}

/* Address of a set in host memory; NULL: it isn't mapped. */
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

/* Whether the pages are on the device and mapped, or this connection maps nothing. Sets in lower
 * tiers never count as mapped, so they need no check here. */
static inline bool ns_are_mapped(const struct kvl_ns *ns, const uint32_t *pages, uint32_t n)
{
        if (!ns->sets)
                return ns_are_on_device(ns, pages, n);
        for (uint32_t i = 0; i < n; i++)
                if (!ns_is_mapped(ns, ns_set_of(ns, pages[i])))
                        return false;
        return true;
}

/* Whether the pages are mapped, and this process has populated their units (populate.c). */
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

/* A user callback that was given a namespace, on the stack of the thread that runs it. The
 * namespace stays until the callback has returned, unless the callback itself closes it. */
struct ns_callback {
        struct kvl_ns *ns; /* NULL: closed from inside the callback */
        struct ns_callback *outer;
};

/* [L] The callback begins. */
void ns_callback_enter(struct ns_callback *cb, struct kvl_ns *ns);

/* The callback has returned. Without the lock. */
void ns_callback_leave(struct ns_callback *cb);

/* [L] Waits until no callback of the namespace runs in another thread or is queued. Callbacks that
 * the calling thread is inside of lose the namespace. */
void ns_wait_callbacks(struct kvl_ns *ns);

#endif
