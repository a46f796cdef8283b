/* Where the exporter is reached. */
#ifndef KVL_EXPORTER_LISTEN_H
#define KVL_EXPORTER_LISTEN_H

#include <stddef.h>

#define LISTEN_NAME_MAX 160

/*
 * Listens at "ADDRESS:PORT" ("127.0.0.1:9769", "[::1]:9769", ":9769" for every address; port 0: any
 * that is free) or at the path of a Unix socket (anything with a '/'), which replaces one that
 * nobody listens at. Returns an owned descriptor, and in ret_name where it is reached: with the
 * port that it got. -EINVAL: it is neither; -EADDRINUSE; other -errno.
 */
int listen_at(const char *where, char ret_name[LISTEN_NAME_MAX]);

#endif
