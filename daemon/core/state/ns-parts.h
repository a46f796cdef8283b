/*
 * The structs embedded in a namespace or an attachment. The header named with each one describes it
 * and has the functions that change it.
 */
#ifndef KVL_CORE_NS_PARTS_H
#define KVL_CORE_NS_PARTS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/hash.h"
#include "base/list.h"
#include "base/map.h"
#include "base/segment.h"
#include "daemon/core/state/task.h"
#include "daemon/core/state/codecs.h"
#include "daemon/core/state/detail.h"
#include "daemon/core/state/page.h"
#include "policy/ahead.h"
#include "policy/ancestors.h"

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

/* Client threads to wake up: cache/wake.h. */
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

#endif
