/*
 * ADMIN_CHECK: checks the whole state (daemon/core/core.h) in slices, one in a turn of the loop, so
 * that no client waits for all of it. Loop thread only.
 */
#ifndef KVL_SERVER_CHECKS_H
#define KVL_SERVER_CHECKS_H

#include <stdbool.h>

struct server;
struct request;

void checks_init(struct server *s);

/* Returns the handler's result: 0, deferred; or -ENOMEM. */
int checks_ask(struct request *rq);

/* Checks a slice for one request. Returns true if there is more to do. */
bool checks_turn(struct server *s);

#endif
