/*
 * A pool: one device, its budget, and the extent sets bound from it. Or what lies below a device,
 * where what is cold goes: memory of the host, then a disk, of which sets have pages and no
 * extents.
 *
 * A device that may block is behind a queue (gpu/queue.h). There a set is PREPARING first: it is
 * charged and has its slot in the namespace, nothing else knows of it. When the queue has made its
 * extents it is bound. Where its namespace has gone by then it is an orphan, destroyed when it is
 * made. Destroying is submitted and forgotten: the queue is in order, so whoever is charged for the
 * memory next asks for it after.
 *
 * An extent set is one extent per plane of a namespace, bound to that namespace (hence to one
 * tenant) all or nothing, and charged as a whole. It is unbound when no page of it is in use and no
 * client has it mapped; what it held reads as zeros before anybody else gets the memory.
 */
#ifndef KVL_CORE_POOL_H
#define KVL_CORE_POOL_H

#include <stdbool.h>
#include <stdint.h>

#include "base/list.h"
#include "daemon/core/ground/page.h"
#include "daemon/core/objects/stake.h"
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

struct pool {
        struct list_link link; /* store.pools, store.lower_pools */
        enum tier_kind tier;
        struct pool *below;     /* what is cold on it goes there; borrowed; NULL: nowhere */
        struct pool *above;     /* the one whose `below` it is; borrowed; NULL: a device's */
        struct device *device;  /* owned; NULL where there is a queue, and of a disk */
        struct disk_file *disk; /* owned; NULL: it is none, or can't be had */
        struct queue *queue;    /* owned; NULL: the device is called inline */
        const struct device_props *props; /* of the device, borrowed from either; or lower_props */
        struct device_props lower_props;  /* below a device, whose name is in its own */
        struct account account;           /* limit: the budget */
        struct list_link stakes;          /* struct stake.pool_link */
        uint64_t reserved_bytes;          /* sum of the stakes' reservations */
        uint64_t idle_reserve_bytes;      /* of these not charged to who has them */
        struct fairness fairness;
        struct tier_queue sinking; /* sink.h: whose turn it is to move pages down */
        struct discards *discards; /* the store's; borrowed */
        uint64_t extent_bytes;     /* wanted size of a set; 64 MiB by default */
        uint32_t n_sets;
        uint32_t n_preparing;       /* orphans included */
        struct list_link orphans;   /* struct extent_set.link */
        char why[DEVICE_WHY_BYTES]; /* of the device's last failure; "" */
        /* Of host memory below a GPU, dma.h: */
        uint64_t registered_bytes; /* with that */
        uint32_t n_unregistered;   /* sets that it refused */
        struct list_link leaving;  /* struct dma.link */
        bool is_doubted; /* what the daemon before this one left on it isn't believed (canary.h) */
};

/* Taking a set back from clients: recall.h. */
enum recall_state {
        RECALL_NONE,
        RECALL_ASKED, /* nothing of it is granted any more; something may be held */
        RECALL_IDLE,  /* nothing is held; clients have it mapped */
};

/* Why, and how hard. */
enum recall_kind {
        RECALL_FORCED, /* an administrator, a lowered limit: holders are told, with a deadline */
        /*
         * For another tenant, or to empty it (compaction): nothing more of it is granted or found,
         * what is held is waited for without a word or a deadline; only then are clients, who all
         * keep safe points, told to unmap it.
         */
        RECALL_SOFT,
        RECALL_COMPACT, /* soft; what is cached is moved to other sets instead of dropped */
};

#define RECALL_PASSED UINT64_MAX /* a deadline that has passed */

