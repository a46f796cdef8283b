/*
 * The root of the daemon's state: pools, tenants, and through them all other objects. It has no
 * sockets, event loop or configuration: the server, the model test and the fuzzers drive it. One
 * thread.
 */
#ifndef KVL_CORE_STORE_H
#define KVL_CORE_STORE_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/list.h"
#include "base/macros.h"
#include "base/segment.h"
#include "daemon/core/state/event-log.h"
#include "daemon/core/state/keep.h"
#include "daemon/core/state/page.h"
#include "daemon/core/state/state-root.h"
#include "daemon/core/state/pool.h"
#include "policy/evict.h"
#include "policy/expect.h"
#include "policy/tier.h"

struct detail;
struct tenant;
struct queue;
struct client_table;
struct core_listeners;
struct attach;
struct device_arena;
struct discards;
struct extent;
struct extent_set;
struct job;
struct mover;
struct ns;

/* The service that empties files. Its functions can't fail. */
struct discard_ops {
        /* Takes ownership of fd. Calls `done` later, never from here, with 0 or -errno. -ECANCELED:
         * the request is lost and isn't retried. `owner`: a tenant's number; 0: the tenant is gone.
         */
        void (*punch)(void *data, uint32_t owner, int fd, uint64_t bytes,
                void (*done)(void *done_data, int result), void *done_data);
        /* Returns in bounded time, once all requests are done. No request follows. */
        void (*finish)(void *data);
};

/* The memory of a freed set, from discard_new(). Memory of the host, whose backend may be called
 * from two threads for different extents and arenas (gpu/device.h). */
struct discard {
        struct list_link link;
        struct discards *discards; /* while its memory is being freed */
        struct pool_share *share;  /* borrowed: the former owner's; NULL: none is left */
        struct charge charge;      /* pays while the memory is held up */
        uint64_t bytes;            /* of all extents */
        uint64_t since_nsec;       /* when discards_look() first saw it; 0: not yet */
        bool is_held;
        uint32_t n_given;                 /* the first n extents were handed to discard_ops */
        uint32_t n_going;                 /* of these, not done; 0: the kernel refused, retry */
        bool is_refused, is_refused_held; /* in this round; as of when it was first held up */
        struct job *parting;              /* owned: frees on this queue instead */
        struct queue *queue;              /* borrowed */
        struct device_arena *arena;       /* owned; NULL: not mapped in this process */
        uint64_t extent_bytes;            /* of each extent */
        uint32_t n_mapped;                /* the first n extents lie side by side in the arena */
        uint32_t n;
        struct extent *extents[]; /* owned */
};

/* Part of the store. All zero: there is no thread, and memory is freed at once. */
struct discards {
        bool has_thread;
        pthread_t thread;
        pthread_mutex_t lock; /* guards the next fields; not held while memory is freed */
        pthread_cond_t wake;
        struct list_link waiting; /* struct discard.link, the oldest first */
        uint32_t n_extents;       /* waiting, or being freed */
        bool stopping;
        /* Used by the loop thread only: */
        const struct discard_ops *ops; /* NULL: the thread empties files */
        void *ops_data;                /* borrowed */
        bool is_over;                  /* `ops` has finished: files stay as they are */
        struct list_link going;        /* struct discard.link, the oldest first */
};

struct store_counters {
        uint64_t lookups;     /* lookup requests */
        uint64_t lookup_keys; /* pages asked for */
        uint64_t lookup_hits; /* pages found */
        uint64_t publishes;   /* pages published */
        uint64_t duplicates;  /* published pages whose key was cached already */
        uint64_t evictions;   /* pages evicted */
        uint64_t leases_refused;
        uint64_t unindexed;       /* pages published that the index had no slot for */
        uint64_t compacted_pages; /* pages moved by compaction */
        uint64_t compacted_sets;  /* sets given back after their pages were moved */
        uint64_t sessions_expired;
        uint64_t announced;                     /* keys announced */
        uint64_t announces_pending;             /* keys that another client was computing */
        uint64_t pages_expired;                 /* expire.h */
        uint64_t demoted_pages, promoted_pages; /* transfer.h */
        uint64_t pages_damaged; /* pages whose bytes failed their checksum in a lower tier */
        struct expect_counters expected; /* requests */
};

