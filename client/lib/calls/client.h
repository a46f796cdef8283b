/*
 * The objects behind <kvlease.h>: a connection with its namespaces, a namespace with its mappings,
 * and the calls on it.
 */
#ifndef KVL_LIB_CLIENT_H
#define KVL_LIB_CLIENT_H

#include <assert.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "base/divide.h"
#include "base/list.h"
#include "client/lib/ahead/fetch.h"
#include "client/lib/ahead/flight.h"
#include "client/lib/connection/conn.h"
#include "client/lib/kvlease.h"
#include "client/lib/shared/fast.h"
#include "client/lib/shared/touch.h"
#include "gpu/device.h"

#define NS_NAME_BYTES_MAX (KVL_NS_NAME_BYTES - 1)
#define NS_WORD_UNITS     64 /* bits of a word of kvl_ns.populated */

struct kvl_conn {
        struct conn *
                conn; /* owned; its lock guards `namespaces`, `event_*` and all of the namespaces */
        unsigned n_forks; /* client_n_forks of who may use it */
        int timeout_msec; /* < 0: for ever */
        bool metadata_only;
        struct conn_welcome welcome;
        struct flights flights;       /* of the client segment, where there is one */
        struct fetches fetches;       /* likewise, and over the socket */
        _Atomic uint64_t n_requests;  /* begun */
        _Atomic uint32_t n_started;   /* calls whose callback hasn't begun */
        _Atomic uint32_t n_recalled;  /* sets to be given back at a safe point, of all namespaces */
        uint64_t n_safepoints;        /* that had something to do; the number of the last */
        uint64_t streams_looked_nsec; /* when streams were last asked whether they are in order */
        struct list_link namespaces;
        kvl_event_fn event_fn;
        void *event_data;
        pthread_cond_t idle; /* a namespace has no callback running any more */
};

/* One extent per plane, mapped from plane 0 on; unmapped at once: when the daemon asked for it
 * (safepoint.c), or when the namespace is closed. */
struct mapped_set {
        /* [L] The daemon wants it back, and nobody holds a page of it; in conn.n_recalled. */
        bool is_recalled;
        uint64_t taker;            /* [L] number of the kvl_safepoint() that is about to; 0: none */
        bool is_waited_for;        /* [L] that call's stream was, or is being, waited for */
        _Atomic uint32_t n_planes; /* mapped; read without the lock. 0 of a set below the device */
        struct extent **extents;   /* owned, n_planes of the namespace, made with the first */
        /* Likewise, where extents aren't contiguous: where each lies; read without the lock once
         * all planes were mapped, NULL where they no longer are. */
        void *_Atomic *bases;
        /* Of a set in host memory: where it lies, read-only, and its extent (owned). NULL: it isn't
         * mapped. Read without the lock. */
        uint8_t *_Atomic host;
        struct extent *host_extent;
};

struct kvl_ns {
        char name[NS_NAME_BYTES_MAX + 1]; /* first: base/probe.h */
        struct list_link link;            /* conn.namespaces */
        struct kvl_conn *conn;
        bool is_open; /* [L] its user has it, or is about to: nothing of it is missing */
        uint32_t id;
        struct kvl_ns_info info;
        uint64_t extent_bytes;       /* set_pages * stride_bytes */
        uint32_t transport;          /* enum device_transport, as the daemon says */
        bool huge_pages;             /* likewise: extents are mapped in them, where it can be */
        uint32_t n_sets;             /* that capacity_pages make */
        uint32_t n_device_sets;      /* the first of them; the others are below the device */
        uint32_t first_lower;        /* page: those from here on are */
        uint64_t set_factor;         /* divide_factor() of set_pages */
        struct fast fast;            /* where it is shared memory */
        struct touches touches;      /* likewise */
        struct device *device;       /* owned; NULL and the rest too where metadata-only */
        struct device_arena *arena;  /* owned; plane after plane */
        bool has_null_page;          /* page 0 is there, whatever is mapped */
        bool has_null_set;           /* set 0 is never bound: page 0 is this process' */
        struct extent *null_extent;  /* owned; on a GPU, mapped at page 0 in every plane */
        uint32_t n_null_planes;      /* in so many it is */
        uint8_t *base;               /* of the arena; NULL where extents aren't contiguous */
        uint64_t address;            /* common to all clients; 0: none */
        uint64_t plane_stride_bytes; /* n_device_sets * extent_bytes */
        struct mapped_set *sets;     /* owned, n_sets */
        unsigned unit_shift;         /* 2^unit_shift pages are a unit: populate.c */
        _Atomic uint64_t *populated; /* owned, with sets; a bit for each unit; without the lock */
        uint64_t host_extent_bytes;  /* of a set in host memory; 0: there is none to be mapped */
        struct device *host_device;  /* owned, as the arena; [L] NULL until a set is mapped */
        struct device_arena *host_arena;
        struct list_link ops;        /* started, and their callback isn't running yet */
        struct list_link stream_ops; /* waiting for a stream (stream.h), oldest first */
        struct list_link sessions;   /* [L] open ones */
        struct list_link windows;    /* [L] open ones */
        _Atomic unsigned n_flying;   /* host functions that may touch it */
        _Atomic bool is_broken;      /* a context of its device is: nothing is published any more */
        uint32_t n_callbacks;        /* running in other threads than one that closes it */
};
static_assert(offsetof(struct kvl_ns, name) == 0, "probes");

