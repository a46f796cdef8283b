/*
 * A namespace: one model context of one tenant, with its pages, key index, prefix tree and eviction
 * policy. It outlives its clients. Keys of different namespaces never meet. Loop thread only.
 */
#ifndef KVL_CORE_NS_H
#define KVL_CORE_NS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/list.h"
#include "base/parse.h"
#include "daemon/core/detail.h"
#include "daemon/core/page.h"
#include "daemon/core/pool.h"
#include "daemon/core/shared.h"
#include "policy/ahead.h"
#include "policy/evict.h"
#include "policy/tree.h"

struct tenant;
struct member;
struct attach;
struct nsset;
struct sessions;
struct tags;
struct history;

#define NS_TEXT_MAX       128
#define NS_SALT_MAX       64
#define NS_MAX_PLANES     1024
#define NS_MAX_PER_TENANT 1024 /* namespaces; bounds what names cost the daemon; not tuned */
/* Over all planes. A page costs the daemon about 270 bytes that nobody is charged for (measured by
 * kvlease-bench footprint with evict = pgi, segments included), and 4 for each client that shares:
 * near 7 %. */
#define NS_MIN_PAGE_BYTES 4096
#define NS_MAX_SET_BYTES \
        (UINT64_C(1) << 30) /* a set is granted, zeroed and given back whole; not tuned */

struct ns_layout {
        char model[NS_TEXT_MAX + 1];
        char version[NS_TEXT_MAX + 1];
        uint32_t dtype, n_layers, n_kv_heads, head_size;
        uint32_t page_tokens;      /* 1..1024 */
        uint32_t n_planes;         /* 1..NS_MAX_PLANES */
        uint64_t plane_page_bytes; /* multiple of 64 */
        uint32_t tp_rank, tp_size, layer_group;
        uint8_t salt[NS_SALT_MAX];
        uint32_t salt_len;
};

struct ns_geometry {
        uint64_t extent_bytes; /* of one plane: multiple of the granularity and of plane_page_bytes
                                */
        uint64_t set_bytes;    /* extent_bytes * n_planes */
        uint32_t set_pages;    /* extent_bytes / plane_page_bytes */
        uint32_t n_set_slots;  /* sets the pool's whole budget could hold */
        uint32_t capacity_pages; /* set_pages * n_set_slots; fixed for life */
};

/* Why a set wasn't made. */
struct ns_failure {
        int code; /* what a lease is refused with: KVL_STATUS_FULL, -EIO; 0: none */
        struct detail why;
};

struct ns_counters {
        uint64_t keys, hits, publishes, duplicates, evictions, expired;
};

