/* State for the service manager. */
#ifndef KVL_SERVER_NOTIFY_H
#define KVL_SERVER_NOTIFY_H

/*
 * Sends lines as sd_notify(3) does, but never waits: that blocks while the manager doesn't read,
 * and clients would wait with it. What finds no room is lost: not for what must arrive (READY at
 * start, descriptors). Nothing where $NOTIFY_SOCKET isn't set. Loop thread.
 */
void notify_now(const char *lines);

#endif