/* The event of a request (requests/lease.h) in a namespace. */
enum request_event { REQUEST_FOUND, REQUEST_PUBLISHED, REQUEST_ENDED };

/* The user of the store: the server, or a test. Sets the callbacks. Each function may be NULL; all
 * are called with `data`. */
struct store_owner {
        void *data;
        /* Memory was freed: leases that wait may be tried again. */
        void (*on_room)(void *data);
        /* A lease was refused, or had to evict: the server sends PRESSURE. */
        void (*on_pressure)(struct ns *ns, void *data);
        /* A namespace was invalidated as a whole: the server sends NS_STALE. */
        void (*on_stale)(struct ns *ns, void *data);
        /* The namespace has none of its tenant's events: there is no room or memory for them. */
        void (*on_no_events)(struct ns *ns, void *data);
        /* A key isn't announced any more: it is cached, or no client computes it. Must not change
         * the store's state. */
        void (*on_announce_end)(struct ns *ns, const uint8_t key[KEY_BYTES], void *data);
        /* Tells a client that a set is recalled (RecallEvent). Returns false if the client can't
         * receive it now; it is told again later. */
        bool (*on_recall)(struct attach *a, const struct extent_set *set, bool idle,
                uint64_t timeout_nsec, void *data);
        /* This client holds pages of a recalled set past the deadline, or still maps an idle one.
         * Must not change the store's state. */
        void (*on_late)(struct attach *a, const struct extent_set *set, void *data);
        /* store_work() is to be called soon. */
        void (*on_work)(void *data);
        /* recall_work() is to be called soon. */
        void (*on_recall_work)(void *data);
        /* transfer_work() and demote_turn() are to be called soon. */
        void (*on_transfer_work)(void *data);
        /* prealloc_work() is to be called soon. */
        void (*on_prealloc)(void *data);
        /* A namespace was made, empty; or (`goes`) is about to be freed with its learnt state. */
        void (*on_ns)(struct ns *ns, bool goes, void *data);
        /* A page was found (the deepest one of a lookup) or published by a request, or the request
         * ended (page PAGE_NONE). `request`: the number that policies know; 0: none. */
        void (*on_request)(struct ns *ns, uint64_t request, enum request_event what, uint32_t page,
                void *data);
        /* Asks permission to make a set for the namespace. Returns 0, or -errno with the sentence.
         */
        int (*admit_extents)(
                const struct ns *ns, enum tier_kind kind, struct detail *d, void *data);
};

/* Extent sets that are being taken back from clients: reclaim/recall.h. */
struct store_recalls {
        struct list_link sets; /* struct extent_set.recall.link */
        uint32_t n;            /* sets that are recalled */
        uint32_t n_quarantined;
        uint32_t visits_left; /* sets left in the present round of recall_work() */
        uint64_t round;       /* the number of that round */
};

/* Pages on their way to another tier: module moves. */
struct store_moving {
        struct list_link transfers; /* struct transfer.link */
        uint32_t n_transfers;
        uint32_t n_demoting;       /* transfers on their way down */
        uint64_t demoting_bytes;   /* of these */
        struct list_link batches;  /* struct copy_batch.link */
        struct list_link promises; /* struct promise.link: space.c */
        uint32_t n_removing;       /* namespaces with ns_space.removes_unknown */
        struct mover *mover;       /* owned; NULL: no page moves between tiers or hosts */
};

/* Pages that are promoted to a device: module tiers. */
struct store_fetching {
        struct list_link fetches; /* struct fetch.link: requested */
        uint32_t n_prefetching;   /* pages promoted in advance: prefetch.h */
};

