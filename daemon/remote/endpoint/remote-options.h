/*
 * Where the servers are and how a client gets in: plain values, which are checked here and used by
 * the store (remote.h) and by who asks one server (ask.h) alike.
 *
 * This is the room of what one server is to its clients: these options, addresses
 * (remote-address.h), TLS (remote-tls.h), and whether it is asked at all just now (breaker.h). It
 * has no connection of its own. The rooms above it call it, and who reads options from elsewhere.
 *
 * Threads: any.
 */
#ifndef KVL_REMOTE_REMOTE_OPTIONS_H
#define KVL_REMOTE_REMOTE_OPTIONS_H

#include <stdbool.h>

#define REMOTE_ADDRESSES_MAX     16
#define REMOTE_WHY_BYTES         256
#define REMOTE_LARGE_THREADS_MAX 4

/* What remote_options.connect_msec is where it is 0. Not tuned. */
#define REMOTE_CONNECT_MSEC 250

/* Zeros: the defaults. All is copied. */
struct remote_options {
        /* Where to find the cluster: "host:port", "[::1]:6379". Any node of a cluster leads to the
         * others. Names are resolved again every minute, and every second while no node is known.
         */
        const char *const *addresses;
        unsigned n_addresses;   /* 1 .. REMOTE_ADDRESSES_MAX */
        const char *user;       /* NULL: "default" */
        const char *secret;     /* NULL: no AUTH is sent */
        unsigned large_threads; /* 1 .. REMOTE_LARGE_THREADS_MAX: connections to each node for large
                                   ones; 0: 2 */
        unsigned max_ops;       /* submitted and not reaped; 0: 8,192, not tuned */
        unsigned connect_msec;  /* until a connection stands, TLS and AUTH included; 0:
                                   REMOTE_CONNECT_MSEC */
        unsigned silence_msec;  /* a node that owes answers on a connection, and for so long sends
                                   no byte and takes nothing of a value, has failed; 0: 500 */
        bool is_tls;            /* TLS 1.2 or later, and the node's certificate is verified */
        const char *tls_ca;     /* PEM file of whom to believe; NULL: the system's */
        const char *tls_host;   /* the name that certificates must have; NULL: the address that is
                                   connected to */
        const char *tls_cert, *tls_key; /* PEM files, for servers that want to know their clients
                                           (Redis does by default); NULL: none */
};

/* Can they be used? Looks at no file, and resolves no name. 0; -EINVAL with the sentence in `why`.
 */
int remote_options_check(const struct remote_options *options, char why[REMOTE_WHY_BYTES]);

#endif
