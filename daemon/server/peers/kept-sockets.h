/*
 * Listening sockets in the descriptor store (keep.h): clients that connect while no daemon runs
 * wait for the next one, which finds them by their paths. Loop thread only.
 */
#ifndef KVL_SERVER_KEPT_SOCKETS_H
#define KVL_SERVER_KEPT_SOCKETS_H

#include <stdint.h>

struct server;

/* Takes the previous process's sockets. Returns 0 or -ENOMEM. */
int kept_sockets_load(struct server *s);

/* Returns the owned fd of the socket at `path`, with its number in the store; or -ENOENT. */
int kept_sockets_take(struct server *s, const char *path, uint32_t *ret_number);

/* Drops the sockets that were not taken, and their files. */
void kept_sockets_release(struct server *s);

/* Closes sockets that were not taken; they stay stored. Idempotent. */
void kept_sockets_deinit(struct server *s);

/* Stores a new socket. Returns its number; 0: there is no store, or (logged) it is full. */
uint32_t kept_sockets_add(struct server *s, const char *path, int fd);

#endif
