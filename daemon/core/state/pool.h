/*
 * A pool: one device, its budget, and the extent sets bound from it. A lower tier is a pool, too:
 * host memory, then a disk, whose sets have pages and no extents. Cold pages are demoted to it.
 *
 * A device that may block is behind a queue (gpu/queue.h). A set of such a device is PREPARING
 * first: it is charged and has its slot in the namespace, and no other code knows of it. Once the
 * queue has made its extents it is bound. If its namespace was freed meanwhile the set is an
 * orphan, which is destroyed once it is made. Destroying is submitted without waiting for the
 * result: the queue is in order, so a later request for the memory runs after it.
 *
 * An extent set is one extent per plane of a namespace. It is bound to that namespace (hence to one
 * tenant) all or nothing, and charged as a whole. It is unbound when none of its pages is in use
 * and no client has it mapped. Its memory reads as zeros before another namespace gets it.
 *
 * An account has a limit and the charged bytes. A charge is embedded in the object that it pays for
 * (an extent set). A share is what a tenant has of one pool. memory/region.h has the functions of
 * all three.
 */
#ifndef KVL_CORE_POOL_H
#define KVL_CORE_POOL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/list.h"
#include "daemon/core/state/page.h"
#include "gpu/device.h"
#include "policy/tier.h"

struct ns;
struct ns_tier;
struct discard;
struct discards;
struct dma;
struct detail;
struct queue;
struct disk_file;
struct job;
struct job_extent;
struct set_source;
struct pool;
struct share_tenant;
struct tenant;

struct account {
        uint64_t limit_bytes;
        uint64_t charged_bytes; /* exceeds the limit only after the limit was lowered, or by memory
                                   that is held up (discard.h) */
};

struct pool_share;

struct charge {
        struct account *tenant, *pool; /* borrowed; NULL: nothing is charged */
        struct pool_share *share;      /* borrowed; NULL if `tenant` is */
        uint64_t bytes;
};

struct pool_share {
        struct list_link tenant_link, pool_link;
        struct tenant *tenant;      /* borrowed */
        struct pool *pool;          /* borrowed */
        struct account *account;    /* the tenant's for the pool's tier; borrowed */
        uint64_t reserve_bytes;     /* multiple of pool.extent_bytes */
        uint64_t charged_bytes;     /* sets bound, preparing, quarantined */
        uint64_t n_extents;         /* in these sets */
        uint64_t recalled_bytes;    /* of these: being taken back, not quarantined */
        uint64_t wants_until_nsec;  /* the tenant got less than it wanted: until then it counts as
                                       wanting all that it may have */
        uint64_t wanted_bytes;      /* what it lacked then, in whole sets */
        uint64_t wanted_set_bytes;  /* size of these sets */
        uint64_t unbacked_bytes;    /* idle reserve that isn't free: in use by others when it was
                                       reserved, or lent, or held by orphans */
        uint64_t taken_back_nsec;   /* the longest time to get lent memory back; 0: never needed */
        uint64_t owed_since_nsec;   /* since when it waits for its reserved memory; 0: it doesn't */
        uint64_t fair_bytes;        /* region_fair(), if fairness.is_fresh */
        struct tier_claim demoting; /* demote.h: its turn to demote pages */
        bool lends;                 /* unbacked_bytes takes its lending into account */
        bool is_skipped;            /* scratch of one call */
};

/* A pool's scratch memory to compute fair shares; has an entry for each share. */
struct fairness {
        struct share_tenant *shares;
        uint64_t *fair;
        uint32_t *order;
        size_t n_shares;
        bool is_fresh; /* share.fair_bytes are valid */
        uint64_t fresh_until_nsec;
};

