/* Named pages are brought up from below their devices (daemon/core/tiers/warm.h): those of a
 * tenant's option when the daemon starts, and ADMIN_WARM. */
#ifndef KVL_SERVER_WARMING_H
#define KVL_SERVER_WARMING_H

#include "daemon/core/tiers/warm.h"

struct server;

/* Numbers > 0 separated by spaces or commas, at most WARM_MAX_TAGS of them, into ret->tags. 0;
 * -EINVAL. */
int warming_parse_tags(const char *text, struct warm_request *ret);

/* What the daemon before this one left is there: begins what tenants' warm_tags say. */
void warming_start(struct server *s);

#endif
