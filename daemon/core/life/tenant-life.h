/* Makes, changes and frees tenants. state/tenant.h describes them. Loop thread only. */
#ifndef KVL_CORE_LIFETIMES_TENANT_H
#define KVL_CORE_LIFETIMES_TENANT_H

#include "daemon/core/state/tenant.h"

/* Makes a tenant. Returns 0; -EEXIST; -EINVAL (name, range; a reservation of a dynamic tenant, or
 * beyond the limit); -ENOSPC, -ENOENT: as tenant_reserve(); -ENOMEM. */
int tenant_new(struct store *s, const char *name, const struct tenant_attrs *attrs,
        struct tenant **ret_tenant, struct detail *d);

/*
 * Changes the attributes at once. No set is bound beyond a lower limit, in each tier. If more is
 * charged, idle sets are freed and cached pages evicted in unmapped sets, a slice of them now; of
 * the rest, as many sets as necessary are recalled (reclaim_over_limits()). A later higher limit
 * calls no recall off. Reservations stay (also as the sizer set them), unless class, reserve_bytes
 * or placement differs. Returns 0; -EINVAL, -ENOSPC, -ENOENT (nothing changed).
 */
int tenant_set_attrs(struct tenant *t, const struct tenant_attrs *attrs, struct detail *d);

/* Reserves `bytes` in sum over the devices of the tenant's placement, all or nothing, at once
 * (region.h). Doesn't change attrs.reserve_bytes. Returns 0; -ENOSPC (nothing changed):
 * *ret_missing (may be NULL) says by how much it is too large, and the sentence how much is left
 * and which tenants hold the rest; -ENOENT: its device doesn't exist. */
int tenant_reserve(struct tenant *t, uint64_t bytes, uint64_t *ret_missing, struct detail *d);

/* Frees a tenant without members. Its pages on disks stay. */
void tenant_free(struct tenant *t);

/* Returns -EBUSY with the sentence that the tenant has no members, but holds of former ones are
 * still being released (leave.h). */
int tenant_refuse_leaving(const struct tenant *t, struct detail *d);

/* Returns -EBUSY with a sentence about its namespaces and their contents. */
int tenant_refuse_namespaces(const struct tenant *t, struct detail *d);

/* Frees the tenant and erases its pages on disks (space_promise()). Returns 0; -EBUSY: it has
 * members, or holds of former ones are being released, or, without `force`, it has memory or
 * namespaces; -ENOMEM. */
int tenant_remove(struct tenant *t, bool force, struct detail *d);

/* For the checker: returns an error in the tenant's accounts, or NULL. */
const char *tenant_check(const struct tenant *t);

#endif
