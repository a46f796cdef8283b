/* Names of tiers in answers and in the log. */
#ifndef KVL_SERVER_TIER_NAME_H
#define KVL_SERVER_TIER_NAME_H

#include "policy/tier.h"

struct pool;

/* "device", "host" or "disk". Static. */
const char *tier_name(enum tier_kind kind);

/* Name of the pool's device, or of the device above a lower tier. Borrowed from it. */
const char *pool_device_name(const struct pool *pool);

#endif
