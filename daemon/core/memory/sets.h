/*
 * Binds and unbinds extent sets, and takes pages from them. state/pool.h says what sets and pools
 * are. Loop thread only.
 */
#ifndef KVL_CORE_SETS_H
#define KVL_CORE_SETS_H

#include "daemon/core/state/pool.h"

struct claim;

/*
 * Binds the lowest free set slot of the namespace's tier, with charge, extents and page records, if
 * the region admits it for the claim (memory/region.h; NULL: for no lease). Returns 0 with
 * *ret_set; KVL_STATUS_QUOTA, KVL_STATUS_RESERVATION; KVL_STATUS_FULL (also if no slot is left);
 * -ENOMEM, or -EIO from the device. Nothing changes on failure. With a queue it returns
 * -EINPROGRESS: the set is PREPARING. pool_reap() binds it later, or stores the failure in
 * ns.waits.failure for a waiting lease.
 */
int set_bind_in(struct ns *ns, enum tier_kind kind, struct claim *claim,
        struct extent_set **ret_set, struct detail *d);

/* Does what set_bind_in() does, for the device's tier. */
int set_bind(struct ns *ns, struct claim *claim, struct extent_set **ret_set, struct detail *d);

/* Binds a set that the previous daemon had bound, with its extents; they are taken on success only
 * (`extents` has their handles if the pool has a queue). The caller counts its page records, which
 * are unchanged, and lists its FREE pages. Returns 0 or -ENOMEM. */
int set_adopt(struct ns *ns, uint32_t index, uint32_t first_extent,
        const struct job_extent *extents, struct extent_set **ret_set);

/* Recovery of a set: puts a FREE page at the head of the list of FREE pages. */
void set_list_page(struct extent_set *set, uint32_t page);

/* Recovery of a set: its list of FREE pages is complete. */
void set_adopted(struct extent_set *set);

/* Handles finished jobs of the pool's queue: binds sets that were made, and frees those that
 * failed. Then retry waiting leases in order, and call store_top_up(). Returns the number of jobs.
 */
unsigned pool_reap(struct pool *pool);

/* The namespace of a PREPARING set is freed: the set is destroyed once it is made. */
void set_orphan(struct extent_set *set);

/* Frees orphans after the queue has ended without reporting them. */
void pool_forget_orphans(struct pool *pool);

/* Exports the n-th extent for another process; the caller closes the handle. Returns 0 or -errno.
 */
int set_export(const struct extent_set *set, uint32_t n, struct extent_handle *ret_handle);

/* Returns the address of a page's bytes in one plane; for an encoded page, of all planes' bytes.
 * Maps the whole set until it is freed. Only for host memory without a queue. NULL: no memory, or
 * no address space. */
uint8_t *set_address(struct extent_set *set, uint32_t page, uint32_t plane);

/* Frees a set without pages in use that no client has mapped. */
void set_unbind(struct extent_set *set);

/* Frees a set with its cached pages, because its namespace is freed. No client has it mapped. */
void set_discard(struct extent_set *set);

/* The use of a page that is taken: GRANTED with its holder (page.h), or MOVING. */
struct page_use {
        enum page_state state;
        uint32_t owner;
        uint32_t seq;
        uint64_t client;
};

/* Takes a FREE page off the set's list and advances its generation. set_take_page() takes the first
 * of a list that isn't empty. set_put_page() makes the page FREE again; call ns_free_page()
 * instead, which also frees an idle set. */
void set_take(struct extent_set *set, uint32_t page, const struct page_use *use);
uint32_t set_take_page(struct extent_set *set, const struct page_use *use);
void set_put_page(struct extent_set *set, uint32_t page);

/* Returns the device's requirements for ns_geometry_of(). */
struct set_source pool_set_source(const struct pool *pool);

#endif
