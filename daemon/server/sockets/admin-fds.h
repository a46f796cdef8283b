/*
 * Descriptors that are kept from clients, so that an administrator gets in and can write files
 * where clients have all others. Loop thread only.
 */
#ifndef KVL_SERVER_ADMIN_FDS_H
#define KVL_SERVER_ADMIN_FDS_H

#include <stdbool.h>

struct server;

/* Takes SOCKETS_ADMIN_FDS descriptors that clients can't have then: at the start, before one of
 * them comes in, and when an administrator has left. False: there aren't as many. */
bool admin_fds_hold(struct server *s);

/* They are free: an administrator comes, or asks for something. Until admin_fds_hold(). */
void admin_fds_open(struct server *s);

#endif
