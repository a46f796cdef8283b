/*
 * Descriptors reserved for administrators: they can connect and write files even if clients use all
 * others. Loop thread only.
 */
#ifndef KVL_SERVER_ADMIN_FDS_H
#define KVL_SERVER_ADMIN_FDS_H

#include <stdbool.h>

struct server;

/* Reserves SOCKETS_ADMIN_FDS descriptors: at the start, before a client connects, and after an
 * administrator has left. Returns false if there are too few. */
bool admin_fds_hold(struct server *s);

/* Frees them for an administrator's connection or request, until admin_fds_hold(). */
void admin_fds_open(struct server *s);

#endif
