/* A listening socket of HTTP. */
#ifndef KVL_HTTP_LISTEN_H
#define KVL_HTTP_LISTEN_H

#include <stddef.h>

#define LISTEN_NAME_MAX 160

/*
 * Listens at "ADDRESS:PORT" ("127.0.0.1:9769", "[::1]:9769", ":9769" for every address; port 0: any
 * free one), or at the path of a Unix socket (anything with a '/'). Replaces a stale socket.
 * Returns an owned descriptor, and in ret_name the address with the actual port. -EINVAL: it is
 * neither; -EADDRINUSE; other -errno.
 */
int listen_at(const char *where, char ret_name[LISTEN_NAME_MAX]);

#endif
