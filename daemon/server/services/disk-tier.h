/*
 * The disks below devices (daemon/tier/disk.h): opened as configured, looked after by the loop, and
 * spoken of in the log when they fail. A disk that can't be had costs what lies on it, and nothing
 * else: kvleased starts, and goes on, without it. Loop thread only.
 */
#ifndef KVL_SERVER_DISK_TIER_H
#define KVL_SERVER_DISK_TIER_H

#include <stdbool.h>
#include <stdint.h>

struct server;
struct pool;
struct device_config;

/* Below `above`, where the device has a disk; blocks while its file is made. 0, also without it; or
 * -ENOMEM, -EINVAL, logged. */
int disk_tier_add(struct server *s, struct pool *above, const struct device_config *c);

/* The loop listens to all of them. 0 or -errno, logged. */
int disk_tiers_watch(struct server *s);

/* Called in each turn of the loop, after transfers. */
void disk_tiers_turn(struct server *s);

/* The loop is about to be closed. Safe to repeat. */
void disk_tiers_stop(struct server *s);

#endif
