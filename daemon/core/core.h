/*
 * The core as a whole: it is made, driven, emptied and ended here, by the server, the model test
 * and the fuzzers alike. What it consists of is in objects/store.h; which room is told of what, and
 * in which order, is in wiring.c. One thread.
 */
#ifndef KVL_CORE_CORE_H
#define KVL_CORE_CORE_H

#include "daemon/core/objects/store.h"

/* What lies on disks is durable, and stays there; pages are as they are. False: as store_deinit().
 */
bool store_close_disks(struct store *s);

/* A store without devices and tenants, whose namespaces have this policy where their tenant names
 * none. */
void store_init(struct store *s, const struct evict_ops *evict);

/* No members are left. Frees everything, and gives all memory back. False: a driver hangs, and the
 * thread that waits for it is left behind: the process should end by _exit(). */
bool store_deinit(struct store *s);

/* Adds a pool for the device, which it takes on success only. 0; -EEXIST: a pool with this device
 * name; -ENOMEM; -EINVAL (budget < one set of extent_bytes). */
int store_add_pool(struct store *s, struct device *device, uint64_t budget_bytes,
        uint64_t extent_bytes, struct detail *d);

/* The same as store_add_pool(), for a device behind a queue. */
int store_add_queue(struct store *s, struct queue *queue, uint64_t budget_bytes,
        uint64_t extent_bytes, struct detail *d);

/*
 * What is cold in `above`, a pool, goes to memory of the host from now on. Takes the device on
 * success only. It is before the first namespace of `above`, and `above` has nothing below it. 0;
 * -ENOMEM; -EINVAL (budget < one set of extent_bytes).
 */
int store_add_below(struct store *s, struct pool *above, struct device *device,
        uint64_t budget_bytes, uint64_t extent_bytes, struct detail *d);

/* The same as store_add_below(), for a disk, which it takes on success only. disk NULL: one that
 * can't be had now; no page goes there, and nothing is known of those that are there. */
int store_add_disk(struct store *s, struct pool *above, struct disk_file *disk,
        uint64_t budget_bytes, uint64_t extent_bytes, struct detail *d);

/* The policies of those namespaces have their turn (evict->work()) in which something happened
 * since the last call, or that had more to do in it. True: one has more to do now. */
bool store_policy_work(struct store *s, uint64_t now_nsec);

/* To be called after pool_reap(), once the leases that waited have been tried again: magazines that
 * were short get their pages, and what nobody needs is given back. */
void store_settle(struct store *s, const struct pool *pool, uint64_t now_nsec);

/* One step of background work (sweeping, expiry): at most twice `budget` page records. True while
 * there is more. */
bool store_work(struct store *s, uint32_t budget);

/* Drops all cached pages of a tenant, or of one namespace of it. `remove` also frees namespaces
 * that nobody has open; *ret_kept: those that it left, emptied, because clients have them open. 0
 * or -ENOMEM. */
int store_purge(struct store *s, struct tenant *t, struct ns *only, bool remove,
        uint64_t *ret_pages, uint64_t *ret_kept);

/*
 * Whole-state checker: every invariant of docs/ARCHITECTURE.md ("Life of a page"). 0 with what was
 * looked at; -EUCLEAN with the first violation in the sentence; -ENOMEM.
 */
int store_check(struct store *s, uint64_t *ret_pages, uint64_t *ret_sets, struct detail *d);

/*
 * The same in slices, between which anything may happen. What is counted of all pages of a
 * namespace is counted in one slice, and so is each of the structures that it has; the pages, sets
 * and slots are looked at one by one. Namespaces that are made meanwhile are left out.
 */
struct checker;
struct checker *checker_new(struct store *s); /* NULL: no memory */
void checker_free(struct checker *c);         /* NULL is ignored; before the store goes */

/* A slice of about so many looks at pages. 1: there is more; else as store_check(). */
int checker_go_on(struct checker *c, uint64_t budget, struct detail *d);

/* How many it has looked at. */
void checker_counts(const struct checker *c, uint64_t *ret_pages, uint64_t *ret_sets);

#endif
