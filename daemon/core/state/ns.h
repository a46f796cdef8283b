/*
 * A namespace: one model context of one tenant, with its pages, key index, prefix tree and eviction
 * policy. It outlives its clients. Keys of different namespaces never meet. Loop thread only.
 */
#ifndef KVL_CORE_NS_H
#define KVL_CORE_NS_H

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/divide.h"
#include "base/list.h"
#include "base/parse.h"
#include "daemon/core/state/task.h"
#include "daemon/core/state/codecs.h"
#include "daemon/core/state/detail.h"
#include "daemon/core/state/geometry.h"
#include "daemon/core/state/page.h"
#include "daemon/core/state/ns-parts.h"
#include "daemon/core/state/pool.h"
#include "daemon/core/state/tenant.h"
#include "policy/evict.h"
#include "policy/tree.h"

struct member;
struct attach;
struct sessions;
struct expect;
struct prefetching;

struct ns_counters {
        uint64_t keys, hits, publishes, duplicates, evictions, expired;
};

/* A namespace's share of one tier: memory of one pool, and the pages in its sets. */
struct ns_tier {
        struct pool *pool;        /* borrowed */
        struct pool_share *share; /* the tenant's in the pool; borrowed */
        struct list_link sets_bound;
        struct list_link sets_preparing;
        struct list_link sets_room; /* with FREE pages; sets that were full before come first */
        uint32_t n_sets;            /* bound */
        uint32_t n_preparing;
        uint64_t n_preparing_pages; /* in these sets */
        uint64_t n_pages[8];        /* by enum page_state, of bound sets */
        uint64_t n_pinned;          /* pages with n_pins > 0 */
        uint64_t n_withheld;        /* FREE pages of recalled sets: not granted */
        uint64_t n_arrived;         /* pages that came from another tier; since the start */
        uint64_t n_damaged;         /* pages whose bytes failed their checksum */
        struct tier_fill fill;      /* demote.h */
        uint32_t n_to_demote;       /* scratch of demote.c */
        uint64_t weigh_after_nsec;  /* reclaim.c: when the sets may be weighed again */
        bool has_lighter;           /* if set, earlier: a set was freed or is held less */
};

/* The structs of ns-parts.h belong to one module each, which ns-parts.h names. */
struct ns {
        char name[NS_NAME_MAX + 1]; /* first: base/probe.h */
        struct list_link link;      /* tenant.namespaces */
        uint64_t id;                /* never reused while the daemon runs */
        struct tenant *tenant;      /* borrowed */
        struct store *store;        /* the tenant's; borrowed */
        struct ns_layout layout;
        struct ns_geometry geometry;
        uint64_t address;       /* of its range, the same in all clients (address.h); 0: none */
        uint64_t epoch;         /* raised by each invalidation of the whole namespace */
        uint64_t version_epoch; /* raised by each change of layout.version */
        union {
                struct ns_tier device;
                struct ns_tier tiers[TIER_COUNT]; /* by enum tier_kind; pool NULL: no such tier */
        };
        struct ns_sets sets;
        struct records records;
        struct shared shared;
        struct feed feed;
        struct tree tree; /* the cached prefixes */
        const struct evict_ops *evict;
        void *policy;          /* evict's state; owned */
        struct expect *expect; /* pages that clients expect to use; owned; NULL: none yet */
        struct ns_counters counters;
        struct ns_waits waits;
        struct ns_catalog catalog;
        struct ns_clients clients;
        struct ns_codecs codecs;
        struct ns_space space;
        struct sessions *sessions; /* owned; NULL: none yet; sessions/session.h */
        struct ns_reclaim reclaim;
        struct ns_demotion demotion;
        struct prefetching *prefetching; /* owned; NULL: none yet; reclaim/prefetch.h */
        struct ns_periodic periodic;
        struct ns_idle idle;
        struct ns_learnt learnt;
};
static_assert(offsetof(struct ns, name) == 0, "probes");

struct ns *ns_find(struct tenant *t, const char *name);

/* Iterates over the namespaces of all tenants across iterations of the event loop. Namespaces that
 * are freed meanwhile are left out. */
struct ns_walk {
        struct list_link link; /* store.ns_walks */
        struct ns *ns;         /* the next one; NULL: the end */
        uint64_t n_freed;      /* how often the walk had to skip a freed namespace */
};

void ns_walk_begin(struct ns_walk *w, struct store *s);
void ns_walk_next(struct ns_walk *w);
void ns_walk_end(struct ns_walk *w);

/* Advances walks beyond a namespace that is about to leave its tenant's list. */
void ns_leave_walks(struct ns *ns);

/* Returns the namespace's share of the pool; NULL: none. */
static inline struct ns_tier *ns_tier_on(struct ns *ns, const struct pool *pool)
{
        struct ns_tier *tier = &ns->tiers[pool->tier];

        return tier->pool == pool ? tier : NULL;
}

/* Returns the offset of a page on the device in each extent of its set. */
static inline uint64_t ns_offset(const struct ns *ns, uint32_t page)
{
        return page % ns->geometry.set_pages * geometry_stride(&ns->geometry);
}

/* FREE pages that can be granted. */
static inline uint64_t ns_n_room(const struct ns *ns)
{
        return ns->device.n_pages[PAGE_FREE] - ns->device.n_withheld;
}

