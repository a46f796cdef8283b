/*
 * The root of the daemon's state: pools, tenants, and through them everything else. No sockets, no
 * loop, no configuration: the server drives it, and so do the model test and the fuzzers. One
 * thread.
 */
#ifndef KVL_CORE_STORE_H
#define KVL_CORE_STORE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/list.h"
#include "base/macros.h"
#include "base/segment.h"
#include "daemon/core/ground/chronicle.h"
#include "daemon/core/ground/keep.h"
#include "daemon/core/ground/state-root.h"
#include "daemon/core/objects/discard.h"
#include "daemon/core/objects/pool.h"
#include "policy/evict.h"

struct detail;
struct tenant;
struct queue;
struct ns;
struct attach;
struct client_table;
struct mover;
struct disk_file;
struct core_listeners;

struct store_counters {
        uint64_t lookups;     /* requests */
        uint64_t lookup_keys; /* pages asked for */
        uint64_t lookup_hits; /* pages found */
        uint64_t publishes;   /* pages */
        uint64_t duplicates;  /* pages */
        uint64_t evictions;   /* pages */
        uint64_t leases_refused;
        uint64_t unindexed;       /* pages published that the index had no slot for */
        uint64_t compacted_pages; /* moved */
        uint64_t compacted_sets;  /* given back after that */
        uint64_t sessions_expired;
        uint64_t announced;                     /* keys */
        uint64_t announces_pending;             /* keys that somebody else was computing */
        uint64_t pages_expired;                 /* expire.h */
        uint64_t demoted_pages, promoted_pages; /* transfer.h */
        uint64_t pages_damaged;                 /* below the device, of another sum than they had */
};

/* Of a request (lease.h) in a namespace. */
enum request_event { REQUEST_FOUND, REQUEST_PUBLISHED, REQUEST_ENDED };

