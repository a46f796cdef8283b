/*
 * A store (daemon/remote/io/remote-io.h) whose client is in another process, kvlease-exchange: that
 * one has the network, and the password of the store. This process connects to it, by a Unix
 * socket, and again whenever it is gone.
 *
 *   lane:  away -> greets -> ready -> away ...
 *   loan:  submitted -> sent -> done | given up (at its deadline, canceled) -> returned
 *
 * A lane has a thread, a connection and an arena (relay-wire.h). One lane is for small operations,
 * RELAY_LARGE_LANES are for large ones. The thread seals and opens values (remote_op.on_value), and
 * copies them: from the arena to where they belong, and to the arena when they are sealed.
 *
 * Without kvlease-exchange each operation fails at once (-EHOSTDOWN). If it is stopped or hangs,
 * operations end at their deadline. Then their part of the arena stays lent until kvlease-exchange
 * returns it, at most RELAY_HUNG_NSEC; after that the lane connects anew, with another arena.
 *
 * kvlease-exchange may send anything. Invalid messages close the connection.
 *
 * Threads: as remote-io.h.
 */
#ifndef KVL_RELAY_RELAY_H
#define KVL_RELAY_RELAY_H

#include <stdint.h>

#include "base/clock.h"
#include "daemon/remote/endpoint/remote-options.h"
#include "daemon/remote/io/remote-io.h"

/* Where kvleased finds kvlease-exchange, unless an option says another path. */
#define RELAY_SOCKET "/run/kvlease-exchange/exchange.sock"

#define RELAY_LARGE_LANES 2

/* An operation that kvlease-exchange still has so long after its deadline, or its cancel, tells
 * that it hangs. Not tuned. */
#define RELAY_HUNG_NSEC (2 * NSEC_PER_SEC)

struct relay_options {
        const char *socket; /* of kvlease-exchange */
        /* The file of the password, which kvlease-exchange reads; NULL: none. remote.secret is
         * ignored. */
        const char *secret_file;
        struct remote_options remote;
};

/* Starts the threads; waits for nothing. All is copied. Returns 0; -ENAMETOOLONG: the socket's
 * path; -EINVAL: the options don't fit a message; -ENOMEM, -EMFILE, other -errno. */
int relay_open(const struct relay_options *options, struct remote_store **ret_store);

#endif
