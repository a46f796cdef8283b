/* What a tier is called in answers and in the log. */
#ifndef KVL_SERVER_TIER_NAME_H
#define KVL_SERVER_TIER_NAME_H

#include "policy/tier.h"

/* "device", "host" or "disk". Static. */
const char *tier_name(enum tier_kind kind);

#endif