static inline enum tier_kind set_kind(const struct extent_set *set)
{
        return (enum tier_kind)(set->tier - set->ns->tiers);
}

/* Returns the record of a page of this set. */
static inline struct page *set_page(const struct extent_set *set, uint32_t page)
{
        return &set->pages[page % set->ns->geometry.set_pages];
}

/* Pages of all tiers in this state. */
static inline uint64_t ns_n_pages(const struct ns *ns, enum page_state s)
{
        uint64_t n = 0;

        for (unsigned i = 0; i < TIER_COUNT; i++)
                n += ns->tiers[i].n_pages[s];
        return n;
}

static inline uint64_t ns_n_pinned(const struct ns *ns)
{
        uint64_t n = 0;

        for (unsigned i = 0; i < TIER_COUNT; i++)
                n += ns->tiers[i].n_pinned;
        return n;
}

/* Iterates over all bound sets, tier by tier: NULL first, NULL at the end. */
struct extent_set *ns_next_set(const struct ns *ns, const struct extent_set *set);

#define ns_for_each_set(set, ns) \
        for (struct extent_set *set = ns_next_set((ns), NULL); set; set = ns_next_set((ns), set))

static inline uint32_t ns_set_number(const struct ns *ns, uint32_t page)
{
        return divide(page, ns->sets.factor);
}

/* Returns NULL if the page is beyond the namespace or its set isn't bound. */
static inline struct page *ns_page(const struct ns *ns, uint32_t page)
{
        uint32_t number = ns_set_number(ns, page);
        struct extent_set *set;

        if (page >= ns->geometry.capacity_pages)
                return NULL;
        set = ns->sets.at[number];
        return set ? &set->pages[page - number * ns->geometry.set_pages] : NULL;
}

/* Notes that a client uses the page now. */
void ns_note_use(struct ns *ns, uint32_t page);

/* Returns the note of a page whose set is bound. */
static inline struct page_note *ns_note(const struct ns *ns, uint32_t page)
{
        return &ns->records.notes[page];
}

/* Returns the extra facts of a page whose set is bound, read-only; all zero if it has none.
 * Borrowed until the page gets some, or is FREE. */
const struct page_extra *ns_extra(const struct ns *ns, uint32_t page);

/* Returns the extra facts of a page for writing. A page without any gets all zeros. They last until
 * the page is FREE. */
struct page_extra *ns_make_extra(struct ns *ns, uint32_t page);

/* Returns the set of a page; it must be bound. */
static inline struct extent_set *ns_set_of(const struct ns *ns, uint32_t page)
{
        struct extent_set *set = ns->sets.at[ns_set_number(ns, page)];

        assert(set);
        return set;
}

/* Was the page SEALED before the last invalidation? Then it can't be found, and waits for the
 * sweep. */
bool ns_page_is_stale(const struct ns *ns, const struct page *p);

/* Returns the number of pages that can be found. */
uint64_t ns_count_findable(const struct ns *ns);

/* Must idle sets stay, because sets are being made or a lease waits for them? Recalled sets don't
 * stay. If no lease waits, a lease of another namespace may take idle ones (reclaim.c). */
static inline bool ns_awaits_sets(const struct ns *ns)
{
        return ns->waits.n > 0 || ns->device.n_preparing > 0 || ns->sets.changed;
}

/* Returns FREE pages that can be granted, and those of sets being made. */
static inline uint64_t ns_n_coming(const struct ns *ns)
{
        return ns_n_room(ns) + ns->device.n_preparing_pages;
}

/* Returns the bytes charged to the tenant's account of a tier. */
static inline uint64_t ns_charged_bytes(const struct ns *ns, enum tier_kind kind)
{
        return (uint64_t)(ns->tiers[kind].n_sets + ns->tiers[kind].n_preparing) *
               ns->geometry.tiers[kind].set_bytes;
}

/* Returns the bytes charged for the namespace in all tiers. */
static inline uint64_t ns_all_bytes(const struct ns *ns)
{
        uint64_t n = 0;

        for (unsigned i = 0; i < TIER_COUNT; i++)
                n += ns_charged_bytes(ns, i);
        return n;
}

/* Returns the number of sets, those being made included. */
static inline uint64_t ns_n_sets(const struct ns *ns)
{
        uint64_t n = 0;

        for (unsigned i = 0; i < TIER_COUNT; i++)
                n += ns->tiers[i].n_sets + ns->tiers[i].n_preparing;
        return n;
}

/* Is the page DETACHED, and held by session windows only, as far as the daemon knows? */
bool ns_page_is_kept(const struct ns *ns, uint32_t page);

/*
 * Changes of a page's state. The record is changed first, because the state that clients see is
 * rebuilt from it after a restart. Loop thread only.
 */

/* Changes the page's state. Every change uses this function, so that ns_tier.n_pages is right and
 * clients see the state. */
void ns_set_state(struct ns *ns, uint32_t page, enum page_state s);

/* Changes the state of a page that leaves FREE, and advances its generation. The fields that the
 * new state uses must be stored before. */
void ns_set_granted(struct ns *ns, uint32_t page, enum page_state s);

#endif
