/*
 * Ends connections without waiting for another process.
 *
 * close() on a socket drops its queue, with the peer's descriptors in it (inbound.h). So a
 * connection that may have some is shut down first, then drained; if descriptors are found, the
 * reaper closes it. The same holds for connections to a listening socket that aren't accepted yet.
 *
 * Each such connection uses a descriptor until the reaper's process has it. So at most ENDINGS_MAX
 * of one listening socket wait; until they are done, that socket accepts none. A peer can delay
 * each for a second, and so keeps others from connecting there, only on kernels before 6.16.
 *
 * Loop thread only.
 */
#ifndef KVL_SERVER_ENDINGS_H
#define KVL_SERVER_ENDINGS_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/server/base/inbound.h"

struct server;
struct tenancy;
struct listener;

/* Bound of unfinished connections of a listening socket at the reaper. Not tuned. */
#define ENDINGS_MAX 32

/* Ends a connection. Takes fd, which no handle watches any more. `t`: the charged tenant; NULL: the
 * user at the other end. `listener_id`: struct listener.id; 0: none. */
void endings_close(struct server *s, struct inbound *in, int fd, const struct tenancy *t,
        uint64_t listener_id);

/* Ends a connection that was just accepted, or isn't examined. */
void endings_refuse(struct server *s, int fd, uint64_t listener_id);

/*
 * Accepts and ends up to `max` connections of a socket that was shut down (it gets no new ones).
 * True: there may be more. False: none are left; or it can't be known for want of descriptors: then
 * fd was taken and is -1.
 */
bool endings_empty(struct server *s, int *fd, unsigned max);

/* Shuts down a listening socket that has no duplicate, ends the connections that wait there, and
 * closes it. Takes fd; a thousand connections take some 10 ms. */
void endings_close_listening(struct server *s, int fd);

#endif
