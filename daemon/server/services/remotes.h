/*
 * The stores that other hosts share ([remote NAME] of the configuration;
 * daemon/remote/store/remote.h), and which tenants exchange pages by them
 * (daemon/core/exchange/exchange.h). The loop listens to them, and never waits for them. One that
 * can't be opened costs what hosts would share, and nothing else. Loop thread only.
 */
#ifndef KVL_SERVER_REMOTES_H
#define KVL_SERVER_REMOTES_H

#include "daemon/server/settings/config.h"

struct remote_store;
struct server;
struct tenant;

void remotes_init(struct server *s);

/* Opens all of them. One that can't be had is logged. Blocks for reading files. */
void remotes_start(struct server *s);

/* The tenant has these options from now on. What it had under way ends, but where only times and
 * rates are others (exchange_open()). Where its secret can't be read, or its remote isn't open, it
 * exchanges nothing, which is logged. */
void remotes_apply(struct server *s, struct tenant *t, const struct tenant_config *config);

/* Options of this [remote NAME] have changed: its tenants have them from now on. */
void remotes_changed(struct server *s, const char *name);

/* Called in each turn of the loop. */
void remotes_turn(struct server *s);

/* The store with the name; NULL: it isn't open. Borrowed. */
struct remote_store *remotes_find(const struct server *s, const char *name);

/* Nothing is exchanged any more: the loop is about to be closed. Safe to repeat. */
void remotes_stop(struct server *s);

#endif
