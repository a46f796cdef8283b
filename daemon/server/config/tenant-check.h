/*
 * Checks that span several options of a tenant, and parsing of options that are written as text.
 * Uses no device and no state of the running daemon. Any thread.
 */
#ifndef KVL_SERVER_TENANT_CHECK_H
#define KVL_SERVER_TENANT_CHECK_H

#include "daemon/core/state/detail.h"
#include "daemon/core/state/tenant.h"
#include "daemon/server/config/config.h"

struct warm_request;

/* Checks that the options are consistent, with each other and with the daemon's. Returns 0, or
 * -EINVAL with the sentence. */
int tenant_config_check(
        const struct tenant_config *c, const struct daemon_config *daemon, struct detail *d);

/* tenant_config_check() that reports every error, with its option. */
typedef void (*tenant_check_fn)(void *data, const char *key, const char *sentence);
void tenant_config_check_all(const struct tenant_config *c, const struct daemon_config *daemon,
        tenant_check_fn fn, void *data);

/* Reasons why a tenant can't hold an extent set of any device. */
enum small_cause {
        SMALL_LIMIT,   /* its limit is less */
        SMALL_RESERVE, /* burst = none, and its reservation is less */
        SMALL_OTHERS,  /* the rest beside the reservations of others is less */
};

/* True if a sizer or a schedule changes the reservation, so that its current size is temporary. */
bool tenant_reserve_is_moved(const struct tenant_config *c);

/* Sets the sentence that all leases of the tenant are refused, with the remedy. `most_bytes`: the
 * most it may have, of `device` (NULL: not known by name). Returns -ENOSPC. */
int tenant_refuse_small(const struct tenant_config *c, enum small_cause cause, uint64_t most_bytes,
        const char *device, uint64_t extent_bytes, struct detail *d);

/* Parses "pack", "spread", "device=NAME". *ret_device: NAME within text, else "". Returns 0 or
 * -EINVAL. */
int placement_parse(const char *text, enum place_policy *ret_policy, const char **ret_device);

/* Values of reserve_min and reserve_max, with `auto` resolved. */
uint64_t tenant_reserve_min(const struct tenant_config *c);
uint64_t tenant_reserve_max(const struct tenant_config *c);

/* Reads the option warm_tags: numbers from 1, separated by spaces or commas. Returns 0 or
 * -EINVAL. */
int tenant_parse_warm_tags(const char *text, struct warm_request *ret);

#endif