/* Doesn't change while it is open. */
struct kvl_session {
        struct list_link link; /* ns.sessions */
        struct kvl_ns *ns;
        uint32_t handle; /* the daemon's, of this connection, > 0 */
        uint32_t expire_sec;
        uint8_t id[KVL_SESSION_ID_MAX];
        size_t id_bytes;
};

/* What the daemon calls it; 0: none. */
static inline uint32_t session_handle(const struct kvl_session *session)
{
        return session ? session->handle : 0;
}

/* [L] The namespace goes away, and the handles with it. */
void sessions_free(struct kvl_ns *ns);

/* As kvl_session_pages(), of at most 1024 from index `from` on, each in the tier where it lies. */
int session_find_pages(struct kvl_session *session, uint32_t from, uint32_t max,
        uint32_t *ret_pages, uint32_t *ret_n_pages);

/* [L] The namespace goes away: what windows began is dropped, then they are. */
void windows_cancel(struct kvl_ns *ns);
void windows_free(struct kvl_ns *ns);

/* How often this process is the child of a fork since the library was loaded. */
extern _Atomic unsigned client_n_forks;

/* -ECHILD with the sentence. */
int client_refuse_process(void);

/* 0, or -ECHILD with the sentence. */
static inline int client_check_process(const struct kvl_conn *conn)
{
        if (conn->n_forks == atomic_load_explicit(&client_n_forks, memory_order_relaxed))
                return 0;
        return client_refuse_process();
}

/* When a blocking call that begins now gives up. */
uint64_t client_deadline(const struct kvl_conn *conn);

/*
 * Copies a struct of the user that begins with its size into `dst` of `size` bytes: zeros where it
 * is shorter. -EINVAL where it is longer and sets what this version doesn't know, or has no size.
 */
int client_copy_struct(void *dst, size_t size, const void *src);

/* The reverse: fills what a struct of the user has room for, but for its size. NULL: nothing. */
void client_fill_struct(void *dst, const void *src, size_t size);

/* The token of the group that a secret names; a public contract: docs/PROTOCOL.md. 0; -EIO with the
 * sentence. */
int client_group_token(
        const void *secret, size_t secret_bytes, uint8_t ret_token[KVL_GROUP_TOKEN_BYTES]);

/* kvl_layout_name() of a layout that client_copy_layout() made. 0; -EIO with the sentence. */
int client_layout_name(const struct kvl_layout *layout, char ret_name[KVL_NS_NAME_BYTES]);

/* The layout with defaults filled in (texts never NULL). -EINVAL: the sentence names field and
 * range. */
int client_copy_layout(const struct kvl_layout *layout, struct kvl_layout *ret_layout);

/* [L] Ends started calls with -ECANCELED; their callbacks are queued. */
void ns_cancel_ops(struct kvl_ns *ns);

/* A callback that was handed a namespace, on the stack of the thread that runs it. */
struct ns_callback {
        struct kvl_ns *ns; /* NULL: closed from inside the callback */
        struct ns_callback *outer;
};

/* [L] The namespace stays until the callback is left, but for a close by the callback itself. */
void ns_callback_enter(struct ns_callback *cb, struct kvl_ns *ns);

/* Without the lock. */
void ns_callback_leave(struct ns_callback *cb);

/* [L] Waits until no other thread runs a callback of the namespace, and none is left to be run;
 * then nothing waits for a stream. */
void ns_wait_callbacks(struct kvl_ns *ns);

/* Unmaps and frees. Its calls are over. */
void ns_free(struct kvl_ns *ns);

static inline bool ns_is_mapped(const struct kvl_ns *ns, uint32_t set)
{
        return !ns->sets || atomic_load_explicit(&ns->sets[set].n_planes, memory_order_acquire) ==
                                    ns->info.n_planes;
}

