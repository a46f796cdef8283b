/* From a tenant's options, which go together (tenant-check.h), to what the core is told. */
#ifndef KVL_SERVER_TENANT_ATTRS_H
#define KVL_SERVER_TENANT_ATTRS_H

#include "daemon/core/ground/detail.h"
#include "daemon/core/objects/tenant.h"
#include "daemon/server/settings/config.h"

struct store;

/*
 * The attributes of a tenant whose options go together, its limit cut to `budget_bytes`, what all
 * pools of the store have. 0; -ENODEV: it is placed on a device that isn't owned
 * (both are set all the same); -EINVAL: a reserve_max below one extent. With the sentence.
 */
int tenant_attrs_of(struct store *s, uint64_t budget_bytes, const struct tenant_config *c,
        struct tenant_attrs *ret_attrs, struct sizing_attrs *ret_sizing, struct detail *d);

#endif
