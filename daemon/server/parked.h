/*
 * Requests that wait for a device: a lease for which extent sets are being made. Such a request has
 * changed nothing that the peer can see. Its peer is *parked*, with a copy of the frame: nothing
 * more of it is read or taken from its ring, so that its requests stay in order, but its hang-up
 * and its exit are seen. When the device's queue says something the request is run again.
 */
#ifndef KVL_SERVER_PARKED_H
#define KVL_SERVER_PARKED_H

#include <stdbool.h>

#include "proto/frame.h"

struct server;
struct peer;
struct pool;

/* 0; -ENOMEM: the request is to be refused. Its lease is called off where nobody is there to be
 * answered, or on failure. */
int parked_add(struct peer *p, const struct frame *f);

/* The peer is gone, or ignored: it waits for nothing any more. Safe to repeat. */
void parked_drop(struct peer *p);

/*
 * Requests run again in one loop turn. One that is refused may have weighed all pages of its tenant
 * before. Not tuned.
 */
#define PARKED_RETRIES_PER_TURN 16

/* All that wait for the pool now are due: parked_retry() until it returns false. */
void parked_make_due(struct server *s, const struct pool *pool);

/*
 * Runs requests that are due for the pool again, in order of arrival, at most
 * PARKED_RETRIES_PER_TURN of them. Who is answered is scheduled, to go on with what it sent after.
 * True: more of them are due.
 */
bool parked_retry(struct server *s, const struct pool *pool);

/* All of them are answered with DRAINING, at once: nothing is looked for to say so. */
void parked_refuse(struct server *s);

#endif