/* Of a set in host memory: where it is mapped; NULL: it isn't. */
static inline uint8_t *ns_host_set(const struct kvl_ns *ns, uint32_t set)
{
        return atomic_load_explicit(&ns->sets[set].host, memory_order_acquire);
}

/* [L] Or a part of it. */
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

/* On the device and, where this connection maps anything, mapped: sets below the device never count
 * as that, which is why this costs nothing for them. */
static inline bool ns_are_mapped(const struct kvl_ns *ns, const uint32_t *pages, uint32_t n)
{
        if (!ns->sets)
                return ns_are_on_device(ns, pages, n);
        for (uint32_t i = 0; i < n; i++)
                if (!ns_is_mapped(ns, ns_set_of(ns, pages[i])))
                        return false;
        return true;
}

/* Likewise, and touched by this process, or what is around them (populate.c). */
static inline bool ns_are_populated(const struct kvl_ns *ns, const uint32_t *pages, uint32_t n)
{
        if (!ns->sets)
                return ns_are_on_device(ns, pages, n);
        for (uint32_t i = 0; i < n; i++) {
                uint32_t unit = pages[i] >> ns->unit_shift;
                uint64_t word = atomic_load_explicit(
                        &ns->populated[unit / NS_WORD_UNITS], memory_order_acquire);

                if (!(word >> unit % NS_WORD_UNITS & 1))
                        return false;
        }
        return true;
}

/* [L] Asks for the connection's client segment and maps it, or leaves it without. 0, or why the
 * connection can't be used: it is over, or nothing answered (the sentence is noted). */
int share_open(struct kvl_conn *conn);

/* [L] The same for the namespace's segments. */
int share_ns(struct kvl_ns *ns);

/* ---- a restart of the daemon: restart.c -------------------------------------------------------
 */

/* As in struct conn_side. */
void client_away(void *data);
int client_resume(void *data);
void client_back(void *data);

/* ---- memory: map.c --------------------------------------------------------------------------- */

/* Opens the device and reserves the addresses of everything the namespace can ever hold, backed as
 * the flags (enum kvl_ns_flags) say. 0; -ENOENT, -EOPNOTSUPP, -EBUSY, another -errno, with the
 * sentence; ns_free() undoes. */
int ns_reserve(struct kvl_ns *ns, unsigned flags);

/*
 * [L] Maps what a MAP reply brought for `set` from `first_plane` on. 0: as much of it as is of use;
 * -EPROTO: it doesn't fit what was asked; -ENOMEM; -EIO. Takes the frame's fds that it used.
 */
int ns_map(struct kvl_ns *ns, uint32_t set, uint32_t first_plane, const Kvlease__V1__MapReply *m,
        struct frame *frame);

/* As kvl_page_read() and kvl_page_write(). */
int ns_copy(const struct kvl_ns *ns, uint32_t page, uint32_t plane, uint64_t offset, void *memory,
        uint64_t bytes, enum device_direction direction);

/* What these refuse of pages, whatever is copied of them. */
int ns_check_copies(const struct kvl_ns *ns, const uint32_t *pages, uint32_t n_pages,
        enum device_direction direction);

/* [L] The page can be mapped, and isn't. */
bool ns_wants_map(const struct kvl_ns *ns, uint32_t page);

/* [L] 0; -errno: some planes are mapped still, and the set isn't. */
int ns_unmap_set(struct kvl_ns *ns, uint32_t set);

/* At the end. Closes the device, too. */
void ns_unmap_all(struct kvl_ns *ns);

/* ---- populate.c ------------------------------------------------------------------------------ */

/* Once, when sets are made. 0; -ENOMEM with the sentence. */
int ns_make_units(struct kvl_ns *ns);

/* Has the process' page tables know the pages, which the caller holds, as far as they are mapped
 * and it is the first time. Any threads, without the lock: it takes microseconds for each 64 KiB.
 */
void ns_populate(const struct kvl_ns *ns, const uint32_t *pages, uint32_t n_pages);

/* [L] The set isn't mapped any more, or is about to be unmapped and doesn't count as mapped. */
void ns_forget_populated(const struct kvl_ns *ns, uint32_t set);

/* ---- recall: safepoint.c --------------------------------------------------------------------- */

/* [L] The daemon's event for one of its sets. False: it is of no set here. */
bool ns_note_recall(struct kvl_ns *ns, uint32_t set, bool is_idle);

/* [L] The namespace goes away. */
void ns_forget_recalls(struct kvl_ns *ns);

#endif
