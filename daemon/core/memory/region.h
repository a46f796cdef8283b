/*
 * Regions of a pool: the memory that is reserved for tenants (pinned region), and the rest (dynamic
 * pool), which tenants share. Applies policy/share.h. Loop thread only.
 *
 *   budget = sum of reservations + dynamic pool
 *
 * A *share* is what one tenant has of one pool: a reservation and the charged bytes. Bytes charged
 * beyond the reservation are *borrowed* and belong to the dynamic pool. Unused bytes of
 * reservations are kept free (*idle*), unless they are lent. Lower tiers have only a dynamic pool,
 * and no lease waits for them.
 *
 * Rule: after every charge   charged of the pool + idle reserve <= budget.
 * A reservation that is raised while other tenants hold the memory breaks the rule until enough is
 * taken back from them: region_missing() bytes. Meanwhile no tenant grows beyond its reservation
 * there, and idle memory of older reservations isn't given to the new one.
 */
#ifndef KVL_CORE_REGION_H
#define KVL_CORE_REGION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/list.h"
#include "base/parse.h"
#include "daemon/core/state/pool.h"

struct account;
struct attach;
struct pool;
struct tenant;
struct ns;
struct detail;

/* The lease that memory is requested for. A claim of NULL is no lease: its memory comes after all
 * leases that are entitled to memory, or after all waiting leases. */
struct claim {
        const struct attach *lease; /* the lease's attachment; borrowed */
        uint64_t given_bytes;       /* own sets freed for it: it may bind as much, without regard to
                                       others */
};

/* Makes the share of a tenant in a pool. Returns 0 or -ENOMEM. */
int pool_share_new(struct tenant *t, struct pool *pool);

/* Frees a share without charges. */
void pool_share_free(struct pool_share *s);

/* Returns "quota", "reservation full", ...; static. */
const char *lease_reason_name(enum lease_reason r);

/* Returns the status of a refusal: KVL_STATUS_QUOTA, KVL_STATUS_RESERVATION, or KVL_STATUS_FULL for
 * all other reasons. */
int lease_reason_status(enum lease_reason r);

/* Returns the bytes of the pool that aren't reserved. */
uint64_t region_dynamic_bytes(const struct pool *pool);

/* Returns the bytes by which the rule above is broken: raised reservations whose memory others
 * hold, and lent memory. */
uint64_t region_missing(const struct pool *pool);

/* Returns the most bytes that limits and reservations let the share have, assuming that others give
 * memory back. */
uint64_t region_reach(const struct pool_share *s);

/* Would the share stay within its reservation? Then it must get the memory, even if others hold it
 * now. */
bool region_is_reserved(const struct pool_share *s, uint64_t bytes);

/* Do all clients that may map memory of the share use safe points? */
bool pool_share_is_safe(const struct pool_share *s);

/* All that limits, reservations and fair shares say about the growth of a share at one time. */
struct admission {
        uint64_t n_sets;          /* how many of the requested sets may be bound together now */
        enum lease_reason reason; /* why not all of them may; NONE: all may */
        /* Which of limit, reservation (burst = none) and pool ends the growth first, if others give
         * all memory back. A limit at or above the device's budget is meant only for bytes charged
         * on other devices. */
        enum lease_reason nearest;
        uint64_t reach_bytes;  /* region_reach() */
        bool is_reserved;      /* region_is_reserved() for one set */
        bool keeps_to_reserve; /* pool_share_keeps_to_reserve() */
};

/* May the share be charged `n_sets` sets of `set_bytes` more now for this claim? 0 sets: returns
 * the other fields, cheaply. Checks limit, budget, regions and waiting leases before the claim's;
 * fair shares if other shares want memory. Evicts and recalls nothing. The answer holds until a
 * charge, limit or want changes. O(shares of the pool). */
struct admission region_admit(
        const struct pool_share *s, uint64_t set_bytes, uint64_t n_sets, const struct claim *claim);

/* May the share be charged `bytes` more now? Returns admission.reason. */
enum lease_reason region_admits(
        const struct pool_share *s, uint64_t bytes, const struct claim *claim);

/* Returns the bytes that the share may be charged under limit, budget and reservations, if no other
 * share gives memory back. Excludes memory that others reserve or lend. */
uint64_t region_free(const struct pool_share *s);

/* Would the pool's rule hold with `bytes` more charged to the share? Ignores the limit. */
bool region_has_room(const struct pool_share *s, uint64_t bytes);

