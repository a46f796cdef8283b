/*
 * Applies policy/place.h to the devices there are: where a new namespace goes, and who has a device
 * for itself. Loop thread only.
 */
#ifndef KVL_CORE_PLACING_H
#define KVL_CORE_PLACING_H

#include <stddef.h>

#include "policy/place.h"

struct detail;
struct ns_layout;
struct pool;
struct tenant;

/* A tenant is on a device where it has a namespace or a reservation. */
bool placing_is_on(const struct tenant *t, const struct pool *pool);

/* The tenant that has the device for itself: exclusive, and on it. NULL: none. Borrowed. */
const struct tenant *placing_owner(const struct pool *pool);

/* How the devices look to the tenant, in the order of store.pools. Returns their number, at most
 * max. O(devices * tenants * namespaces). */
size_t placing_look(const struct tenant *t, struct place_device *ret_devices, size_t max);

/*
 * The pool for a new namespace (stride_bytes: as of ns_geometry_of()): `device` where it names one,
 * else by the tenant's placement. 0 with a borrowed *ret_pool; -ENOENT: no such device; -EACCES:
 * another tenant has it for itself, or this one is to have it for itself and doesn't.
 */
int placing_choose(const struct tenant *t, const struct ns_layout *layout, uint64_t stride_bytes,
        const char *device, struct pool **ret_pool, struct detail *d);

#endif
