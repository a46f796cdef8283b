/*
 * What a peer sends: bytes, and never a descriptor.
 *
 * A descriptor that comes unasked isn't free: whoever drops the last one of a file waits in the
 * kernel for whatever the file wants then. A TCP socket with SO_LINGER takes as long as its sender
 * likes, the memory of a memory file seconds, a FUSE file as long as its server lets it. It doesn't
 * matter whether the descriptor was ever installed: one that there was no room for (MSG_CTRUNC), or
 * that lies unread in the queue of a socket that is closed, is dropped all the same, by who
 * receives or closes. So two ways of receiving:
 *
 * - Linux 6.16 and later: sockets that listen are told (SO_PASSRIGHTS) that who is accepted there
 *   takes none. The sender gets EPERM; nothing arrives.
 * - The *careful* way, elsewhere, and for connections that were made before the socket was told:
 * one looks (MSG_PEEK) without room for descriptors, which duplicates and drops references, but
 * never the last one, as the queue has its own. MSG_CTRUNC then says that there are some. If not,
 * just these bytes are received. If so the connection is *tainted*: nothing is received of it any
 * more, and it isn't closed here either (endings.h).
 *
 * No function here blocks. Loop thread only.
 */
#ifndef KVL_SERVER_INBOUND_H
#define KVL_SERVER_INBOUND_H

#include <stdbool.h>
#include <sys/types.h>

#include "proto/frame.h"

/* In the environment of a daemon: sockets aren't told, as if the kernel didn't know how. For tests
 * alone. */
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
 * Who connects to this listening socket from now on can send no descriptors, where the kernel knows
 * that; and whatever else somebody (systemd) had it attach isn't attached. 0 or -errno.
 */
int inbound_listen(int fd);

/* A connection that was accepted, or any stream socket: before anything else is done with it.
 * 0, or -errno: then it is tainted. */
int inbound_init(struct inbound *in, int fd);

/* The kernel attaches the sender's credentials from now on, or not. 0 or -errno. */
int inbound_pass_creds(struct inbound *in, int fd, bool on);

/*
 * Receives once into `p`, of which frame_parser_next() needs no descriptors then. Returns bytes
 * (> 0), 0 at the end of the stream, -EAGAIN, -EPROTO where it is tainted, now or before, -ENOBUFS
 * where whole frames that nobody took out fill the parser, or another -errno. ret_creds may be
 * NULL.
 */
ssize_t inbound_receive(
        struct inbound *in, int fd, struct frame_parser *p, struct sock_creds *ret_creds);

/*
 * Ends the connection in both directions and receives what is left. True: nothing of others' is in
 * its queue, nor comes there any more: close() is quick. False: it is tainted. Takes a millisecond
 * at most (INBOUND_RECEIVES).
 */
bool inbound_finish(struct inbound *in, int fd);

/*
 * Receives of inbound_finish(): what is left in a socket's queue (some 200 KiB, net.core.wmem_max,
 * unless its sender is privileged) and more. Not tuned.
 */
#define INBOUND_RECEIVES 64

#endif
