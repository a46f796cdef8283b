/*
 * A client of Redis or Valkey: a store (daemon/remote/io/remote-io.h) in this process.
 *
 *   operation:   waits -> sent -> answered | redirected once | ended by deadline, cancel, loss;
 *   connection:  closed -> connecting -> (TLS) -> (AUTH) -> ready -> closed;
 *   node:        its breaker (daemon/remote/endpoint/breaker.h): closed, open, half open.
 *
 * Guarantees beyond those of a store:
 *
 * - A deadline that was too short says nothing about the node, and costs no other operation: a late
 *   answer is skipped. A node has failed if it owes answers on a connection, and for
 *   remote_options.silence_msec sends nothing and takes nothing of a value.
 * - A value is received straight into the buffers of a read, and sent straight from those of a
 *   write. Exceptions: TLS, and up to REMOTE_INPUT_BYTES that arrive together with a header.
 * - The bytes under way on a connection are bounded (REMOTE_WINDOW_BYTES): a server buffers unread
 *   replies, and evicts keys for those buffers when its memory is full.
 * - Replies are parsed strictly (resp.h), and bounded. Invalid ones close the connection.
 *
 * A node of the cluster can send this client, with its secret, to any address: redirections are
 * part of the protocol. TLS is needed if others could answer in a node's place.
 *
 * The map of slots is read by CLUSTER SLOTS at the start, every REMOTE_REFRESH_NSEC, and after
 * signs that slots have moved: MOVED, READONLY, CLUSTERDOWN, a lost connection.
 *
 * Errors of a server, as `result`:
 *
 *   MOVED, ASK   the operation is sent once more, to that node; at a second one: -EAGAIN;
 *   TRYAGAIN     -EAGAIN: keys of one slot are on two nodes while it is moved;
 *   CLUSTERDOWN  -EAGAIN, and the slots are read again: no node serves this one;
 *   READONLY     -EAGAIN, and the slots are read again: the node became a replica;
 *   LOADING, MASTERDOWN  -EAGAIN, and the breaker opens: the node answers nothing else now;
 *   NOAUTH, WRONGPASS, and AUTH refused  -EACCES, and the breaker opens;
 *   NOPERM       -EACCES, for this key or command; the node serves others;
 *   OOM          -ENOSPC: a write was refused; reads continue;
 *   others       -EREMOTEIO.
 *
 * A node whose certificate isn't trusted is -EKEYREJECTED, and the breaker opens.
 *
 * Threads: one has the sockets of small operations, and remote_options.large_threads those of large
 * ones, each with at most one connection to a node. Another thread resolves names, if there are
 * any.
 */
#ifndef KVL_REMOTE_REMOTE_H
#define KVL_REMOTE_REMOTE_H

#include "daemon/remote/endpoint/remote-options.h"
#include "daemon/remote/io/remote-io.h"

/* Bytes under way on one connection (or one larger operation). Redis holds unread replies in its
 * memory, and evicts keys for them when that is full (its issue 4496): many unread replies would
 * cost more than they bring. Not tuned. */
#define REMOTE_WINDOW_BYTES (2u << 20)

/* Operations under way on one connection. Not tuned. */
#define REMOTE_WINDOW_OPS 128

#define REMOTE_INPUT_BYTES (16u << 10)

/* Interval of reading the slots. Not tuned. */
#define REMOTE_REFRESH_NSEC (10 * NSEC_PER_SEC)

/*
 * Starts the threads. Blocks for reading the files of TLS, not for the cluster: until it is found,
 * everything is a miss. Returns 0; -EINVAL: an address, a number or a file isn't usable; other
 * -errno. `why` is a sentence after an error, else "".
 */
int remote_open(const struct remote_options *options, struct remote_store **ret_store,
        char why[REMOTE_WHY_BYTES]);

#endif
