/*
 * The root of the daemon's state: pools, tenants, and through them all other objects. It has no
 * sockets, event loop or configuration: the server, the model test and the fuzzers drive it. One
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
#include "daemon/core/state/event-log.h"
#include "daemon/core/state/keep.h"
#include "daemon/core/state/state-root.h"
#include "daemon/core/state/pool.h"
#include "daemon/core/state/store-parts.h"
#include "policy/evict.h"

struct detail;
struct tenant;
struct queue;
struct client_table;
struct core_listeners;

/* The structs of store-parts.h belong to one module each, which store-parts.h names. */
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

#endif