/* Why a lease is refused or waits: on the wire, in <kvlease.h> and for people. Never renumbered. */
enum lease_reason {
        LEASE_REASON_NONE = 0,
        LEASE_REASON_QUOTA = 1,            /* the tenant's limit */
        LEASE_REASON_RESERVATION_FULL = 2, /* burst = none: not beyond the reservation */
        LEASE_REASON_POOL_FULL = 3,        /* the dynamic pool */
        LEASE_REASON_DEADLINE = 4,         /* it has waited for its longest time */
        LEASE_REASON_DEGRADED = 5,         /* fewer pages than asked for, by policy */
        LEASE_REASON_DRAINING = 6,
        LEASE_REASON_DEVICE = 7, /* the device is making memory, or failed to */
        LEASE_REASON_NO_RUN = 8, /* enough pages are free, but not consecutive */
};
#define LEASE_REASONS 9

/* Returns the bytes that a share has borrowed from the dynamic pool. */
static inline uint64_t pool_share_borrowed(const struct pool_share *s)
{
        return s->charged_bytes > s->reserve_bytes ? s->charged_bytes - s->reserve_bytes : 0;
}

/* Returns the bytes reserved and not held. */
static inline uint64_t pool_share_idle(const struct pool_share *s)
{
        return s->reserve_bytes > s->charged_bytes ? s->reserve_bytes - s->charged_bytes : 0;
}

struct pool {
        struct list_link link; /* store.pools, store.lower_pools */
        enum tier_kind tier;
        struct pool *below; /* the tier that cold pages are demoted to; borrowed; NULL: none */
        struct pool *above; /* the pool whose `below` this is; borrowed; NULL: it is a device's */
        struct device *device;            /* owned; NULL: there is a queue, or it is a disk */
        struct disk_file *disk;           /* owned; NULL: no disk, or not available */
        struct queue *queue;              /* owned; NULL: the device is called inline */
        const struct device_props *props; /* borrowed from device or queue; or lower_props */
        struct device_props lower_props;  /* of a lower tier; has the upper device's name */
        struct account account;           /* limit: the budget */
        struct list_link shares;          /* struct pool_share.pool_link */
        uint64_t reserved_bytes;          /* sum of the shares' reservations */
        uint64_t idle_reserve_bytes;      /* of these, not charged to their owners */
        struct fairness fairness;
        struct tier_queue demoting; /* demote.h: order of tenants that demote pages */
        struct discards *discards;  /* the store's; borrowed */
        uint64_t extent_bytes;      /* wanted size of a set; 64 MiB by default */
        uint32_t n_sets;
        uint32_t n_preparing;       /* orphans included */
        struct list_link orphans;   /* struct extent_set.link */
        char why[DEVICE_WHY_BYTES]; /* the device's last failure; "" */
        /* For host memory below a GPU, dma.h: */
        uint64_t registered_bytes; /* with that GPU */
        uint32_t n_unregistered;   /* sets that the GPU refused */
        struct list_link leaving;  /* struct dma.link */
        bool is_doubted;           /* the previous daemon's data on it isn't trusted (canary.h) */
};

/* The steps of taking a set back from clients: recall.h. */
enum recall_state {
        RECALL_NONE,
        RECALL_ASKED, /* its FREE pages aren't granted; pages may be held */
        RECALL_IDLE,  /* no page is held; clients still map the set */
};

/* The reason, and how strict the recall is. */
enum recall_kind {
        RECALL_FORCED, /* an administrator, a lowered limit: holders get a deadline */
        /* Takes the set for another tenant, or empties it (compaction). Its pages aren't granted or
         * found any more. The recall waits for held pages without notice or deadline. Then clients,
         * which all use safe points, are told to unmap the set. */
        RECALL_SOFT,
        RECALL_COMPACT, /* soft; cached pages are moved to other sets, not dropped */
};

#define RECALL_PASSED UINT64_MAX /* a deadline that has passed */

