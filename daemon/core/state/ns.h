/*
 * A namespace: one model context of one tenant, with its pages, key index, prefix tree and eviction
 * policy. It outlives its clients. Keys of different namespaces never meet. Loop thread only.
 */
#ifndef KVL_CORE_NS_H
#define KVL_CORE_NS_H

#include <assert.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/divide.h"
#include "base/hash.h"
#include "base/list.h"
#include "base/map.h"
#include "base/parse.h"
#include "base/segment.h"
#include "daemon/core/state/task.h"
#include "daemon/core/state/codecs.h"
#include "daemon/core/state/detail.h"
#include "daemon/core/state/geometry.h"
#include "daemon/core/state/page.h"
#include "daemon/core/state/pool.h"
#include "daemon/core/state/tenant.h"
#include "policy/ahead.h"
#include "policy/ancestors.h"
#include "policy/evict.h"
#include "policy/tree.h"

struct member;
struct attach;
struct sessions;
struct expect;
struct prefetching;
struct extent_set;
struct history;
struct nsset;
struct tags;
struct records_header;
struct set_record;
struct disk_space;
struct space_entry;
struct space_load;

/* The records of sets and pages: state/records.h. */
struct records {
        int fd; /* owned; -1: not stored */
        uint32_t number;
        uint64_t bytes;
        struct records_header *header; /* the mapping; NULL: none */
        struct set_record *sets;       /* by index; n_set_slots */
        struct page *pages;            /* capacity_pages */
        struct page_note *notes;       /* capacity_pages */
        struct page_extra *extras;     /* capacity_pages */
        struct hash_seed seed;         /* for checksums */
};

/* The index and state that clients see of the namespace: state/shared.h. */
struct shared {
        struct segment segment;
        struct shm_index *header; /* in the segment, as are the next two */
        struct shm_bucket *buckets;
        struct shm_line *lines;
        uint32_t n_buckets, capacity_pages;
        struct hash_seed seed;
        uint64_t n_indexed; /* slots in use, those of stale pages included */
};

/* The events for followers: state/feed.h. header NULL: none. */
struct feed {
        struct segment segment;
        struct shm_feed *header; /* in the segment */
        uint64_t tail;
        uint64_t charged_bytes; /* in tenant.feeds_bytes */
};

/* The pin segment of an attachment, if it has one: state/shared.h. */
struct pins {
        struct segment segment; /* fd -1: none, the client pins over the socket */
        struct shm_pins *header;
        _Atomic uint32_t *magazine;
        _Atomic uint32_t *counters;
        uint32_t capacity_pages;
        uint64_t n_lookups, n_keys, n_hits; /* the header's, counted so far */
};

/* Returns this client's pins of the page. */
static inline uint32_t pins_count(const struct pins *p, uint32_t page)
{
        return atomic_load_explicit(&p->counters[page], memory_order_acquire);
}

static inline bool pins_is_open(const struct pins *p)
{
        return p->segment.fd >= 0;
}

/* The namespace's data on a disk: moves/space.h. All zero: none. */
struct ns_space {
        struct disk_space *disk; /* borrowed; NULL: none, or not any more */
        struct space_load *load; /* under way; NULL: over */
        bool is_kept;            /* the previous daemon's namespace */
        bool is_ready;
        struct space_entry *entries; /* owned; from the disk; NULL: all are pages, or none */
        uint32_t n_entries, room;    /* entries; allocated entries */
        uint64_t sort_iter;          /* position of disk_page_next() */
        struct map heads;     /* hash of a parent's key -> 1 + the first of its unclaimed entries */
        uint32_t claimed;     /* 1 + the first entry that can be a page now; 0: none */
        uint32_t n_left;      /* unprocessed entries: claimed, or in heads */
        bool drops_missing;   /* dropping pages from missing_page on that the disk lacks */
        bool removes_unknown; /* removing entries from unknown_iter on that no page has */
        uint32_t missing_page;
        uint64_t unknown_iter; /* position of disk_page_next() */
};

