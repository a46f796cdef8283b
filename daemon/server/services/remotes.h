/*
 * Stores that hosts share ([remote NAME] of the configuration; daemon/remote/io/remote-io.h), and
 * the tenants that exchange pages by them (daemon/exchange/exchange.h). The loop listens to them,
 * and never waits for them. A store that fails costs only the exchange. Loop thread only.
 */
#ifndef KVL_SERVER_REMOTES_H
#define KVL_SERVER_REMOTES_H

#include "daemon/server/config/config.h"

struct remote_store;
struct server;
struct tenant;

void remotes_init(struct server *s);

/* Opens all stores; blocks to read files. Failures are logged. */
void remotes_start(struct server *s);

/* Applies the tenant's options. Transfers in progress are ended, unless only times and rates change
 * (exchange_open()). If its secret can't be read, or its remote isn't open, it exchanges nothing,
 * which is logged. */
void remotes_apply(struct server *s, struct tenant *t, const struct tenant_config *config);

/* Applies changed options of this [remote NAME] to its tenants. */
void remotes_changed(struct server *s, const char *name);

/* Called in each turn of the loop. */
void remotes_turn(struct server *s);

/* Returns the store with the name, borrowed; NULL: it isn't open. */
struct remote_store *remotes_find(const struct server *s, const char *name);

/* Ends all exchange before the loop is closed. Idempotent. */
void remotes_stop(struct server *s);

#endif
