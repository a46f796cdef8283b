/* Checks that a tenant can hold an extent set, given limits and reservations. Loop thread only. */
#ifndef KVL_SERVER_TENANT_ROOM_H
#define KVL_SERVER_TENANT_ROOM_H

#include "daemon/core/state/detail.h"

struct server;
struct tenancy;

/* May the tenant hold an extent set of the configured size on some device, if all others made room?
 * Returns 0, or -ENOSPC with the sentence. Layouts may need larger sets: only their leases can
 * tell. */
int tenant_room_check(const struct tenancy *t, struct detail *d);

/* Number of tenants that may not; *d: the sentence of one. */
uint32_t tenant_room_count_small(const struct server *s, struct detail *d);

/* Calls `say` with the sentence of each that may not. */
void tenant_room_each_small(
        const struct server *s, void (*say)(void *data, const char *sentence), void *data);

#endif
