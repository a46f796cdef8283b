/* Unix sockets with file descriptors: one sendmsg/recvmsg each, never blocking unless stated.
 * Shared by daemon and library. As thread-safe as the socket. */
#ifndef KVL_PROTO_SOCK_H
#define KVL_PROTO_SOCK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "proto/frame.h"

/* Sends up to `len` bytes with `n_fds` fds (borrowed) on the first of them; MSG_NOSIGNAL |
 * MSG_DONTWAIT. Returns bytes sent (> 0; the fds were sent, too), -EAGAIN, or another -errno. */
ssize_t sock_send(int fd, const void *data, size_t len, const int *fds, unsigned n_fds);

/*
 * Receives once into `p`, MSG_DONTWAIT | MSG_CMSG_CLOEXEC. For receivers that trust the sender, as
 * a client trusts the daemon: see daemon/server/base/inbound.h. Returns bytes (> 0), 0 on end of
 * file, or:
 * - -EAGAIN, or another -errno.
 * - -EPROTO: more fds were sent than a frame may have (those that came are closed), or
 *   frame_parser_fed() said so.
 * - -EMFILE: this process can't take all fds (those that came are closed).
 * - -ENOBUFS: complete frames that weren't taken out fill the parser.
 */
ssize_t sock_receive(int fd, struct frame_parser *p);

/* Connects a stream socket (non-blocking, close-on-exec) to `path`. Returns an owned fd;
 * -ENAMETOOLONG: the path doesn't fit an address (107 bytes, kernel); -EAGAIN: the listener's
 * backlog is full; or another -errno. */
int sock_connect(const char *path);

/*
 * Binds and listens at `path` with `mode`. Replaces a stale socket file (without a server). Returns
 * an owned fd (non-blocking, close-on-exec); -EADDRINUSE: a server listens there; -EEXIST: a file
 * that is no socket; -ENAMETOOLONG as above; or another -errno. After a failure nothing was made,
 * but a stale file may have been removed. Two callers that race for a path could both find it
 * stale: the daemon holds its lock file before the call.
 */
int sock_listen(const char *path, unsigned mode);

#endif
