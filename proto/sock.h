/*
 * Unix sockets with file descriptors: one sendmsg/recvmsg each, never blocking unless said.
 * Shared by daemon and library. Thread-safe as far as the socket is.
 */
#ifndef KVL_PROTO_SOCK_H
#define KVL_PROTO_SOCK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "proto/frame.h"

/*
 * Sends up to `len` bytes with `n_fds` fds (borrowed) on the first of them; MSG_NOSIGNAL |
 * MSG_DONTWAIT. Returns bytes sent (> 0; the fds have then gone), -EAGAIN, or another -errno.
 */
ssize_t sock_send(int fd, const void *data, size_t len, const int *fds, unsigned n_fds);

/*
 * Receives once into `p`, MSG_DONTWAIT | MSG_CMSG_CLOEXEC. Returns bytes (> 0), 0 on end of file,
 * -EAGAIN, -EPROTO where more fds were sent than a frame may have (those that came are closed) or
 * frame_parser_fed() said so, -EMFILE where this process can't take those that were sent
 * (likewise), -ENOBUFS where whole frames that nobody took out fill the parser, or another -errno.
 * For who trusts the sender, as a client does the daemon: see daemon/server/wire/inbound.h.
 */
ssize_t sock_receive(int fd, struct frame_parser *p);

/*
 * Connects a stream socket (non-blocking, close-on-exec) to `path`. Owned fd, -ENAMETOOLONG where
 * the path doesn't fit an address (107 bytes, kernel), -EAGAIN where the listener's backlog is
 * full, or another -errno.
 */
int sock_connect(const char *path);

/*
 * Binds and listens at `path` with `mode`. A stale socket file (nobody answers) is replaced; one
 * where somebody listens gives -EADDRINUSE; a file that is no socket -EEXIST. Owned fd
 * (non-blocking, close-on-exec), -ENAMETOOLONG as above, or another -errno. Two callers that race
 * for one path could both find it stale: the daemon holds its lock file before it comes here. After
 * a failure nothing was made, but a stale file may be gone.
 */
int sock_listen(const char *path, unsigned mode);

#endif
