/*
 * INVALIDATE by key or tag of more than a slice (daemon/core/drop.h): it is answered when all of it
 * is gone, and what disks have of it is durably so (durable.h). Until then nothing that its peer
 * sent after it is handled: requests of a connection take effect in their order. Leases that wait
 * are answered meanwhile, as these come in any order.
 *
 * A peer that hangs up isn't answered; the drop ends all the same, and what the peer had sent is
 * handled at once. A daemon that is killed has not answered: the client asks the next one again.
 */
#ifndef KVL_SERVER_DROPS_H
#define KVL_SERVER_DROPS_H

#include <stdbool.h>
#include <stddef.h>

struct drop;
struct peer;
struct request;
struct server;

/* Of the loop's turn, for drops of all tenants together, give or take a slice; it is charged to the
 * tenants whose they are. Not tuned. */
#define DROPS_TURN_NSEC 1000000

/* The drop was begun for the request; *d is copied where it isn't over. Returns what the handler
 * returns: 0, with the request deferred where it isn't over or a disk has to be written first; as
 * durable_answer(). -ENOMEM with the sentence: not all of it is gone. */
int drops_answer(struct request *rq, struct drop *d);

/* A turn of the loop. True: there is more to do. */
bool drops_turn(struct server *s);

/* Of what waits for the peer. */
size_t drops_bytes(const struct peer *p);

/* The peer is gone, or won't be answered. Safe to repeat. */
void drops_leave(struct peer *p);

#endif
