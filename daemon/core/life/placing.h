/*
 * Applies policy/place.h to the existing devices: chooses the device of a new namespace, and finds
 * exclusive tenants. Loop thread only.
 */
#ifndef KVL_CORE_PLACING_H
#define KVL_CORE_PLACING_H

#include <stddef.h>

#include "policy/place.h"

struct detail;
struct ns_layout;
struct pool;
struct tenant;

/* A tenant is on a device if it has a namespace or a reservation there. */
bool placing_is_on(const struct tenant *t, const struct pool *pool);

/* Returns the exclusive tenant on the device, borrowed. NULL: none. */
const struct tenant *placing_owner(const struct pool *pool);

/* Describes the devices from the tenant's view, in the order of store.pools. Returns their number,
 * at most max. O(devices * tenants * namespaces). */
size_t placing_look(const struct tenant *t, struct place_device *ret_devices, size_t max);

/* Chooses the pool for a new namespace (stride_bytes: for ns_geometry_of()): `device` if it names
 * one, else by the tenant's placement. Returns 0 with a borrowed *ret_pool; -ENOENT: no such
 * device; -EACCES: another tenant is exclusive there, or this one is exclusive and others are
 * there. */
int placing_choose(const struct tenant *t, const struct ns_layout *layout, uint64_t stride_bytes,
        const char *device, struct pool **ret_pool, struct detail *d);

#endif
