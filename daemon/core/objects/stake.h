/*
 * What tenants have and may have, as objects. An account has a limit and what is charged to it; a
 * charge is embedded in what it pays for (an extent set). A stake is what one tenant has in one
 * pool. How they change: quota/account.h, quota/region.h.
 */
#ifndef KVL_CORE_STAKE_H
#define KVL_CORE_STAKE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/list.h"
#include "policy/tier.h"

struct pool;
struct share_tenant;
struct tenant;

struct account {
        uint64_t limit_bytes;
        uint64_t charged_bytes; /* may exceed the limit only after the limit was lowered, or
                                   by what is held up (discard.h) */
};

struct stake;

struct charge {
        struct account *tenant, *pool; /* borrowed; NULL: not taken, or not any more */
        struct stake *stake;           /* borrowed; NULL with `tenant` */
        uint64_t bytes;
};

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
        struct tier_claim sinking; /* sink.h: its turn to move pages down */
        bool lends;                /* unbacked_bytes takes into account that it does */
        bool is_skipped;           /* scratch of one call */
};

/* Of a pool: room to work fair shares out in, as many entries as there are stakes. */
struct fairness {
        struct share_tenant *shares;
        uint64_t *fair;
        uint32_t *order;
        size_t n_stakes;
        bool is_fresh; /* stake.fair_bytes are right, until */
        uint64_t fresh_until_nsec;
};

/* What a refusal, or a wait, is for: on the wire, in <kvlease.h> and for people. Never renumbered.
 */
enum lease_reason {
        LEASE_REASON_NONE = 0,
        LEASE_REASON_QUOTA = 1,            /* the tenant's limit */
        LEASE_REASON_RESERVATION_FULL = 2, /* burst = none: it may not go beyond its reservation */
        LEASE_REASON_POOL_FULL = 3,        /* the dynamic pool */
        LEASE_REASON_DEADLINE = 4,         /* it has waited as long as it may */
        LEASE_REASON_DEGRADED = 5,         /* fewer pages than asked, by policy */
        LEASE_REASON_DRAINING = 6,
        LEASE_REASON_DEVICE = 7, /* memory is being made on the device; it failed to make it */
        LEASE_REASON_NO_RUN = 8, /* enough is free, but not with consecutive numbers */
};
#define LEASE_REASONS 9

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

#endif
