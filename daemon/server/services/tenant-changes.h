/*
 * ADMIN_TENANT_SET and ADMIN_TENANT_REMOVE. A change is first written to a file (tenantdb.h), by
 * another thread, for as long as the disk takes. Then it is put in force, and then it is answered.
 * The file comes first because a change in force can't always be undone: a new limit may evict, and
 * a new tenant may have clients at once. A change that turns out not to fit is written back, and
 * refused.
 *
 * Changes are carried out one after the other, in order: each is checked against the result of the
 * one before. A connection has one at a time; its later requests wait for the answer (as with
 * drops.h). A change whose client has hung up is carried out all the same. A stopping daemon
 * continues them for stop_timeout. A write that ends later was not answered; the next daemon finds
 * it.
 */
#ifndef KVL_SERVER_TENANT_CHANGES_H
#define KVL_SERVER_TENANT_CHANGES_H

#include <stdbool.h>

struct request;
struct server;

/* Bound of waiting changes, of all administrators. Not tuned. */
#define TENANT_CHANGES_MAX 64

void tenant_changes_init(struct server *s);

/* Takes one of the two requests. Returns the handler's result: 0, deferred; or the error of an
 * immediate refusal, with the sentence. */
int tenant_changes_ask(struct request *rq);

/* Is any under way? */
bool tenant_changes_are_left(const struct server *s);

#endif