/* The share was charged `bytes` more for this claim. Notes lent memory, and lowers
 * claim.given_bytes. */
void region_note_charge(struct pool_share *s, uint64_t bytes, struct claim *claim);

/* Returns the present fair size of the share, in bytes of the dynamic pool (policy/share.h). A
 * share that wants memory counts as wanting all that it may have. */
uint64_t region_fair(const struct pool_share *s);

/* Returns the bytes that the pool lacks by its rule and that aren't lent: they must be taken back.
 */
uint64_t region_due(const struct pool *pool);

/* Backs reservations with memory that was freed. Memory that was lent isn't backed once its tenant
 * stops lending. */
void region_back(struct pool *pool);

/* Is the share's tenant limited to its reservation? Lower tiers have no reservations. */
bool pool_share_keeps_to_reserve(const struct pool_share *s);

/* Would the share be within its fair size with `bytes` more? */
bool region_deserves(const struct pool_share *s, uint64_t bytes);

/* Does any share of the pool want a set that it is entitled to? */
bool region_any_deserves(const struct pool *pool);

/* A share below its fair size may take a set from one that exceeds its own by a set or more. This
 * holds even if none is entitled to a whole set. The giver stays at or above its share; the taker
 * gets less than a set beyond. */
bool region_may_have(const struct pool_share *s, uint64_t bytes);

/* Returns the bytes that stakes want, are entitled to and lack, less the pool's free memory. far:
 * adds a set for each share below its fair size. */
uint64_t region_wanted(const struct pool *pool, bool far);

/* Returns the share that exceeds its fair size most, of those without is_skipped; NULL: none.
 * coming: doesn't count memory that is being taken back. far: it exceeds its share by a set or
 * more. */
struct pool_share *region_furthest_over(struct pool *pool, bool coming, bool far);

/* An input of the fair shares has changed. */
void region_changed(struct pool *pool);

/* The share didn't get `bytes` in sets of `set_bytes`: it counts as wanting them for a second. */
void region_note_want(struct pool_share *s, uint64_t set_bytes, uint64_t bytes, uint64_t now_nsec);

/* Writes "b (4 GiB), c (1 GiB) and 2 more": the largest reservations on the pool (NULL: on all
 * pools), except that of `but`; "no tenant" if there is none. Returns buf. */
#define REGION_HOLDERS_MAX 320
char *region_holders(const struct tenant *but, const struct pool *pool, char *buf, size_t size);

/* For the checker: returns an error's description, or NULL. */
const char *region_check(const struct pool *pool);

/* ---- charges --------------------------------------------------------------------------------- */

/* A charge (pool.h) is embedded in the object that it pays for and is dropped with it. No
 * other code changes an account, so usage can't drift. */

/* Charges the share, its account (the tenant's for the tier) and its pool, or none of them. Doesn't
 * check reservations and shares: use the functions above first. *c must be zero or dropped. Returns
 * 0; KVL_STATUS_QUOTA: the tenant's limit; KVL_STATUS_FULL: the pool's budget. */
int charge_take(struct charge *c, struct pool_share *share, uint64_t bytes);

/* Charges as charge_take() does, without checking limit and budget, for a set that the previous
 * daemon bound. */
void charge_adopt(struct charge *c, struct pool_share *share, uint64_t bytes);

/* Would `bytes` more stay within the limit? */
bool account_fits(const struct account *a, uint64_t bytes);

/* The tenant is freed before the memory that it paid for: from now on the charge is on the pool
 * alone. */
void charge_leave_tenant(struct charge *c);

/* Idempotent. */
void charge_drop(struct charge *c);

/* ---- evictions for other tenants ------------------------------------------------------------- */

/* The most names per victim; further ones are counted under "(others)". */
#define BLAME_MAX    64
#define BLAME_OTHERS "(others)"

/* Counts cached pages of one tenant that were evicted for leases of another. Counters run from the
 * start and are freed with the tenant that lost pages. */
struct blame {
        struct list_link link;        /* tenant.blames of the victim, appended: lists count them */
        char by[TENANT_NAME_MAX + 1]; /* "": no lease */
        uint64_t pages, sets;
};

/* Counts an eviction; without memory it isn't counted. by NULL: no lease caused it (a limit was
 * lowered, compaction, ...). */
void blame_note(struct tenant *victim, const struct tenant *by, uint64_t pages, uint64_t sets);

void blame_free(struct tenant *victim);

#endif
