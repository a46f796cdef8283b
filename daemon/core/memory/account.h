/*
 * Accounts and charges. An account has a limit and the charged bytes. A charge is embedded in the
 * object that it pays for (an extent set) and is dropped with it. No other code changes an account,
 * so usage can't drift. Loop thread only.
 */
#ifndef KVL_CORE_ACCOUNT_H
#define KVL_CORE_ACCOUNT_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/core/state/pool.h"

/* Charges the share, its account (the tenant's for the tier) and its pool, or none of them. Doesn't
 * check regions: ask region.h first. *c must be zero or dropped. Returns 0; KVL_STATUS_QUOTA: the
 * tenant's limit; KVL_STATUS_FULL: the pool's budget. */
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

#endif
