/*
 * Tenants are made, changed and ended. What a tenant is: objects/tenant.h. Loop thread only.
 */
#ifndef KVL_CORE_LIFETIMES_TENANT_H
#define KVL_CORE_LIFETIMES_TENANT_H

#include "daemon/core/objects/tenant.h"

/* Makes a tenant. 0; -EEXIST; -EINVAL (name, range; a reservation of a dynamic tenant, or beyond
 * the limit); -ENOSPC, -ENOENT: as tenant_reserve(); -ENOMEM. */
int tenant_new(struct store *s, const char *name, const struct tenant_attrs *attrs,
        struct tenant **ret_tenant, struct detail *d);

/*
 * Takes effect at once: nothing new is bound beyond a lower limit, in each tier. Where more is
 * charged, idle sets are given back and cached pages evicted in sets that nobody has mapped, a
 * slice of them now; of what remains as many sets are recalled as are too many, those first
 * (reclaim_over_limits()). A higher limit later calls no recall off.
 * Reservations stay where they are (and as large as the sizer made them) unless class,
 * reserve_bytes, or where the tenant is placed differs. 0; -EINVAL, -ENOSPC, -ENOENT: unchanged.
 */
int tenant_set_attrs(struct tenant *t, const struct tenant_attrs *attrs, struct detail *d);

/*
 * Reserves `bytes` in sum over the devices, as the tenant is placed: all of it or nothing, at once
 * (region.h). attrs.reserve_bytes isn't touched. 0; -ENOSPC: unchanged, *ret_missing (may be NULL)
 * says by how much it is too large, and the sentence how much is left and who holds it; -ENOENT:
 * placed on a device that isn't there.
 */
int tenant_reserve(struct tenant *t, uint64_t bytes, uint64_t *ret_missing, struct detail *d);

/* Frees a tenant that has no members. What it has on disks stays there. */
void tenant_free(struct tenant *t);

/* -EBUSY with the sentence: the tenant has no members, but what some have left goes yet (leave.h).
 */
int tenant_refuse_leaving(const struct tenant *t, struct detail *d);

/* -EBUSY with the sentence: it has namespaces, and what they hold. */
int tenant_refuse_namespaces(const struct tenant *t, struct detail *d);

/* Frees the tenant, and what it has on disks is gone (space_promise()): 0. -EBUSY while it has
 * members, or what they left goes yet, and, but for `force`, while it has memory or namespaces;
 * -ENOMEM. */
int tenant_remove(struct tenant *t, bool force, struct detail *d);

/* For the checker: what is wrong with the accounts of the tenant, or NULL. */
const char *tenant_check(const struct tenant *t);

#endif
