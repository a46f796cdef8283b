/*
 * What a namespace and an attachment have embedded, so that everybody knows how large these are.
 * What each part is, and the functions that change it, are in the header that is named with it.
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
#include "daemon/core/ground/chore.h"
#include "daemon/core/ground/codecs.h"
#include "daemon/core/ground/detail.h"
#include "daemon/core/ground/page.h"
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

/* What is true of sets and pages: records/records.h. */
struct records {
        int fd; /* owned; -1: nothing is kept */
        uint32_t number;
        uint64_t bytes;
        struct records_header *header; /* the mapping; NULL: none */
        struct set_record *sets;       /* by index; n_set_slots */
        struct page *pages;            /* capacity_pages */
        struct page_note *notes;       /* likewise */
        struct page_extra *extras;     /* likewise */
        struct hash_seed seed;         /* of sums */
};

/* What clients see of the namespace, and its index: records/shared.h. */
struct shared {
        struct segment segment;
        struct shm_index *header;   /* in the segment */
        struct shm_bucket *buckets; /* likewise */
        struct shm_line *lines;     /* likewise */
        uint32_t n_buckets, capacity_pages;
        struct hash_seed seed;
        uint64_t n_indexed; /* slots in use, those of stale pages included */
};

/* An attachment's pin segment, where it has one: records/shared.h. */
struct pins {
        struct segment segment; /* fd -1: none, it pins over the socket */
        struct shm_pins *header;
        _Atomic uint32_t *magazine;
        _Atomic uint32_t *counters;
        uint32_t capacity_pages;
        uint64_t n_lookups, n_keys, n_hits; /* of the header, as counted already */
};

/* Pins of this client for the page. */
static inline uint32_t pins_count(const struct pins *p, uint32_t page)
{
        return atomic_load_explicit(&p->counters[page], memory_order_acquire);
}

static inline bool pins_is_open(const struct pins *p)
{
        return p->segment.fd >= 0;
}

/* What the namespace has on a disk: moves/space.h. All zero: nothing. */
struct ns_space {
        struct disk_space *disk; /* borrowed; NULL: none, or no more */
        struct space_load *load; /* under way; NULL: over */
        bool is_kept;            /* the namespace is of the daemon before this one */
        bool is_ready;
        struct space_entry
                *entries;         /* owned; found at the start; NULL once all are pages, or gone */
        uint32_t n_entries, room; /* of them; there is room for */
        uint64_t sort_iter;       /* of disk_page_next() */
        struct map heads;     /* hash of a parent's key -> 1 + the first of its unclaimed entries */
        uint32_t claimed;     /* 1 + the first of those that can be pages now; 0: none */
        uint32_t n_left;      /* that weren't looked at yet: claimed, or in heads */
        bool drops_missing;   /* pages from missing_page on that the disk hasn't go */
        bool removes_unknown; /* entries from unknown_iter on that are no page's go */
        uint32_t missing_page;
        uint64_t unknown_iter; /* of disk_page_next() */
};

/* What has gone is being looked for, a slice at a time. */
static inline bool space_is_cleaning(const struct ns_space *s)
{
        return s->drops_missing || s->removes_unknown;
}

/* What the disk has is being looked at, a slice at a time: there are more entries to find. */
static inline bool space_is_sorting(const struct ns_space *s)
{
        return s->entries && !s->is_ready;
}

/* What codecs did to pages that went to a tier, since the start: moves/carry.h. */
struct ns_coding {
        uint64_t n_pages;                            /* that were sent to the encoder */
        uint64_t n_sampled;                          /* of which the errors were measured */
        struct codec_error errors[CODEC_RANGES_MAX]; /* by range of the tier's codecs */
};

/* How the namespace's pages are stored below its device, and what that did to them. */
struct ns_codecs {
        struct page_codecs of_pages;
        struct ns_coding done[TIER_COUNT]; /* by enum tier_kind */
};

/* Which extent sets the namespace has: memory/sets.h. */
struct ns_sets {
        struct extent_set **at; /* owned; by index, n_set_slots; NULL where none is bound */
        uint8_t *preparing;     /* owned; by index, n_set_slots; 1 where a set is PREPARING */
        uint64_t factor;        /* divide_factor() of geometry.set_pages */
        bool keep_page_zero;    /* page 0 of set 0 is never granted. False where there is a null set
                                   (geometry.h) for what it is kept for */
        bool unsettled;         /* sets were made or failed: store_settle() */
        uint32_t run_slot;      /* where the next search for a run begins: run.h */
};

/* Why a set wasn't made. */
struct ns_failure {
        int code; /* what a lease is refused with: KVL_STATUS_FULL, -EIO; 0: none */
        struct detail why;
};

