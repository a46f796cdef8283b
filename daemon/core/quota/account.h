/*
 * Quotas as objects. An account has a limit and what is charged to it; a charge is embedded in what
 * it pays for (an extent set), and dropping the charge with it un-charges. Nothing else changes an
 * account, so usage can't drift. Loop thread only.
 */
#ifndef KVL_CORE_ACCOUNT_H
#define KVL_CORE_ACCOUNT_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/core/objects/stake.h"

/*
 * Charges the stake, its account (the tenant's of that tier) and its pool, or none. 0;
 * KVL_STATUS_QUOTA: the tenant's limit; KVL_STATUS_FULL: the pool's budget. Regions are region.h's
 * matter, which is asked before. *c must be zero or dropped.
 */
int charge_take(struct charge *c, struct stake *stake, uint64_t bytes);

/* The same as charge_take() for what is held as it is, whatever the tenant's limit and its budget
 * say by now: a set that the daemon before this one bound. */
void charge_adopt(struct charge *c, struct stake *stake, uint64_t bytes);

/* Would `bytes` more stay within the limit? */
bool account_fits(const struct account *a, uint64_t bytes);

/* The tenant goes, what it paid for doesn't yet: the pool alone stays charged. */
void charge_leave_tenant(struct charge *c);

/* Safe to repeat. */
void charge_drop(struct charge *c);

#endif
