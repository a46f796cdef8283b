/* Converts a tenant's checked options (tenant-check.h) to attributes of the core. */
#ifndef KVL_SERVER_TENANT_ATTRS_H
#define KVL_SERVER_TENANT_ATTRS_H

#include "daemon/core/state/detail.h"
#include "daemon/core/state/tenant.h"
#include "daemon/server/config/config.h"

struct store;

/*
 * Makes the attributes of a tenant with consistent options. Its limit is cut to `budget_bytes`, the
 * size of all pools of the store. Returns 0; -ENODEV: its device isn't owned (both results are set
 * all the same); -EINVAL: a reserve_max below one extent. Errors come with the sentence.
 */
int tenant_attrs_of(struct store *s, uint64_t budget_bytes, const struct tenant_config *c,
        struct tenant_attrs *ret_attrs, struct sizing_attrs *ret_sizing, struct detail *d);

#endif
