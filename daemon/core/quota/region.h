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

#include "base/list.h"
#include "policy/tier.h"

struct account;
struct pool;
struct tenant;
struct ns;
struct detail;

struct stake {
        struct list_link tenant_link, pool_link;
        struct tenant *tenant;     /* borrowed */
        struct pool *pool;         /* borrowed */
        struct account *account;   /* the tenant's of the pool's tier; borrowed */
        uint64_t reserve_bytes;    /* multiple of pool.extent_bytes */
        uint64_t charged_bytes;    /* sets bound, preparing, quarantined */
        uint64_t n_extents;        /* of these sets */
        uint64_t recalled_bytes;   /* of these: being taken back, and not quarantined */
        uint64_t wants_until_nsec; /* it got less than it wanted: until then it counts as wanting
                                      all it may have */
        uint64_t wanted_bytes;     /* what it lacked then, in whole sets */
        uint64_t wanted_set_bytes; /* of these sets */
        uint64_t unbacked_bytes;   /* of its idle reserve: others had it when it was reserved, or
                                      have it lent, or orphans do, and it hasn't come free since */
        uint64_t taken_back_nsec;  /* longest it took to get lent memory back; 0: never needed */
        uint64_t owed_since_nsec;  /* it waits for memory that is reserved for it; 0: it doesn't */
        uint64_t fair_bytes;       /* region_fair(), where fairness.is_fresh */
        uint64_t given_bytes;      /* own sets given back for the lease that is being tried: as much
                                      may be bound anew, whoever else deserves it */
        struct tier_claim sinking; /* sink.h: its turn to move pages down */
        bool lends;                /* unbacked_bytes takes into account that it does */
        bool is_skipped;           /* scratch of one call */
};

struct share_tenant;

/* Of a pool: room to work fair shares out in, as many entries as there are stakes. */
struct fairness {
        struct share_tenant *shares;
        uint64_t *fair;
        uint32_t *order;
        size_t n_stakes;
        bool is_fresh; /* stake.fair_bytes are right, until */
        uint64_t fresh_until_nsec;
};

/* One for each tenant and pool. 0 or -ENOMEM. */
int stake_new(struct tenant *t, struct pool *pool);

/* Nothing is charged to it. */
void stake_free(struct stake *s);

/* Never NULL for a tenant and a pool of one store. O(pools). */
struct stake *stake_find(const struct tenant *t, const struct pool *pool);

/* What a refusal, or a wait, is for: on the wire, in <kvlease.h> and for people. Never renumbered.
 */
enum lease_reason {
        LEASE_REASON_NONE = 0,
        LEASE_REASON_QUOTA = 1,            /* the tenant's limit */
        LEASE_REASON_RESERVATION_FULL = 2, /* burst = queue: it may not go beyond its reservation */
        LEASE_REASON_POOL_FULL = 3,        /* the dynamic pool */
        LEASE_REASON_DEADLINE = 4,         /* it has waited as long as it may */
        LEASE_REASON_DEGRADED = 5,         /* fewer pages than asked, by policy */
        LEASE_REASON_DRAINING = 6,
        LEASE_REASON_DEVICE = 7, /* memory is being made on the device; it failed to make it */
        LEASE_REASON_NO_RUN = 8, /* enough is free, but not with consecutive numbers */
};
#define LEASE_REASONS 9

/* "quota", "reservation full", ...; static. */
const char *lease_reason_name(enum lease_reason r);

/* Excess: what a stake has of the dynamic pool. */
static inline uint64_t stake_excess(const struct stake *s)
{
        return s->charged_bytes > s->reserve_bytes ? s->charged_bytes - s->reserve_bytes : 0;
}

/* Reserved and not held. */
static inline uint64_t stake_idle(const struct stake *s)
{
        return s->reserve_bytes > s->charged_bytes ? s->reserve_bytes - s->charged_bytes : 0;
}

/* Size of the dynamic pool: what isn't reserved. */
uint64_t region_dynamic_bytes(const struct pool *pool);

/* By how much the rule above is broken: reservations that were raised over what others hold, and
 * what is lent. */
uint64_t region_missing(const struct pool *pool);

/* Most that may be charged to the stake as limits and reservations are, whoever gives way. */
uint64_t region_reach(const struct stake *s);

/* Which of limit, reservation (burst = queue) and pool would end it first, whoever gives way. A
 * limit that isn't below the device's budget is named only for what is charged elsewhere. */
enum lease_reason region_nearest(const struct stake *s);

/* Would it still be within its reservation? Then it is to have them, whoever has the memory now. */
bool region_is_reserved(const struct stake *s, uint64_t bytes);

/* Do all clients that may map memory of the stake keep safe points? */
bool stake_is_safe(const struct stake *s);

/*
 * May the stake be charged `bytes` more now? Looks at limit, budget, regions, fair share where
 * others want memory, too, and at leases that wait and come before store.asking; evicts and recalls
 * nothing. LEASE_REASON_NONE: yes. O(stakes of the pool).
 */
enum lease_reason region_admits(const struct stake *s, uint64_t bytes);

/* Bytes that may be charged to the stake, as far as limit, budget and reservations go, without
 * anybody giving way: neither what others have reserved nor what they lend. */
uint64_t region_free(const struct stake *s);

/* Would the pool's rule still hold with `bytes` more charged to it? Whatever the limit says. */
bool region_has_room(const struct stake *s, uint64_t bytes);

/* It was charged `bytes` more: what is lent is noted. */
void region_note_charge(struct stake *s, uint64_t bytes);

/*
 * Fair share of the stake in the dynamic pool now, in bytes (policy/share.h; who wants counts as
 * wanting all it may have).
 */
uint64_t region_fair(const struct stake *s);

/* Something that fair shares depend on has changed. */
void region_changed(struct pool *pool);

/* It didn't get what it wanted, `bytes` in sets of `set_bytes`: until a second from now it counts
 * as wanting. */
void region_note_want(struct stake *s, uint64_t set_bytes, uint64_t bytes, uint64_t now_nsec);

/*
 * Memory for a stake that is within its reservation, or deserves `bytes` more by fair share:
 * unmapped sets of who is furthest over go at once; of mapped ones whose clients all keep safe
 * points as many are recalled as are missing of stake.wanted_bytes (soft: recall.h). Nothing where
 * it is neither. region_note_want() was called. Nothing of `spare` goes (NULL: none). True where
 * bytes are admitted now.
 */
bool region_make_room(struct stake *s, const struct ns *spare, uint64_t bytes);

/*
 * Reserves `bytes`, rounded up to extent_bytes, for the stake. 0; -ENOSPC: it doesn't fit the
 * budget beside the other reservations, with a sentence that says how much is left and who holds
 * it. Takes effect at once; memory that others hold of it is taken back by region_work().
 */
int region_reserve(struct stake *s, uint64_t bytes, struct detail *d);

/* "b (4 GiB), c (1 GiB) and 2 more": for whom most is reserved on the pool (NULL: on all) beside
 * `but`; "nobody". Returns buf. */
#define REGION_HOLDERS_MAX 320
char *region_holders(const struct tenant *but, const struct pool *pool, char *buf, size_t size);

/*
 * Takes back what is missing of reservations, and of lent ones what is wanted: unmapped sets of who
 * is furthest over at once; mapped ones are recalled, softly where all clients keep safe points,
 * else with a deadline, which a soft recall gets, too, where it takes more than a second. Cheap
 * where nothing is missing.
 */
void region_work(struct pool *pool);

/* For the checker: what is wrong, or NULL. */
const char *region_check(const struct pool *pool);

#endif
