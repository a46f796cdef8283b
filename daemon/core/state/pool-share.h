/*
 * The accounts of tenants. An account has a limit and the charged bytes. A charge is embedded in
 * the object that it pays for (an extent set). A share is what a tenant has of one pool.
 * memory/account.h and memory/region.h have the functions.
 */
#ifndef KVL_CORE_POOL_SHARE_H
#define KVL_CORE_POOL_SHARE_H

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
        uint64_t charged_bytes; /* exceeds the limit only after the limit was lowered, or by memory
                                   that is held up (discard.h) */
};

struct pool_share;

struct charge {
        struct account *tenant, *pool; /* borrowed; NULL: nothing is charged */
        struct pool_share *share;      /* borrowed; NULL if `tenant` is */
        uint64_t bytes;
};

struct pool_share {
        struct list_link tenant_link, pool_link;
        struct tenant *tenant;      /* borrowed */
        struct pool *pool;          /* borrowed */
        struct account *account;    /* the tenant's for the pool's tier; borrowed */
        uint64_t reserve_bytes;     /* multiple of pool.extent_bytes */
        uint64_t charged_bytes;     /* sets bound, preparing, quarantined */
        uint64_t n_extents;         /* in these sets */
        uint64_t recalled_bytes;    /* of these: being taken back, not quarantined */
        uint64_t wants_until_nsec;  /* the tenant got less than it wanted: until then it counts as
                                       wanting all that it may have */
        uint64_t wanted_bytes;      /* what it lacked then, in whole sets */
        uint64_t wanted_set_bytes;  /* size of these sets */
        uint64_t unbacked_bytes;    /* idle reserve that isn't free: in use by others when it was
                                       reserved, or lent, or held by orphans */
        uint64_t taken_back_nsec;   /* the longest time to get lent memory back; 0: never needed */
        uint64_t owed_since_nsec;   /* since when it waits for its reserved memory; 0: it doesn't */
        uint64_t fair_bytes;        /* region_fair(), if fairness.is_fresh */
        struct tier_claim demoting; /* demote.h: its turn to demote pages */
        bool lends;                 /* unbacked_bytes takes its lending into account */
        bool is_skipped;            /* scratch of one call */
};

/* A pool's scratch memory to compute fair shares; has an entry for each share. */
struct fairness {
        struct share_tenant *shares;
        uint64_t *fair;
        uint32_t *order;
        size_t n_shares;
        bool is_fresh; /* share.fair_bytes are valid */
        uint64_t fresh_until_nsec;
};

/* Why a lease is refused or waits: on the wire, in <kvlease.h> and for people. Never renumbered. */
enum lease_reason {
        LEASE_REASON_NONE = 0,
        LEASE_REASON_QUOTA = 1,            /* the tenant's limit */
        LEASE_REASON_RESERVATION_FULL = 2, /* burst = none: not beyond the reservation */
        LEASE_REASON_POOL_FULL = 3,        /* the dynamic pool */
        LEASE_REASON_DEADLINE = 4,         /* it has waited for its longest time */
        LEASE_REASON_DEGRADED = 5,         /* fewer pages than asked for, by policy */
        LEASE_REASON_DRAINING = 6,
        LEASE_REASON_DEVICE = 7, /* the device is making memory, or failed to */
        LEASE_REASON_NO_RUN = 8, /* enough pages are free, but not consecutive */
};
#define LEASE_REASONS 9

/* Returns the bytes that a share has borrowed from the dynamic pool. */
static inline uint64_t pool_share_borrowed(const struct pool_share *s)
{
        return s->charged_bytes > s->reserve_bytes ? s->charged_bytes - s->reserve_bytes : 0;
}

/* Returns the bytes reserved and not held. */
static inline uint64_t pool_share_idle(const struct pool_share *s)
{
        return s->reserve_bytes > s->charged_bytes ? s->reserve_bytes - s->charged_bytes : 0;
}

#endif
