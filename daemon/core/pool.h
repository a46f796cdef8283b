/*
 * A pool: one device, its budget, and the extent sets bound from it.
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
#include "daemon/core/account.h"
#include "daemon/core/page.h"
#include "gpu/device.h"

struct ns;
struct detail;

struct pool {
        struct list_link link;  /* store.pools */
        struct device *device;  /* owned */
        struct account account; /* limit: the budget */
        uint64_t extent_bytes;  /* wanted size of a set; 64 MiB by default */
        uint32_t n_sets;
};

struct extent_set {
        struct list_link link;      /* ns.sets_bound, in order of binding */
        struct list_link room_link; /* ns.sets_room while n_free > 0 */
        struct ns *ns;              /* borrowed */
        struct charge charge;
        uint32_t index;           /* position in the namespace's arena */
        uint32_t n_usable;        /* pages that can be granted */
        uint32_t n_free;          /* of these FREE */
        uint32_t free_head;       /* page index, PAGE_NONE */
        uint32_t n_mapped;        /* attachments that were sent its extents */
        uint64_t cost_bytes;      /* scratch of one call (reclaim) */
        struct page *pages;       /* owned, ns.geometry.set_pages */
        struct extent *extents[]; /* owned, ns.layout.n_planes */
};

/*
 * Binds the lowest free set slot of the namespace: charge, extents, page records. 0 with *ret_set;
 * KVL_STATUS_QUOTA, KVL_STATUS_FULL (also: the namespace has no slot left); -ENOMEM, -EIO from the
 * device. Nothing stays behind on failure.
 */
int set_bind(struct ns *ns, struct extent_set **ret_set, struct detail *d);

/* No page of it is in use and nobody has it mapped. Frees the set. */
void set_unbind(struct extent_set *set);

/* Frees a set with whatever is cached in it, because its namespace goes. Nobody has it mapped. */
void set_discard(struct extent_set *set);

static inline bool set_is_idle(const struct extent_set *set)
{
        return set->n_free == set->n_usable && set->n_mapped == 0;
}

/*
 * Takes one FREE page off the set's list, which isn't empty: it is GRANTED, its next generation.
 * Putting it back makes it FREE; go through ns_free_page(), which also gives an idle set back.
 */
uint32_t set_take_page(struct extent_set *set);
void set_put_page(struct extent_set *set, uint32_t page);

#endif
