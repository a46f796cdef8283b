/* Pages that tenants' option warm_tags names are brought up from below their devices when the
 * daemon starts (daemon/core/tiers/warm.h). */
#ifndef KVL_SERVER_WARMING_H
#define KVL_SERVER_WARMING_H

struct server;

/* What the daemon before this one left is there: begins what tenants' warm_tags say. */
void warming_start(struct server *s);

#endif