struct store {
        const struct core_listeners *listeners; /* wiring.c's; borrowed */
        struct list_link pools; /* struct pool.link, of devices; the first is the default one */
        struct list_link
                lower_pools;      /* struct pool.link, of what lies below devices (pool.below) */
        struct list_link tenants; /* struct tenant.link */
        struct list_link recalls; /* struct extent_set.recall.link */
        uint32_t n_recalls, n_quarantined;
        uint32_t recall_visits; /* left of the round under way (recall_work()) */
        uint64_t recall_round;
        struct list_link moves;          /* of compact.c: pages under way */
        struct list_link transfers;      /* struct transfer.link */
        uint32_t n_transfers, n_sinking; /* all; on their way down */
        uint64_t sinking_bytes;          /* of these */
        struct list_link carries;        /* struct carry.link */
        struct list_link fetches;        /* struct fetch.link */
        struct list_link promises;       /* struct promise.link: space-gone.c */
        uint32_t n_removing;             /* namespaces with ns_space.removes_unknown */
        uint32_t n_prefetching;          /* of prefetch.h: on their way up */
        struct mover *mover;             /* owned; NULL: nothing goes below a device */
        const struct evict_ops *evict;
        struct keep keep;             /* what outlives the process; off until the server sets it */
        struct state_root *state;     /* own_state, until state_open() finds or makes a kept one */
        struct client_table *clients; /* owned; client-record.h; NULL: none is kept */
        struct segment_room room;     /* of index segments; memfds until the server opens it */
        uint64_t boot_epoch;          /* shown in segments */
        struct hash_seed secret;      /* of store_hash_key(); no segment and no file has it */
        uint64_t min_page_bytes;      /* of a namespace's pages, over all planes: NS_MIN_PAGE_BYTES;
                                         tests on devices without memory lower it */
        uint64_t next_address; /* where the next namespace's range is looked for (address.h) */
        bool draining;         /* nothing new is granted */
        uint32_t last_tenant_number;
        uint32_t n_members;
        uint64_t now_nsec;  /* latest time a call was given; for what ends without one (a member
                               dies) */
        uint64_t n_extents; /* of all sets */
        struct store_counters counters;
        struct chronicle chronicle; /* off until the server opens it */
        struct list_link waits;     /* struct attach.wait.link */
        struct list_link leasables; /* struct leasable.link; whose turn it is first */
        uint32_t n_leasables;
        struct list_link chores;   /* struct tenant.chores_link; whose turn it is first */
        uint32_t drop_slice_pages; /* of a chore: DROP_SLICE_PAGES; tests set less */
        uint64_t last_wait_number;
        /* Leases that wait may be tried again: something came free. May be NULL. */
        void (*on_room)(void *data);
        /* Told when a lease was refused or had to evict: the server sends PRESSURE. May be NULL. */
        void (*on_pressure)(struct ns *ns, void *data);
        /* Told when a namespace was invalidated as a whole: the server sends NS_STALE. May be NULL.
         */
        void (*on_stale)(struct ns *ns, void *data);
        /* Told when a key isn't announced any more: it is cached, or nobody computes it. Changes no
         * state of the store. May be NULL. */
        void (*on_announce_end)(struct ns *ns, const uint8_t key[KEY_BYTES], void *data);
        /*
         * Tells a client of a set that is recalled (RecallEvent). False: it can't take it now and
         * is tried again. May be NULL.
         */
        bool (*on_recall)(struct attach *a, const struct extent_set *set, bool idle,
                uint64_t timeout_nsec, void *data);
        /* This client holds pages of a recalled set past the deadline, or has it mapped though it
         * is idle. Changes no state of the store. May be NULL. */
        void (*on_late)(struct attach *a, const struct extent_set *set, void *data);
        /* store_work() is to be called soon. May be NULL. */
        void (*on_work)(void *data);
        /* recall_work() is to be called soon. May be NULL. */
        void (*on_recall_work)(void *data);
        /* transfer_work() and sink_turn() are to be called soon. May be NULL. */
        void (*on_transfer_work)(void *data);
        /* stock_work() is to be called soon. May be NULL. */
        void (*on_stock)(void *data);
        /* A namespace was made, empty; or is about to go, with what it has learnt. May be NULL. */
        void (*on_ns)(struct ns *ns, bool goes, void *data);
        /* What a request does: a page of it was found (the deepest of a lookup), or published; it
         * ended (page PAGE_NONE). `request`: as policies know it, 0: none. May be NULL. */
        void (*on_request)(struct ns *ns, uint64_t request, enum request_event what, uint32_t page,
                void *data);
        /* Asked before a set of the namespace is made: 0, or a negative errno with the sentence.
         * May be NULL. */
        int (*admit_extents)(
                const struct ns *ns, enum tier_kind kind, struct detail *d, void *data);
        void *callback_data;
        struct discards discards;
        struct state_root own_state; /* where nothing is kept */
};

/* The pool after this one (NULL: the first), devices' before those below them; NULL: the end. */
struct pool *store_next_pool(const struct store *s, const struct pool *pool);

#define store_for_each_pool(pool, s) \
        for (struct pool *pool = store_next_pool(s, NULL); pool; pool = store_next_pool(s, pool))

/* The device with this name. NULL or "" names the default one. NULL: there is none. */
struct pool *store_find_pool(struct store *s, const char *device);

/*
 * Of a key, for the daemon's own tables and what policies remember: clients choose keys, and the
 * seed of an index (shared_hash()) they can read. Another one after every start.
 */
static inline uint64_t store_hash_key(const struct store *s, const uint8_t key[KEY_BYTES])
{
        return hash_bytes(s->secret, key, KEY_BYTES);
}

/* In whole seconds, as page notes have it. */
static inline uint32_t store_now_sec(const struct store *s)
{
        return (uint32_t)(s->now_nsec / NSEC_PER_SEC);
}

/* Time goes on, and never back: every call that is given a time passes it here. */
static inline void store_set_now(struct store *s, uint64_t now_nsec)
{
        s->now_nsec = MAX(s->now_nsec, now_nsec);
}

#endif
