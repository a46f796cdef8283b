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
#include "daemon/core/ground/page.h"

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

/* How far the count of pages that a lease would get has come: upkeep/leasable.h. */
struct leasable {
        struct list_link link; /* store.leasables; whose turn it is first */
        uint32_t page;         /* of the device, where the round goes on */
        uint32_t n_met;        /* SEALED ones that somebody holds, in this round */
        uint32_t n_held;       /* the same of the last one; 0 before the first is over */
};

#endif