/* Leases that wait: quota/wait.h. */
struct ns_waits {
        uint32_t n;                /* attachments whose lease waits for sets that are being made */
        uint64_t n_wanted;         /* pages that these want */
        uint32_t n_queued;         /* attachments whose lease waits for room */
        struct ns_failure failure; /* for the next lease that tries again */
};

/* Waiters that are still to be woken: catalog/wake.h. */
struct ns_wakes {
        struct chore chore;
        uint64_t *pages;   /* owned; a bitmap: threads may still sleep on these; NULL: none ever */
        uint32_t n, at;    /* pages in it; where the next slice goes on */
        uint32_t n_lately; /* woken, or looked for, since the last slice */
};

/* Pages of which a client has announced that it computes them: catalog/announced.h. */
struct ns_announced {
        struct list_link sets;   /* struct extent_set.announced_link: those with such pages */
        uint32_t n;              /* pages */
        uint32_t withdraw_at;    /* announcements of an older epoch were withdrawn up to this page;
                                    PAGE_NONE: all were */
        struct chore withdrawal; /* withdraws the others */
        struct ns_wakes wakes;
};

/* Pages with pins in segments, of which nobody tells the daemon when they go: catalog/pages.h looks
 * at them again and again. They are a list through page.prev and page.next. */
struct ns_watched {
        uint32_t first, last; /* PAGE_NONE: there are none */
        uint64_t n;
};

/* Pages that expire: catalog/expire.h. */
struct ns_expiry {
        uint64_t after_nsec; /* as who opened the namespace said; 0: as the tenant's */
        uint64_t round_nsec; /* when the last round began */
        uint32_t page;       /* where the round goes on */
        bool is_under_way;   /* the round isn't over */
};

/* What is cached, but for the prefix tree: the room catalog. */
struct ns_catalog {
        struct ancestors ancestors; /* of the tree's pages */
        struct list_link drops;     /* struct drop.link */
        struct ns_announced announced;
        struct ns_watched watched;
        uint64_t n_stale;        /* SEALED pages of an older epoch, which aren't swept yet */
        uint32_t sweep_page;     /* where the sweep goes on */
        struct tags *tags;       /* owned; NULL: none yet */
        struct history *history; /* owned; NULL: none yet */
        struct nsset *set;       /* the set of namespaces it is in; borrowed; NULL: none */
        uint32_t set_place;      /* in nsset.members */
        struct ns_expiry expiry;
};

/* Who uses the namespace: the room clients. */
struct ns_clients {
        struct list_link attachments; /* struct attach.ns_link */
        struct list_link closing;     /* struct attach.ns_link, of those that go: leave.h */
        uint64_t n_ready;             /* GRANTED pages in magazines */
        uint64_t vain_nsec;           /* when a refill last found fewer pages than it wanted */
};

/* FREE pages ahead of demand: reclaim/stock.h. */
struct ns_stock {
        struct ahead ahead;
        uint32_t n_to_keep;   /* FREE pages to be kept ready; 0: none */
        uint32_t n_to_free;   /* FREE pages to be made by evicting (free_ahead) */
        uint32_t burst_pages; /* that were leased at once, lately */
        bool is_freeing;      /* until there are that many */
        bool is_leased;       /* pages were leased lately */
};

/* Compaction: reclaim/compact.h. */
struct ns_compaction {
        bool is_possible;    /* there may be something to do */
        uint64_t after_nsec; /* not before */
};

/* What makes room: the room reclaim. */
struct ns_reclaim {
        struct ns_stock stock;
        struct ns_compaction compaction;
};

/* What goes below the device: tiers/sink.h. */
struct ns_sink {
        bool has_looked; /* scratch */
        bool may_be_due; /* pages were taken since nothing had to go down */
};

/* How far the count of pages that a lease would get has come: upkeep/leasable.h. */
struct leasable {
        struct list_link link; /* store.leasables; whose turn it is first */
        uint32_t page;         /* of the device, where the round goes on */
        uint32_t n_met;        /* SEALED ones that somebody holds, in this round */
        uint32_t n_held;       /* the same of the last one; 0 before the first is over */
};

/* What goes on by itself: the room upkeep. */
struct ns_upkeep {
        struct leasable leasable;
        uint64_t look_round; /* what store.recall_round was when recall_work() looked last */
};

/* Whether somebody wants the namespace: lifetimes/idle.h. */
struct ns_idle {
        uint64_t since_nsec; /* 0: it isn't idle */
        bool was_idle;       /* it goes, because nobody wants it */
};

/* What the eviction policy has learnt, which the server saves: server/services/learnt.h. */
struct ns_learnt {
        bool has_work;                   /* for store_policy_work(): a page was used */
        bool unsaved;                    /* a page was used since it was saved */
        uint64_t saved_mark, saved_nsec; /* what was saved, and when */
};

#endif