/* Is the namespace being compared with the disk, slice by slice? */
static inline bool space_is_cleaning(const struct ns_space *s)
{
        return s->drops_missing || s->removes_unknown;
}

/* Are the disk's entries being listed, slice by slice? More may follow. */
static inline bool space_is_sorting(const struct ns_space *s)
{
        return s->entries && !s->is_ready;
}

/* Statistics of the pages that were encoded for a tier, since the start: moves/copy-batch.h. */
struct ns_coding {
        uint64_t n_pages;   /* sent to the encoder */
        uint64_t n_sampled; /* of these, pages whose errors were measured */
        struct codec_error errors[CODEC_RANGES_MAX]; /* by codec range of the tier */
};

/* The encoding of the namespace's pages in lower tiers, and its statistics. */
struct ns_codecs {
        struct page_codecs of_pages;
        struct ns_coding done[TIER_COUNT]; /* by enum tier_kind */
};

/* The namespace's extent sets: memory/sets.h. */
struct ns_sets {
        struct extent_set **at; /* owned; by index, n_set_slots; NULL where none is bound */
        uint8_t *preparing;     /* owned; by index, n_set_slots; 1 where a set is PREPARING */
        uint64_t factor;        /* divide_factor() of geometry.set_pages */
        bool keep_page_zero;    /* page 0 of set 0 is never granted; false if there is a null set
                                   (geometry.h), which makes that unnecessary */
        bool changed;           /* sets were made or failed, and store_top_up() hasn't run */
        uint32_t run_slot;      /* where the next search for a run begins: run.h */
};

/* Why a set couldn't be made. */
struct ns_failure {
        int code; /* status for refused leases: KVL_STATUS_FULL, -EIO; 0: none */
        struct detail why;
};

/* The namespace's waiting leases: memory/wait.h. */
struct ns_waits {
        uint32_t n;                /* attachments whose lease waits for sets that are being made */
        uint64_t n_wanted;         /* pages that these leases lack */
        uint32_t n_queued;         /* attachments whose lease waits for memory */
        struct ns_failure failure; /* for the next lease that tries again */
};

/* Client threads to wake up: cache/announced.h. */
struct ns_wakes {
        struct task task;
        uint64_t *pages;   /* owned; bitmap of pages on which threads may sleep; NULL: never any */
        uint32_t n, at;    /* pages in it; position of the next slice */
        uint32_t n_lately; /* pages woken or checked since the last slice */
};

/* Pages that a client has announced to compute: cache/announced.h. */
struct ns_announced {
        struct list_link sets;  /* struct extent_set.announced_link: those with such pages */
        uint32_t n;             /* pages */
        uint32_t withdraw_at;   /* older epochs' announcements are withdrawn up to this page;
                                   PAGE_NONE: all are */
        struct task withdrawal; /* withdraws the remaining ones */
        struct ns_wakes wakes;
};

/* Pages with pins in segments. No event reports the end of such pins, so cache/pages.h checks
 * these pages repeatedly. A list through page.prev and page.next. */
struct ns_watched {
        uint32_t first, last; /* PAGE_NONE: the list is empty */
        uint64_t n;
};

/* Pages that expire: cache/expire.h. */
struct ns_expiry {
        uint64_t after_nsec; /* set by the namespace's first opener; 0: the tenant's */
        uint64_t round_nsec; /* when the last round began */
        uint32_t page;       /* where the round continues */
        bool is_under_way;   /* the round hasn't ended */
};

/* The cache's contents, except the prefix tree: module catalog. */
struct ns_catalog {
        struct ancestors ancestors; /* of pages in the tree */
        struct list_link drops;     /* struct drop.link */
        struct ns_announced announced;
        struct ns_watched watched;
        uint64_t n_stale;        /* SEALED pages of an older epoch that the sweep hasn't reached */
        uint32_t sweep_page;     /* where the sweep continues */
        struct tags *tags;       /* owned; NULL: none yet */
        struct history *history; /* owned; NULL: none yet */
        struct nsset *set;       /* the namespace's set; borrowed; NULL: none */
        uint32_t set_place;      /* index in nsset.members */
        struct ns_expiry expiry;
};

