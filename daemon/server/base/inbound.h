/*
 * Input of a peer: bytes, and never a descriptor.
 *
 * An unasked descriptor is a danger: the process that drops the last reference of a file waits in
 * the kernel for the file's release. That takes seconds with a memory file. With a TCP socket
 * (SO_LINGER) or a FUSE file it takes as long as its sender or server likes. It doesn't matter
 * whether the descriptor was ever installed. One without room (MSG_CTRUNC), or one in the queue of
 * a closed socket, is dropped all the same, by the process that receives or closes. So there are
 * two ways to receive:
 *
 * - Linux 6.16 and later: listening sockets are set (SO_PASSRIGHTS) so that accepted ones take no
 *   descriptors. The sender gets EPERM; nothing arrives.
 * - The *careful* way, elsewhere, and for connections made before the socket was set. The daemon
 *   peeks (MSG_PEEK) without room for descriptors. That duplicates and drops references, never the
 *   last one, as the queue has its own. MSG_CTRUNC then shows that there are some. If there are
 *   none, just these bytes are received. Else the connection is *tainted*: nothing more is received
 *   from it, and it isn't closed here (endings.h).
 *
 * No function here blocks. Loop thread only.
 */
#ifndef KVL_SERVER_INBOUND_H
#define KVL_SERVER_INBOUND_H

#include <stdbool.h>
#include <sys/types.h>

#include "proto/frame.h"

/* Variable of the daemon's environment: doesn't set sockets, as if the kernel were older. Only for
 * tests. */
#define INBOUND_TEST_VARIABLE "KVLEASE_TEST_OLD_SOCKETS"

/* How one connection is received from. */
struct inbound {
        bool careful;
        bool has_creds; /* inbound_pass_creds() is on */
        bool tainted;   /* there are descriptors in its queue, or may be */
};

/* Credentials the kernel attached. */
struct sock_creds {
        bool present;
        pid_t pid;
        uid_t uid;
        gid_t gid;
};

/*
 * Sets a listening socket so that clients that connect from now on can send no descriptors, if the
 * kernel supports that. Other ancillary data that its maker (systemd) enabled is turned off.
 * Returns 0 or -errno.
 */
int inbound_listen(int fd);

/* Initialises an accepted connection, or any stream socket, before other use. Returns 0, or -errno:
 * then it is tainted. */
int inbound_init(struct inbound *in, int fd);

/* Lets the kernel attach the sender's credentials from now on, or not. Returns 0 or -errno. */
int inbound_pass_creds(struct inbound *in, int fd, bool on);

/*
 * Receives once into `p`; frame_parser_next() then needs no descriptors. Returns bytes (> 0); 0:
 * the end of the stream; -EAGAIN; -EPROTO: it is tainted, now or before; -ENOBUFS: unread whole
 * frames fill the parser; another -errno. ret_creds may be NULL.
 */
ssize_t inbound_receive(
        struct inbound *in, int fd, struct frame_parser *p, struct sock_creds *ret_creds);

/*
 * Shuts the connection down in both directions and drains it. True: no foreign descriptor is in its
 * queue, nor can come: close() is quick. False: it is tainted. Takes at most a millisecond
 * (INBOUND_RECEIVES).
 */
bool inbound_finish(struct inbound *in, int fd);

/*
 * Receives of inbound_finish(): enough for a socket's queue (some 200 KiB, net.core.wmem_max,
 * unless its sender is privileged) and more. Not tuned.
 */
#define INBOUND_RECEIVES 64

#endif
