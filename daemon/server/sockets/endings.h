/*
 * How connections end: never in a way that waits for somebody else.
 *
 * Closing a socket drops what lies in its queue, descriptors of the peer's included (inbound.h). So
 * a connection that may have some is ended first, then received empty; where there are any it is
 * the reaper's to close. Of a socket that listens the same holds for the connections nobody
 * accepted yet.
 *
 * Each such connection has a descriptor until the reaper's process has it, so of one listening
 * socket ENDINGS_MAX wait at most: while they do nobody is accepted there. Who holds them up (they
 * may, for a second each) keeps others from connecting there, on kernels before 6.16 alone.
 *
 * Loop thread only.
 */
#ifndef KVL_SERVER_ENDINGS_H
#define KVL_SERVER_ENDINGS_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/server/wire/inbound.h"

struct server;
struct tenancy;
struct listener;

/* Connections of a listening socket that the reaper has and isn't done with. Not tuned. */
#define ENDINGS_MAX 32

/* Ends a connection. Takes fd, which no handle watches any more. `t`: on whose account that is;
 * NULL: of the user at the other end. `listener_id`: struct listener.id; 0: none. */
void endings_close(struct server *s, struct inbound *in, int fd, const struct tenancy *t,
        uint64_t listener_id);

/* Ends a connection that was just accepted, or wasn't looked at. */
void endings_refuse(struct server *s, int fd, uint64_t listener_id);

/*
 * Accepts and ends up to `max` connections of a socket that was shut down (nobody can connect any
 * more). True: there may be more. False: none are left; or, where it can't be known for want of
 * descriptors, fd was taken, and is -1.
 */
bool endings_empty(struct server *s, int *fd, unsigned max);

/* Shuts a listening socket down that is no one's duplicate, ends who wait to be accepted, closes
 * it. Takes fd; a thousand take some 10 ms. */
void endings_close_listening(struct server *s, int fd);

#endif
