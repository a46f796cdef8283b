/*
 * Regions of a pool: the memory that is reserved for tenants (pinned region), and the rest (dynamic
 * pool), which tenants share. Applies policy/share.h. Loop thread only.
 *
 *   budget = sum of reservations + dynamic pool
 *
 * A *stake* is one tenant's share of one pool: a reservation and the charged bytes. Bytes charged
 * beyond the reservation are *excess* and belong to the dynamic pool. Unused bytes of reservations
 * are kept free (*idle*), unless they are lent. Lower tiers have only a dynamic pool, and no lease
 * waits for them.
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

#include "daemon/core/state/stake.h"

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

/* Makes the stake of a tenant in a pool. Returns 0 or -ENOMEM. */
int stake_new(struct tenant *t, struct pool *pool);

/* Frees a stake without charges. */
void stake_free(struct stake *s);

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

/* Returns the most bytes that limits and reservations let the stake have, assuming that others give
 * memory back. */
uint64_t region_reach(const struct stake *s);

/* Would the stake stay within its reservation? Then it must get the memory, even if others hold it
 * now. */
bool region_is_reserved(const struct stake *s, uint64_t bytes);

/* Do all clients that may map memory of the stake use safe points? */
bool stake_is_safe(const struct stake *s);

/* All that limits, reservations and fair shares say about the growth of a stake at one time. */
struct admission {
        uint64_t n_sets;          /* how many of the requested sets may be bound together now */
        enum lease_reason reason; /* why not all of them may; NONE: all may */
        /* Which of limit, reservation (burst = none) and pool ends the growth first, if others give
         * all memory back. A limit at or above the device's budget is meant only for bytes charged
         * on other devices. */
        enum lease_reason nearest;
        uint64_t reach_bytes;  /* region_reach() */
        bool is_reserved;      /* region_is_reserved() for one set */
        bool keeps_to_reserve; /* stake_keeps_to_reserve() */
};

/* May the stake be charged `n_sets` sets of `set_bytes` more now for this claim? 0 sets: returns
 * the other fields, cheaply. Checks limit, budget, regions and waiting leases before the claim's;
 * fair shares if other stakes want memory. Evicts and recalls nothing. The answer holds until a
 * charge, limit or want changes. O(stakes of the pool). */
struct admission region_admit(
        const struct stake *s, uint64_t set_bytes, uint64_t n_sets, const struct claim *claim);

/* May the stake be charged `bytes` more now? Returns admission.reason. */
enum lease_reason region_admits(const struct stake *s, uint64_t bytes, const struct claim *claim);

/* Returns the bytes that the stake may be charged under limit, budget and reservations, if no other
 * stake gives memory back. Excludes memory that others reserve or lend. */
uint64_t region_free(const struct stake *s);

/* Would the pool's rule hold with `bytes` more charged to the stake? Ignores the limit. */
bool region_has_room(const struct stake *s, uint64_t bytes);

/* The stake was charged `bytes` more for this claim. Notes lent memory, and lowers
 * claim.given_bytes. */
void region_note_charge(struct stake *s, uint64_t bytes, struct claim *claim);

/* Returns the stake's present fair share of the dynamic pool, in bytes (policy/share.h). A stake
 * that wants memory counts as wanting all that it may have. */
uint64_t region_fair(const struct stake *s);

/* Returns the bytes that the pool lacks by its rule and that aren't lent: they must be taken back.
 */
uint64_t region_due(const struct pool *pool);

/* Backs reservations with memory that was freed. Memory that was lent isn't backed once its tenant
 * stops lending. */
void region_back(struct pool *pool);

/* Is the stake's tenant limited to its reservation? Lower tiers have no reservations. */
bool stake_keeps_to_reserve(const struct stake *s);

/* Would the stake be within its fair share with `bytes` more? */
bool region_deserves(const struct stake *s, uint64_t bytes);

/* Does any stake of the pool want a set that it is entitled to? */
bool region_any_deserves(const struct pool *pool);

/* A stake below its fair share may take a set from one that exceeds its own by a set or more. This
 * holds even if none is entitled to a whole set. The giver stays at or above its share; the taker
 * gets less than a set beyond. */
bool region_may_have(const struct stake *s, uint64_t bytes);

/* Returns the bytes that stakes want, are entitled to and lack, less the pool's free memory. far:
 * adds a set for each stake below its fair share. */
uint64_t region_wanted(const struct pool *pool, bool far);

/* Returns the stake that exceeds its fair share most, of those without is_skipped; NULL: none.
 * coming: doesn't count memory that is being taken back. far: it exceeds its share by a set or
 * more. */
struct stake *region_furthest_over(struct pool *pool, bool coming, bool far);

/* An input of the fair shares has changed. */
void region_changed(struct pool *pool);

/* The stake didn't get `bytes` in sets of `set_bytes`: it counts as wanting them for a second. */
void region_note_want(struct stake *s, uint64_t set_bytes, uint64_t bytes, uint64_t now_nsec);

/* Writes "b (4 GiB), c (1 GiB) and 2 more": the largest reservations on the pool (NULL: on all
 * pools), except that of `but`; "nobody" if there is none. Returns buf. */
#define REGION_HOLDERS_MAX 320
char *region_holders(const struct tenant *but, const struct pool *pool, char *buf, size_t size);

/* For the checker: returns an error's description, or NULL. */
const char *region_check(const struct pool *pool);

#endif
