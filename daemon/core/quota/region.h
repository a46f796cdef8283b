/*
 * Regions of a pool: what is reserved for tenants (the pinned region), and the rest (the dynamic
 * pool), which is shared. Applies policy/share.h. Loop thread only.
 *
 *   budget = sum of reservations + dynamic pool
 *
 * A *stake* is what one tenant has in one pool: a reservation and what is charged to it there. What
 * is charged beyond the reservation is *excess* and of the dynamic pool. Bytes of reservations that
 * nobody holds are kept free (*idle*), unless they are lent. Below devices nothing is reserved, and
 * no lease waits: all is the dynamic pool.
 *
 * Rule: after every charge   charged of the pool + idle reserve <= budget.
 * A reservation that was raised while others held the memory breaks it until enough was taken back
 * from them: region_missing() bytes; meanwhile nobody grows beyond a reservation there, and what is
 * idle of older reservations isn't bound for the new one.
 */
#ifndef KVL_CORE_REGION_H
#define KVL_CORE_REGION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/core/objects/stake.h"

struct account;
struct attach;
struct pool;
struct tenant;
struct ns;
struct detail;

/* For whom memory is asked: a lease that is being tried. A claim of NULL is nobody's lease: such
 * memory comes after all leases that deserve it, or after all that wait. */
struct claim {
        const struct attach *lease; /* whose lease it is; borrowed */
        uint64_t given_bytes;       /* sets of its own stake that were given back for it: as much
                                       may be bound anew, whoever else deserves it */
};

/* One for each tenant and pool. 0 or -ENOMEM. */
int stake_new(struct tenant *t, struct pool *pool);

/* Nothing is charged to it. */
void stake_free(struct stake *s);

/* "quota", "reservation full", ...; static. */
const char *lease_reason_name(enum lease_reason r);

/* What a lease is refused with for want of memory: KVL_STATUS_QUOTA, KVL_STATUS_RESERVATION, else
 * KVL_STATUS_FULL. */
int lease_reason_status(enum lease_reason r);

/* Size of the dynamic pool: what isn't reserved. */
uint64_t region_dynamic_bytes(const struct pool *pool);

/* By how much the rule above is broken: reservations that were raised over what others hold, and
 * what is lent. */
uint64_t region_missing(const struct pool *pool);

/* Most that may be charged to the stake as limits and reservations are, whoever gives way. */
uint64_t region_reach(const struct stake *s);

/* Which of limit, reservation (burst = none) and pool would end it first, whoever gives way. A
 * limit that isn't below the device's budget is named only for what is charged elsewhere. */
enum lease_reason region_nearest(const struct stake *s);

/* Would it still be within its reservation? Then it is to have them, whoever has the memory now. */
bool region_is_reserved(const struct stake *s, uint64_t bytes);

/* Do all clients that may map memory of the stake keep safe points? */
bool stake_is_safe(const struct stake *s);

/*
 * May the stake be charged `bytes` more now, for this claim? Looks at limit, budget, regions, fair
 * share where others want memory, too, and at leases that wait and come before the claim's; evicts
 * and recalls nothing. LEASE_REASON_NONE: yes. O(stakes of the pool).
 */
enum lease_reason region_admits(const struct stake *s, uint64_t bytes, const struct claim *claim);

/* Bytes that may be charged to the stake, as far as limit, budget and reservations go, without
 * anybody giving way: neither what others have reserved nor what they lend. */
uint64_t region_free(const struct stake *s);

/* Would the pool's rule still hold with `bytes` more charged to it? Whatever the limit says. */
bool region_has_room(const struct stake *s, uint64_t bytes);

/* The stake was charged `bytes` more, for this claim: what is lent is noted, and what the claim may
 * still have bound anew. */
void region_note_charge(struct stake *s, uint64_t bytes, struct claim *claim);

/*
 * Fair share of the stake in the dynamic pool now, in bytes (policy/share.h; who wants counts as
 * wanting all it may have).
 */
uint64_t region_fair(const struct stake *s);

/* What the pool lacks by its rule and doesn't lend: it is to be taken back. */
uint64_t region_due(const struct pool *pool);

/* What came free backs the reservations that aren't backed. What was lent isn't backed when it is
 * no more to be lent. */
void region_back(struct pool *pool);

/* Is the stake's tenant one that may not go beyond its reservation? Nothing is reserved below
 * devices. */
bool stake_keeps_to_reserve(const struct stake *s);

/* Is the stake within its fair share with `bytes` more? */
bool region_deserves(const struct stake *s, uint64_t bytes);

/* Does any stake of the pool want a set that it deserves? */
bool region_any_deserves(const struct pool *pool);

/*
 * Where nobody deserves a whole set, but one has a set too much: who has less than its fair share
 * may have it. The one isn't below its share after, the other less than a set over.
 */
bool region_may_have(const struct stake *s, uint64_t bytes);

/* What those stakes lack that want memory and deserve it, and that isn't there. far: a set for each
 * of those that have less than their share. */
uint64_t region_wanted(const struct pool *pool, bool far);

/* The stake that is furthest over its fair share, of those without is_skipped. coming: what is
 * being taken back from it counts as gone; far: it is over by a set or more. NULL: there is none.
 */
struct stake *region_furthest_over(struct pool *pool, bool coming, bool far);

/* Something that fair shares depend on has changed. */
void region_changed(struct pool *pool);

/* The stake didn't get what it wanted, `bytes` in sets of `set_bytes`: until a second from now it
 * counts as wanting. */
void region_note_want(struct stake *s, uint64_t set_bytes, uint64_t bytes, uint64_t now_nsec);

/* "b (4 GiB), c (1 GiB) and 2 more": for whom most is reserved on the pool (NULL: on all) beside
 * `but`; "nobody". Returns buf. */
#define REGION_HOLDERS_MAX 320
char *region_holders(const struct tenant *but, const struct pool *pool, char *buf, size_t size);

/* For the checker: what is wrong, or NULL. */
const char *region_check(const struct pool *pool);

#endif
