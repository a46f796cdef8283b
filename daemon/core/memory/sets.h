/*
 * Extent sets are bound, take and hand out pages, and are unbound. What a set and a pool are:
 * objects/pool.h. Loop thread only.
 */
#ifndef KVL_CORE_SETS_H
#define KVL_CORE_SETS_H

#include "daemon/core/objects/pool.h"

struct claim;

/*
 * Binds the lowest free set slot of a tier of the namespace, where the region admits that for the
 * claim (quota/region.h; NULL: for nobody's lease): charge, extents, page records. 0 with
 * *ret_set; KVL_STATUS_QUOTA, KVL_STATUS_RESERVATION, KVL_STATUS_FULL (also: the namespace has no
 * slot left); -ENOMEM, -EIO from the device. Nothing stays behind on failure. On a queue:
 * -EINPROGRESS, the set is PREPARING; pool_reap() binds it, or leaves why not in
 * ns.waits.failure for a lease that waits.
 */
int set_bind_in(struct ns *ns, enum tier_kind kind, struct claim *claim,
        struct extent_set **ret_set, struct detail *d);

/* The same as set_bind_in(), in the tier of the device. */
int set_bind(struct ns *ns, struct claim *claim, struct extent_set **ret_set, struct detail *d);

/*
 * Binds a set that the daemon before this one had bound, with its extents (taken on success only;
 * `extents` has their handles where the pool has a queue). Its page records are as they were, and
 * counted by the caller, who makes its list of FREE pages. 0 or -ENOMEM.
 */
int set_adopt(struct ns *ns, uint32_t index, uint32_t first_extent,
        const struct job_extent *extents, struct extent_set **ret_set);

/* For whoever adopts a set: the page, which is FREE, comes first in the list of FREE pages. */
void set_list_page(struct extent_set *set, uint32_t page);

/* For whoever adopts a set: its list of FREE pages is complete. */
void set_adopted(struct extent_set *set);

/*
 * The queue has something to say: sets that are made are bound, those that failed are gone. Then
 * the leases that waited are to be tried again, in order, and then store_settle(). Number of jobs.
 */
unsigned pool_reap(struct pool *pool);

/* The namespace of a set that is PREPARING goes: the set is destroyed when it is made. */
void set_orphan(struct extent_set *set);

/* The queue has ended, which never says that what it was making is made: orphans are freed. */
void pool_forget_orphans(struct pool *pool);

/* A handle of the n-th extent for another process, to be closed by the caller. 0 or -errno. */
int set_export(const struct extent_set *set, uint32_t n, struct extent_handle *ret_handle);

/*
 * Where the bytes of a page, in one plane, lie in this process; of an encoded page those of all its
 * planes. Maps the whole set, until it goes. Of memory of the host, inline. NULL: no memory, no
 * addresses.
 */
uint8_t *set_address(struct extent_set *set, uint32_t page, uint32_t plane);

/* Frees a set of which no page is in use, and which nobody has mapped. */
void set_unbind(struct extent_set *set);

/* Frees a set with whatever is cached in it, because its namespace goes. Nobody has it mapped. */
void set_discard(struct extent_set *set);

/* What a page is taken for: GRANTED, with whom it is granted to (page.h), or MOVING. */
struct page_use {
        enum page_state state;
        uint32_t owner;
        uint32_t seq;
        uint64_t client;
};

/*
 * Takes a FREE page off the set's list, in its next generation; set_take_page(): the first, of a
 * list that isn't empty. Putting it back makes it FREE; go through ns_free_page(), which also gives
 * an idle set back.
 */
void set_take(struct extent_set *set, uint32_t page, const struct page_use *use);
uint32_t set_take_page(struct extent_set *set, const struct page_use *use);
void set_put_page(struct extent_set *set, uint32_t page);

/* What sets on a device are made of, for ns_geometry_of(). */
struct set_source pool_set_source(const struct pool *pool);

#endif