struct ns {
        struct list_link link; /* tenant.namespaces */
        uint64_t id;           /* never reused while the daemon runs */
        struct tenant *tenant; /* borrowed */
        struct pool *pool;     /* borrowed */
        struct stake *stake;   /* the tenant's in the pool; borrowed */
        char name[NS_NAME_MAX + 1];
        struct ns_layout layout;
        struct ns_geometry geometry;
        bool keep_page_zero;
        uint64_t address;         /* of its range, common to all clients (address.h); 0: none */
        uint64_t epoch;           /* one more with every invalidation of the whole namespace */
        uint64_t version_epoch;   /* one more with every change of layout.version */
        struct extent_set **sets; /* owned; n_set_slots, NULL where unbound */
        uint8_t *slots_preparing; /* owned; n_set_slots, 1 where a set is PREPARING */
        struct list_link sets_bound;
        struct list_link sets_preparing;
        struct list_link sets_room; /* those with FREE pages; the ones that were full once first */
        bool keep_idle_sets;        /* a call is collecting pages; ns_trim() at its end */
        uint32_t n_sets;            /* bound */
        uint32_t n_preparing;
        uint64_t n_preparing_pages; /* of these sets */
        uint32_t n_waiting;         /* attachments whose lease waits for them */
        uint64_t n_wanted;          /* pages that these want */
        uint32_t n_queued;          /* attachments whose lease waits for room (wait.h) */
        struct ns_failure failure;  /* for the next of these that tries again */
        bool unsettled;             /* sets were made or failed: store_settle() */
        struct shared shared;       /* what clients see: its slots are the index */
        struct tree tree;
        const struct evict_ops *evict;
        void *policy;                 /* of evict; owned */
        struct list_link attachments; /* struct attach.ns_link */
        uint64_t n_pages[8];          /* by enum page_state, of bound sets */
        uint64_t n_pinned;            /* pages with n_pins > 0 */
        uint64_t n_ready;             /* GRANTED pages in magazines */
        uint32_t first_announced;     /* page + 1 of announce.c's list; 0: none */
        uint32_t n_announced;         /* in it */
        uint64_t n_withheld;          /* FREE pages of sets that are recalled: not to be granted */
        uint64_t look_round;          /* of store.recall_round, when recall_work() looked last */
        uint32_t watched, last_watched; /* list of watched pages through prev and next; PAGE_NONE */
        uint64_t n_watched;
        uint64_t n_stale;          /* SEALED pages of an older epoch, not swept yet */
        uint32_t sweep_page;       /* where the sweep goes on */
        uint64_t weigh_after_nsec; /* of reclaim.c: its sets aren't weighed again before */
        struct ns_counters counters;
        struct sessions *sessions;       /* owned; NULL: none yet */
        struct tags *tags;               /* likewise */
        struct history *history;         /* likewise */
        struct nsset *set;               /* borrowed; NULL: in none */
        uint32_t set_place;              /* in nsset.members */
        uint64_t expire_nsec;            /* as an opener said; 0: the tenant's */
        uint64_t expire_round_nsec;      /* expire.h: when the last round began */
        uint32_t expire_page;            /* where it goes on */
        bool is_expiring;                /* it isn't over */
        bool was_used;                   /* since store_policy_work() */
        uint64_t saved_mark, saved_nsec; /* of the server (learnt.h): what was saved, and when */
        bool unsaved;                    /* was_used since then */
        struct ahead ahead;              /* stock.h */
        uint32_t stock_pages;            /* FREE ones to be kept ready; 0: none */
        uint32_t free_pages;             /* FREE ones to be made by evicting (free_ahead) */
        bool is_freeing;                 /* until there are that many */
        bool is_leased;                  /* lately */
        bool may_compact;                /* compact.h: there may be something to do */
        uint64_t compact_after_nsec;     /* not before */
};

/*
 * Set size for a layout: per-plane extents that are multiples of both the device granularity and
 * the page (so that no page straddles two extents), as near to `wanted_bytes` per set as that
 * allows. 0, or -EINVAL with the sentence why (a set over NS_MAX_SET_BYTES or over the budget).
 */
int ns_geometry_of(const struct ns_layout *layout, uint64_t wanted_bytes,
        uint64_t granularity_bytes, uint64_t budget_bytes, struct ns_geometry *ret_geometry,
        struct detail *d);

/* 0, or -EINVAL naming the field and its range. */
int ns_layout_check(const struct ns_layout *layout, struct detail *d);

/* What two layouts differ in, version aside ("page_tokens"); NULL where they are the same. Static.
 */
const char *ns_layout_difference(const struct ns_layout *a, const struct ns_layout *b);

/* Equal in everything but version. */
bool ns_layout_same(const struct ns_layout *a, const struct ns_layout *b);

/* "model m version v dtype bf16 32 layers ..." for messages. Returns buf. */
#define NS_LAYOUT_TEXT_MAX 512
char *ns_layout_format(const struct ns_layout *l, char *buf, size_t size);

/* 0; -EINVAL: pages below store.min_page_bytes, or the layout's geometry; -EMFILE:
 * NS_MAX_PER_TENANT; -ENOMEM. Name and layout are checked already. */
int ns_new(struct tenant *t, struct pool *pool, const char *name, const struct ns_layout *layout,
        bool keep_page_zero, struct ns **ret_ns, struct detail *d);

struct ns *ns_find(struct tenant *t, const char *name);

/* FREE pages that can be granted. */
static inline uint64_t ns_n_room(const struct ns *ns)
{
        return ns->n_pages[PAGE_FREE] - ns->n_withheld;
}

/* NULL where the page is beyond the namespace or its set isn't bound. */
struct page *ns_page(const struct ns *ns, uint32_t page);

/* Somebody uses the page, now. */
void ns_note_use(struct ns *ns, uint32_t page);

/* Of a page that is bound. */
struct page_note *ns_note(const struct ns *ns, uint32_t page);

/* The set of a page that is bound. */
struct extent_set *ns_set_of(const struct ns *ns, uint32_t page);

