/*
 * Listening sockets that outlive the process (keep.h), so that who connects while no daemon runs
 * waits for the next one. They are found again by the path they listen at. Loop thread only.
 */
#ifndef KVL_SERVER_KEPT_SOCKETS_H
#define KVL_SERVER_KEPT_SOCKETS_H

#include <stdint.h>

struct server;

/* Takes the sockets that the process before this one left. 0 or -ENOMEM. */
int kept_sockets_load(struct server *s);

/* The owned fd of the socket at `path`, and the number that it is kept by; or -ENOENT. */
int kept_sockets_take(struct server *s, const char *path, uint32_t *ret_number);

/* Nobody wants the others: they go, and their files. */
void kept_sockets_release(struct server *s);

/* Closes what wasn't taken, which stays kept. Safe to repeat. */
void kept_sockets_deinit(struct server *s);

/* Keeps a new one. Its number; 0 where it isn't kept: nothing is, or, logged, there is no room. */
uint32_t kept_sockets_add(struct server *s, const char *path, int fd);

#endif
