/*
 * From a tenant's options to what the core is told: checks that no single option can make, and the
 * attributes that follow.
 */
#ifndef KVL_SERVER_TENANT_ATTRS_H
#define KVL_SERVER_TENANT_ATTRS_H

#include "daemon/core/ground/detail.h"
#include "daemon/core/objects/tenant.h"
#include "daemon/server/settings/config.h"

struct store;
struct warm_request;

/* Do the options go together, with each other and with the daemon's? Asks no device. 0, or -EINVAL
 * with the sentence. */
int tenant_config_check(
        const struct tenant_config *c, const struct daemon_config *daemon, struct detail *d);

/* "pack", "spread", "device=NAME". *ret_device: NAME within text, "" with the others. 0 or -EINVAL.
 */
int placement_parse(const char *text, enum place_policy *ret_policy, const char **ret_device);

/* What reserve_min and reserve_max stand for, where they are auto, too. */
uint64_t tenant_reserve_min(const struct tenant_config *c);
uint64_t tenant_reserve_max(const struct tenant_config *c);

/* Reads the option warm_tags: numbers from 1, separated by spaces or commas. 0, or -EINVAL. */
int tenant_parse_warm_tags(const char *text, struct warm_request *ret);

/*
 * The attributes of a tenant whose options go together, its limit cut to `budget_bytes`, what all
 * pools of the store have. 0;
 * -ENODEV: it is placed on a device that isn't owned (both are set all the same); -EINVAL: a
 * reserve_max below one extent. With the sentence.
 */
int tenant_attrs_of(struct store *s, uint64_t budget_bytes, const struct tenant_config *c,
        struct tenant_attrs *ret_attrs, struct sizing_attrs *ret_sizing, struct detail *d);

#endif