struct set_recall {
        struct list_link link; /* store.recalls, but for RECALL_NONE */
        enum recall_state state;
        enum recall_kind kind;
        bool left_windows;  /* session windows hold no page of it (sessions_leave_set()) */
        bool is_demoted;    /* no more cached pages are demoted (recall.c) */
        uint32_t demote_at; /* until then: the next page to demote, index in the set */
        uint32_t n_purged;  /* pages purged so far */
        bool told;          /* all clients concerned were notified of the state */
        bool holders_told;  /* holders that don't map the set were notified */
        bool quarantined;   /* past a deadline */
        uint64_t begun_nsec;
        struct tenant *by;      /* the tenant that gets it; borrowed; NULL: none, or freed */
        uint64_t timeout_nsec;  /* 0: the default */
        uint64_t deadline_nsec; /* 0: not set yet; RECALL_PASSED */
        uint32_t compact_at;    /* compact.h: the next page, index in the set */
        uint64_t give_up_nsec;  /* compact.h: when to call it off; 0: not set yet */
};

/* Transfers and fills that use the set's memory: module moves. */
struct set_moving {
        uint32_t n_busy;        /* ends of transfers, and fills: the set must stay */
        uint32_t n_copies;      /* of these, transfers to a granted page */
        struct list_link fills; /* struct fill.link: pages being written into place */
        uint64_t *filled;       /* owned; these pages, a bitmap by index in the set; NULL: none */
};

struct extent_set {
        struct list_link link;           /* tier->sets_bound, in order of binding;
                                            tier->sets_preparing; pool.orphans */
        struct list_link room_link;      /* tier->sets_room if n_free > 0 and not recalled */
        struct list_link idle_link;      /* store.memory.idle_sets: a hold was released */
        struct list_link announced_link; /* ns.catalog.announced.sets if first_announced > 0 */
        uint32_t first_announced;        /* page + 1 of announced.c's list; 0: none */
        struct ns *ns;                   /* borrowed; NULL: an orphan */
        struct ns_tier *tier;            /* part of ns */
        struct pool *pool;               /* tier->pool */
        struct charge charge;
        uint32_t index;      /* position in the namespace's arena */
        uint32_t n_usable;   /* pages that can be granted */
        uint32_t n_free;     /* of these, FREE pages */
        uint32_t free_head;  /* page index, PAGE_NONE */
        uint64_t *free_bits; /* owned; FREE pages as a bitmap, by index in the set (run.h) */
        uint64_t *part_sums; /* owned; NULL: none are known (moves/part-sums.h) */
        uint32_t n_mapped;   /* attachments that were sent its extents */
        uint32_t n_ready;    /* pages in magazines */
        struct set_moving moving;
        uint64_t cost_bytes; /* scratch of one call (reclaim) */
        uint64_t asked_nsec; /* when it began to be made */
        struct set_recall recall;
        uint32_t first_extent;   /* the first extent's number in keep.h, the others follow; 0: not
                                    stored */
        struct page *pages;      /* part of ns.records; ns.geometry.set_pages */
        struct job *parting;     /* owned; with a queue: the DESTROY with the extents' handles */
        struct discard *discard; /* owned; without a queue: prepared memory for discarding it */
        struct device_arena *arena; /* owned; mapping of set_address(); NULL: none */
        uint32_t n_arena;           /* extents mapped there */
        struct dma *dma;            /* owned; NULL: not registered, nor about to be */
        uint32_t n_extents;
        struct extent *extents[]; /* owned */
};

/* Returns the number of the set's n-th extent for keep.h. */
static inline uint32_t set_extent_number(const struct extent_set *set, uint32_t n)
{
        return set->first_extent + n;
}

static inline bool set_is_idle(const struct extent_set *set)
{
        return set->n_free == set->n_usable && set->n_mapped == 0 && set->moving.n_busy == 0;
}

/* Is no page of the set in use, and no transfer under way? */
static inline bool set_is_unheld(const struct extent_set *set)
{
        return set->n_free == set->n_usable && set->moving.n_busy == 0;
}

/* Is the set recalled with no page held? Then none will be held again. */
static inline bool recall_is_idle(const struct extent_set *set)
{
        return set->recall.state != RECALL_NONE && set_is_unheld(set);
}

/* Is the recall soft, with pages held? Then it has no deadline yet. */
static inline bool recall_is_pressable(const struct extent_set *set)
{
        return set->recall.state == RECALL_ASKED && set->recall.kind != RECALL_FORCED;
}

#endif
