/*
 * The core as a whole: the server, the model test and the fuzzers make, drive, empty and end it
 * with these functions. state/store.h declares its parts. wiring.c says which module is notified
 * of which event, and in which order. One thread.
 */
#ifndef KVL_CORE_CORE_H
#define KVL_CORE_CORE_H

#include "daemon/core/state/store.h"

/* Writes all pending state to the disks and closes them; pages keep their state. Returns false as
 * store_deinit() does. */
bool store_close_disks(struct store *s);

/* Makes a store without devices and tenants. Its namespaces get this policy unless their tenant
 * names another. */
void store_init(struct store *s, const struct evict_ops *evict);

/* The store has no members. Frees everything and gives all memory back. Returns false if a driver
 * hangs: the thread that waits for the driver is left behind, so the process should end with
 * _exit(). */
bool store_deinit(struct store *s);

/* Adds a pool for the device and takes ownership of the device on success only. Returns 0; -EEXIST:
 * a pool has this device name; -ENOMEM; -EINVAL: budget < one set of extent_bytes. */
int store_add_pool(struct store *s, struct device *device, uint64_t budget_bytes,
        uint64_t extent_bytes, struct detail *d);

/* Does what store_add_pool() does, for a device behind a queue. */
int store_add_queue(struct store *s, struct queue *queue, uint64_t budget_bytes,
        uint64_t extent_bytes, struct detail *d);

/* Adds host memory below the pool `above`; cold pages of `above` are demoted there. Takes ownership
 * of the device on success only. Call it before the first namespace of `above` is made and while
 * `above` has no lower tier. Returns 0; -ENOMEM; -EINVAL: budget < one set of extent_bytes. */
int store_add_below(struct store *s, struct pool *above, struct device *device,
        uint64_t budget_bytes, uint64_t extent_bytes, struct detail *d);

/* Does what store_add_below() does, for a disk. disk NULL: the disk isn't available now; no page is
 * demoted there, and nothing is known of the pages on it. */
int store_add_disk(struct store *s, struct pool *above, struct disk_file *disk,
        uint64_t budget_bytes, uint64_t extent_bytes, struct detail *d);

/* Calls evict->work() for each namespace with an event since the last call, or with work left over.
 * Returns true if one has more to do now. */
bool store_policy_work(struct store *s, uint64_t now_nsec);

/* Call this after pool_reap(), once the leases that waited have been tried again. Fills magazines
 * that lacked pages, and gives back memory that no lease needs. */
void store_top_up(struct store *s, const struct pool *pool, uint64_t now_nsec);

/* Does one step of background work (sweep, expiry), of at most twice `budget` page records. Returns
 * true while there is more. */
bool store_work(struct store *s, uint32_t budget);

/* Drops all cached pages of a tenant, or of its namespace `only`. `remove` also frees namespaces
 * that no client has open; *ret_kept counts those that were only emptied because clients have them
 * open. Returns 0 or -ENOMEM. */
int store_purge(struct store *s, struct tenant *t, struct ns *only, bool remove,
        uint64_t *ret_pages, uint64_t *ret_kept);

/* Checks every invariant of docs/develop/ARCHITECTURE.md ("Life of a page"). Returns 0 with the
 * numbers of pages and sets checked; -EUCLEAN with the first violation in *d; -ENOMEM. */
int store_check(struct store *s, uint64_t *ret_pages, uint64_t *ret_sets, struct detail *d);

/* Does the same check in slices; the store may change between two slices. Totals over all pages of
 * a namespace, and each of its structures, are checked within one slice; pages, sets and slots one
 * by one. Namespaces that are made after the check began are left out. */
struct checker;
struct checker *checker_new(struct store *s); /* NULL: no memory */
void checker_free(struct checker *c); /* NULL is ignored; call it before the store is freed */

/* Does a slice that looks at about `budget` pages. Returns 1 if there is more, else as
 * store_check(). */
int checker_go_on(struct checker *c, uint64_t budget, struct detail *d);

/* Returns the numbers of pages and sets checked so far. */
void checker_counts(const struct checker *c, uint64_t *ret_pages, uint64_t *ret_sets);

#endif