/* The users of the namespace: module clients. */
struct ns_clients {
        struct list_link attachments; /* struct attach.ns_link */
        struct list_link closing;     /* struct attach.ns_link: being closed (leave.h) */
        uint64_t n_ready;             /* GRANTED pages in magazines */
        uint64_t vain_nsec;           /* when a refill last found too few pages */
};

/* FREE pages made before they are needed: reclaim/prealloc.h. */
struct ns_prealloc {
        struct ahead ahead;
        uint32_t n_to_keep;   /* FREE pages to keep preallocated; 0: none */
        uint32_t n_to_free;   /* FREE pages to be made by evicting (free_ahead) */
        uint32_t burst_pages; /* size of recent leases */
        bool is_freeing;      /* until n_to_free is reached */
        bool is_leased;       /* pages were leased lately */
};

/* Compaction: reclaim/compact.h. */
struct ns_compaction {
        bool is_possible;    /* there may be work */
        uint64_t after_nsec; /* not before this time */
};

/* Frees memory: module reclaim. */
struct ns_reclaim {
        struct ns_prealloc prealloc;
        struct ns_compaction compaction;
};

/* Demotes pages: reclaim/demote.h. */
struct ns_demotion {
        bool has_looked; /* scratch */
        bool may_be_due; /* pages were taken since no demotion was due */
};

/* A count of the pages that a lease could get: reclaim/leasable.h. */
struct leasable {
        struct list_link link; /* store.leasables; the next turn first */
        uint32_t page;         /* on the device; where the round continues */
        uint32_t n_met;        /* held SEALED pages in this round */
        uint32_t n_held;       /* held SEALED pages in the last round; 0 before the first ends */
};

/* Periodic work. */
struct ns_periodic {
        struct leasable leasable;
        uint64_t look_round; /* store.recall_round at the last look of recall_work() */
};

/* How long the namespace has been unused: life/idle.h. */
struct ns_idle {
        uint64_t since_nsec; /* 0: in use */
        bool was_idle;       /* is being removed because it was idle */
};

/* The learnt state of the eviction policy, which the server saves: server/services/learnt.h. */
struct ns_learnt {
        bool has_work;                   /* a page was used; for store_policy_work() */
        bool unsaved;                    /* a page was used since the last save */
        uint64_t saved_mark, saved_nsec; /* state and time of the last save */
};

struct ns_counters {
        uint64_t keys, hits, duplicates, evictions, expired;
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

/* The structs above belong to one module each. The header named with each one has its functions. */
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

/* ---- a page's state -------------------------------------------------------------------------- */

/* Is the page idle: cached, in no window, and not pinned as far as the daemon knows? */
bool page_is_idle(const struct ns *ns, uint32_t page);

/* Changes the page's state. The record is changed first, because the state that clients see is
 * rebuilt from it after a restart. Every change uses this function, so that ns_tier.n_pages is
 * right and clients see the state. */
void ns_set_state(struct ns *ns, uint32_t page, enum page_state s);

/* Changes the state of a page that leaves FREE, and advances its generation. The fields that the
 * new state uses must be stored before. */
void ns_set_granted(struct ns *ns, uint32_t page, enum page_state s);

/* ---- lower tiers ----------------------------------------------------------------------------- */

/* Does the namespace's space on a disk take pages? It was loaded, and the disk works. */
bool space_takes(const struct ns *ns);

/* Returns the tier that pages of `kind` are demoted to; TIER_COUNT: none. */
enum tier_kind tier_below(const struct ns *ns, enum tier_kind kind);

/* Can pages of the tier be demoted? */
bool tier_may_demote(const struct ns *ns, enum tier_kind kind);

/* Can pages of the namespace's device be demoted? */
bool demote_is_possible(const struct ns *ns);

/* A page of the device was taken, so FREE pages may be too few and others must be demoted: calls
 * store.owner.on_transfer_work(). */
void demote_note_taken(struct ns *ns);

#endif