struct set_recall {
        struct list_link link; /* store.recalls, but for RECALL_NONE */
        enum recall_state state;
        enum recall_kind kind;
        bool left_windows; /* sessions hold no page of it any more (sessions_leave_set()) */
        bool is_sunk;      /* of what is cached nothing more goes down a tier (recall-work.c) */
        uint32_t sink_at;  /* until then: the page to send down next, in the set */
        uint32_t n_purged; /* pages that were gone through */
        bool told;         /* all clients concerned were told of the state */
        bool holders_told; /* those that hold pages of it and don't map it were told */
        bool quarantined;  /* past a deadline */
        uint64_t begun_nsec;
        struct tenant *by;      /* who gets it; borrowed; NULL: nobody, or a tenant that is gone */
        uint64_t timeout_nsec;  /* 0: the default */
        uint64_t deadline_nsec; /* 0: not set yet; RECALL_PASSED */
        uint32_t compact_at;    /* compact.h: the page to look at next, in the set */
        uint64_t give_up_nsec;  /* likewise: called off then; 0: not set yet */
};

/* Who reads or writes its memory: the room moves. */
struct set_moving {
        uint32_t n_busy;        /* ends of transfers, and fills: the set stays where it is */
        uint32_t n_copies;      /* of the transfers: those to a page that is granted */
        struct list_link fills; /* struct fill.link: pages that are written where they lie */
        uint64_t *filled;       /* owned; these pages as a bitmap, by place in the set; NULL: there
                                   were none yet */
};

struct extent_set {
        struct list_link link;        /* tier->sets_bound, in order of binding;
                                         tier->sets_preparing; pool.orphans */
        struct list_link room_link;   /* tier->sets_room while n_free > 0 and it isn't recalled */
        struct list_link settle_link; /* store.memory.settling: something of it was let go of */
        struct list_link announced_link; /* ns.catalog.announced.sets while first_announced > 0 */
        uint32_t first_announced;        /* page + 1 of announced.c's list; 0: none */
        struct ns *ns;                   /* borrowed; NULL: an orphan */
        struct ns_tier *tier;            /* of ns */
        struct pool *pool;               /* tier->pool */
        struct charge charge;
        uint32_t index;      /* position in the namespace's arena */
        uint32_t n_usable;   /* pages that can be granted */
        uint32_t n_free;     /* of these FREE */
        uint32_t free_head;  /* page index, PAGE_NONE */
        uint64_t *free_bits; /* owned; the same as a bitmap, by place in the set (run.h) */
        uint64_t *part_sums; /* owned; NULL: none are known (moves/part-sums.h) */
        uint32_t n_mapped;   /* attachments that were sent its extents */
        uint32_t n_ready;    /* pages in magazines */
        struct set_moving moving;
        uint64_t cost_bytes; /* scratch of one call (reclaim) */
        uint64_t asked_nsec; /* when it began to be made */
        struct set_recall recall;
        uint32_t first_extent;   /* the extents' numbers, of keep.h, are this and those after it; 0:
                                    nothing is kept */
        struct page *pages;      /* in ns.records; ns.geometry.set_pages */
        struct job *parting;     /* owned; queue: the DESTROY, holds the extents' handles */
        struct discard *discard; /* owned; no queue: room for what it leaves */
        struct device_arena *arena; /* owned; where set_address() has mapped them; NULL: nowhere */
        uint32_t n_arena;           /* extents mapped there */
        struct dma *dma;            /* owned; NULL: it isn't registered, nor going to be */
        uint32_t n_extents;
        struct extent *extents[]; /* owned */
};

/* The number of the set's n-th extent, for keep.h. */
static inline uint32_t set_extent_number(const struct extent_set *set, uint32_t n)
{
        return set->first_extent + n;
}

static inline bool set_is_idle(const struct extent_set *set)
{
        return set->n_free == set->n_usable && set->n_mapped == 0 && set->moving.n_busy == 0;
}

/* No page of the set is in use, and none is on its way. */
static inline bool set_is_unheld(const struct extent_set *set)
{
        return set->n_free == set->n_usable && set->moving.n_busy == 0;
}

/* The set is recalled, and nothing of it is held: nobody ever will. */
static inline bool recall_is_idle(const struct extent_set *set)
{
        return set->recall.state != RECALL_NONE && set_is_unheld(set);
}

/* The set's recall is soft, and something of it is held: it has no deadline yet. */
static inline bool recall_is_pressable(const struct extent_set *set)
{
        return set->recall.state == RECALL_ASKED && set->recall.kind != RECALL_FORCED;
}

#endif
