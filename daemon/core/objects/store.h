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
#include "daemon/core/objects/pool.h"
#include "daemon/core/objects/store-parts.h"
#include "policy/evict.h"

struct detail;
struct tenant;
struct queue;
struct client_table;
struct core_listeners;

/* Parts that are structs of store-parts.h belong to one room each, which is named there. */
struct store {
        const struct core_listeners *listeners; /* wiring.c's; borrowed */
        struct store_owner owner;
        struct list_link pools; /* struct pool.link, of devices; the first is the default */
        struct list_link
                lower_pools;      /* struct pool.link, of what lies below devices (pool.below) */
        struct list_link tenants; /* struct tenant.link */
        const struct evict_ops *evict;
        struct keep keep;             /* what outlives the process; off until the server sets it */
        struct state_root *state;     /* own_state, until state_open() finds or makes a kept one */
        struct client_table *clients; /* owned; client-record.h; NULL: none is kept */
        struct segment_room room;     /* of index segments; memfds until the server opens it */
        uint64_t boot_epoch;          /* shown in segments */
        struct hash_seed secret;      /* of store_hash_key(); no segment and no file has it */
        uint64_t min_page_bytes;      /* of a namespace's pages, over all planes: NS_MIN_PAGE_BYTES;
                                         tests on devices without memory lower it */
        bool draining;                /* nothing new is granted */
        uint32_t last_tenant_number;
        uint32_t n_members;
        uint64_t now_nsec; /* latest time a call was given; for what ends without one (a member
                              dies) */
        struct store_counters counters;
        struct chronicle chronicle; /* off until the server opens it */
        struct list_link chores;    /* struct tenant.chores_link; whose turn it is first */
        struct list_link ns_walks;  /* struct ns_walk.link */
        uint32_t drop_slice_pages;  /* of a chore: DROP_SLICE_PAGES; tests set less */
        struct store_memory memory;
        struct store_waits waits;
        struct store_moving moving;
        struct list_link moves; /* of compact.c: pages under way */
        struct store_recalls recalls;
        struct store_fetching fetching;
        struct store_leasables leasables;
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