/* The leases that wait for memory: memory/wait.h. */
struct store_waits {
        struct list_link leases; /* struct attach.wait.link */
        uint64_t last_number;    /* the last waiting lease's */
};

/* Namespaces whose leasable pages are counted: reclaim/leasable.h. */
struct store_leasables {
        struct list_link namespaces; /* struct leasable.link; the next turn first */
        uint32_t n;
};

/* The store's part of module memory. */
struct store_memory {
        uint64_t next_address;      /* where to look for the next namespace's range: address.h */
        uint64_t n_extents;         /* in all sets */
        struct list_link idle_sets; /* struct extent_set.idle_link: idle-sets.h */
        struct discards discards;
};

/* The structs above belong to one module each. The module named with each one has its functions. */
struct store {
        const struct core_listeners *listeners; /* wiring.c's; borrowed */
        struct store_owner owner;
        struct list_link pools;       /* struct pool.link: devices; the first is the default */
        struct list_link lower_pools; /* struct pool.link: lower tiers (pool.below) */
        struct list_link tenants;     /* struct tenant.link */
        const struct evict_ops *evict;
        struct keep keep;         /* off until the server sets it */
        struct state_root *state; /* own_state, until state_open() finds or makes a stored one */
        struct client_table *clients; /* owned; client-record.h; NULL: not stored */
        struct segment_room room;     /* for index segments; memfds until the server opens it */
        uint64_t boot_epoch;          /* shown in segments */
        struct hash_seed secret;      /* for store_hash_key(); in no segment and no file */
        uint64_t min_page_bytes; /* the smallest page, over all planes: NS_MIN_PAGE_BYTES; tests on
                                    devices without memory lower it */
        bool draining;           /* no new leases are granted */
        uint32_t last_tenant_number;
        uint32_t n_members;
        uint64_t now_nsec; /* the latest time of a call; for events without a time (a member's
                              death) */
        struct store_counters counters;
        struct event_log event_log; /* off until the server opens it */
        struct list_link tasks;     /* struct tenant.tasks_link; the next turn first */
        struct list_link ns_walks;  /* struct ns_walk.link */
        uint32_t drop_slice_pages;  /* slice of a task: DROP_SLICE_PAGES; tests set less */
        struct store_memory memory;
        struct store_waits waits;
        struct store_moving moving;
        struct list_link moves; /* compact.c: pages being moved */
        struct store_recalls recalls;
        struct store_fetching fetching;
        struct store_leasables leasables;
        struct state_root own_state; /* used if none is stored */
};

/* Returns the pool after `pool` (NULL: the first), devices before lower tiers; NULL: the end. */
struct pool *store_next_pool(const struct store *s, const struct pool *pool);

#define store_for_each_pool(pool, s) \
        for (struct pool *pool = store_next_pool(s, NULL); pool; pool = store_next_pool(s, pool))

/* Returns the device with this name; NULL or "" name the default. NULL: none. */
struct pool *store_find_pool(struct store *s, const char *device);

/* Hashes a key for the daemon's own tables and for policies. Clients choose keys and can read the
 * seed of an index (shared_hash()), so this seed is secret. It is another one after every start. */
static inline uint64_t store_hash_key(const struct store *s, const uint8_t key[KEY_BYTES])
{
        return hash_bytes(s->secret, key, KEY_BYTES);
}

/* Returns whole seconds, the unit of page notes. */
static inline uint32_t store_now_sec(const struct store *s)
{
        return (uint32_t)(s->now_nsec / NSEC_PER_SEC);
}

/* Advances the store's clock, never backwards. Each call that gets a time passes it here. */
static inline void store_set_now(struct store *s, uint64_t now_nsec)
{
        s->now_nsec = MAX(s->now_nsec, now_nsec);
}

/* There is work for transfer_work(), demote_turn() or prefetch_work(): calls
 * owner.on_transfer_work(). Idempotent. */
static inline void store_wake_transfers(const struct store *s)
{
        if (s->owner.on_transfer_work)
                s->owner.on_transfer_work(s->owner.data);
}

#endif
