/*
 * Admission: an accepted connection becomes a peer of a tenant, or of administration, or is refused
 * with the reason. Loop thread only.
 */
#ifndef KVL_SERVER_WELCOME_H
#define KVL_SERVER_WELCOME_H

struct listener;

/* Takes an accepted connection of the socket; takes fd. */
void welcome_connection(struct listener *l, int fd);

#endif