/* SEALED before the last invalidation: unfindable, waiting for the sweep. */
bool ns_page_is_stale(const struct ns *ns, const struct page *p);

/* Pages that can be found. */
uint64_t ns_count_findable(const struct ns *ns);

uint32_t ns_find_page(const struct ns *ns, const uint8_t key[KEY_BYTES]);

/* Every change of a page's state, so that ns.n_pages is right and clients see it. */
void ns_set_state(struct ns *ns, uint32_t page, enum page_state s);

/* The one way a page becomes FREE: not pinned, out of the index. Gives its set back where that
 * leaves it idle. */
void ns_free_page(struct ns *ns, uint32_t page);

/* Idle sets stay, because a lease waits for what is being made. Recalled ones don't. */
static inline bool ns_awaits_sets(const struct ns *ns)
{
        return ns->n_waiting > 0 || ns->n_preparing > 0 || ns->unsettled;
}

/* FREE pages that can be granted, and those to come. */
static inline uint64_t ns_n_coming(const struct ns *ns)
{
        return ns_n_room(ns) + ns->n_preparing_pages;
}

/* What its account is charged with. */
static inline uint64_t ns_charged_bytes(const struct ns *ns)
{
        return (uint64_t)(ns->n_sets + ns->n_preparing) * ns->geometry.set_bytes;
}

/* Gives idle sets back after a call that kept them. */
void ns_trim(struct ns *ns);

/* Pins of one member or another, counted per page. The first holds it, the last lets it go. */
void ns_pin_page(struct ns *ns, uint32_t page);
void ns_unpin_page(struct ns *ns, uint32_t page, uint32_t n);

/* A session's window holds the page beside index and tree (session.h): where it leaves these it is
 * DETACHED, and free once no window holds it and nobody pins it. */
void ns_keep_page(struct ns *ns, uint32_t page);
void ns_unkeep_page(struct ns *ns, uint32_t page);

/* DETACHED, held by windows and by nothing else that the daemon knows of. */
bool ns_page_is_kept(const struct ns *ns, uint32_t page);

/* The page is met with pins in segments and none of its own: the policy has it as held, or it is
 * DETACHED. From now on ns_look_again() looks after it. */
void ns_watch(struct ns *ns, uint32_t page);

/*
 * Evicts an idle leaf, unless a client has pinned it in its segment: then it counts as held, and is
 * watched. True where it went.
 */
bool ns_evict_leaf(struct ns *ns, uint32_t page);

/* The same for one that is too old. */
bool ns_expire_leaf(struct ns *ns, uint32_t page);

/* Watched pages looked at by what can't wait for all: below a millisecond with 64 clients. Not
 * tuned. */
#define NS_LOOK_PAGES 4096

/*
 * Nobody tells the daemon when a pin in a segment goes: looks at what is watched, at most `budget`
 * pages, those first that it hasn't looked at for longest. Pages that are idle now can be evicted
 * again, DETACHED ones are freed. O(budget * clients).
 */
void ns_look_again(struct ns *ns, uint32_t budget);

/* Pages pinned by whomever, in segments or over the socket: their number; fn (may be NULL) gets
 * each. O(bound pages * clients). */
uint64_t ns_find_pinned(const struct ns *ns, void (*fn)(uint32_t page, void *data), void *data);

/*
 * Everything cached becomes unfindable at once, at a cost that doesn't depend on how much there is;
 * ns_sweep() frees it later. *ret_pages: pages that were findable. Tells store.on_stale. 0 or
 * -ENOMEM (unchanged).
 */
int ns_invalidate(struct ns *ns, uint64_t *ret_pages);

/* A bound page: where it is stale it is freed, or DETACHED while somebody pins it. */
void ns_sweep_page(struct ns *ns, uint32_t page);

/* Looks at up to `budget` page records, frees or detaches the stale ones. True while there are
 * more. */
bool ns_sweep(struct ns *ns, uint32_t budget);

/* Removes a findable page and everything below it; pinned ones become DETACHED. Returns their
 * number. */
uint64_t ns_drop_subtree(struct ns *ns, uint32_t page, enum evict_reason why);

/* The same, leaves first, and at most `most` (> 0) of them: the page is still findable where it
 * took these. */
uint64_t ns_drop_leaves(struct ns *ns, uint32_t page, uint64_t most, enum evict_reason why);

/* No attachments. Frees everything it holds. */
void ns_free(struct ns *ns);

#endif
