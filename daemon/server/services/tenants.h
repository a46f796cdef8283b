/*
 * The server's side of a tenant: its rules, its socket, its connections. It is made from the
 * configuration, or by an administrator (tenant-changes.h) and then stored in the database. A
 * change is made in the state, on the socket and on disk, or not at all.
 */
#ifndef KVL_SERVER_TENANTS_H
#define KVL_SERVER_TENANTS_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/core/state/detail.h"
#include "daemon/server/peers/server.h"
#include "daemon/server/config/config.h"

struct tenancy;
struct server;
struct peer;

/* Finds a tenancy; NULL: there is none. */
struct tenancy *tenancy_find(struct server *s, const char *name);

/* Adds a tenant. Returns 0, or -errno with the sentence (nothing made); -ENOSPC: the reservation
 * doesn't fit. */
int tenancy_add(struct server *s, const struct tenant_config *config, bool from_config,
        struct tenancy **ret_tenancy, struct detail *d);

/* Can the configuration be in force on this machine, with its other options? Returns 0, or -EINVAL
 * with the sentence. Free memory isn't checked. */
int tenancy_check(struct server *s, const struct tenant_config *config, struct detail *d);

/* Puts a configuration in force. `asked`: tries a reservation again, even if it is configured
 * already. Returns 0; -EINVAL, -ENOSPC (the reservation doesn't fit), -EBUSY (it can't have a
 * device for itself), -ENOMEM with the sentence (nothing changed). */
int tenancy_change(
        struct tenancy *t, const struct tenant_config *config, bool asked, struct detail *d);

/* Returns 0, or -EBUSY with the sentence (nothing changed): it has members; or memory, without
 * `force`. */
int tenancy_remove(struct tenancy *t, bool force, struct detail *d);

/* Opens the socket. Returns 0, or -errno with the sentence. */
int tenancy_listen(struct tenancy *t, struct detail *d);

/* Makes the tenants of the configuration and the database. Reservations that don't fit are made as
 * large as possible; a tenant with inconsistent options has none. Both are logged as errors.
 * Returns 0, or -errno, logged. */
int tenants_load(struct server *s);

/* The tenant's settings of files and database: defaults, then its section of `config`, then its row
 * of the database. Returns false if neither names it. `*ret_from_config`: it has a section. */
bool tenants_configured(const struct server *s, const struct config *config, const char *name,
        struct tenant_config *ret_config, bool *ret_from_config);

/* Gets one sentence without newline, about a change or a refused one (is_refused). */
typedef void (*tenants_say)(void *data, bool is_refused, const char *sentence);

/* Makes the running tenants those of `next` and the database. Changes that can't be made cause a
 * warning. Everything is logged and reported to `say`. */
void tenants_reload(struct server *s, const struct config *next, tenants_say say, void *data);

void tenants_free(struct server *s);

/* Begins to warm the pages of tenants' warm_tags, after the previous daemon's state was
 * recovered. */
void warming_start(struct server *s);

/* ---- room for an extent set ------------------------------------------------------------------ */

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
