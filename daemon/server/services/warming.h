/* Warming at the start: fetches pages of the tags in tenants' option warm_tags from lower tiers
 * (daemon/core/reclaim/warm.h). */
#ifndef KVL_SERVER_WARMING_H
#define KVL_SERVER_WARMING_H

struct server;

/* Begins to warm the pages of tenants' warm_tags, after the previous daemon's state was
 * recovered. */
void warming_start(struct server *s);

#endif
