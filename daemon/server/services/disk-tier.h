/*
 * The disk tiers below devices (daemon/tier/disk.h): opens them as configured, serves them in the
 * loop, logs their failures. A disk that fails costs only the pages on it: kvleased starts and
 * continues without it. Loop thread only.
 */
#ifndef KVL_SERVER_DISK_TIER_H
#define KVL_SERVER_DISK_TIER_H

#include <stdbool.h>
#include <stdint.h>

struct server;
struct pool;
struct device_config;

/* Adds the disk below `above`, if one is configured; blocks while its file is made. Returns 0 (also
 * without a disk), or -ENOMEM, -EINVAL, logged. */
int disk_tier_add(struct server *s, struct pool *above, const struct device_config *c);

/* Starts listening to all disks. Returns 0, or -errno, logged. */
int disk_tiers_watch(struct server *s);

/* Called in each turn of the loop, after transfers. */
void disk_tiers_turn(struct server *s);

/* Called before the loop is closed. Idempotent. */
void disk_tiers_stop(struct server *s);

#endif
