/* State for the service manager. */
#ifndef KVL_SERVER_NOTIFY_H
#define KVL_SERVER_NOTIFY_H

/*
 * Sends lines as sd_notify(3) does, without waiting: a manager that doesn't read would block all
 * clients. Lines without room are lost, so don't use it for required messages (READY at the start,
 * descriptors). Nothing if $NOTIFY_SOCKET isn't set. Loop thread.
 */
void notify_now(const char *lines);

#endif
