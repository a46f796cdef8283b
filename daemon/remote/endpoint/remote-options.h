/*
 * Addresses and credentials of servers: plain values, checked here, for the store (remote.h) and
 * for ask.h.
 *
 * This directory is a server as its clients see it: these options, addresses (remote-address.h),
 * TLS (remote-tls.h), and the circuit breaker (breaker.h). It has no connections. The layers above
 * it use it, and the code that reads options.
 *
 * Threads: any.
 */
#ifndef KVL_REMOTE_REMOTE_OPTIONS_H
#define KVL_REMOTE_REMOTE_OPTIONS_H

#include <stdbool.h>

#define REMOTE_ADDRESSES_MAX     16
#define REMOTE_WHY_BYTES         256
#define REMOTE_LARGE_THREADS_MAX 4

/* Default of remote_options.connect_msec. Not tuned. */
#define REMOTE_CONNECT_MSEC 250

/* Zeros: the defaults. All is copied. */
struct remote_options {
        /* Addresses of the cluster: "host:port", "[::1]:6379". Any node of a cluster tells the
         * others. Names are resolved again every minute, and every second while no node is
         * known. */
        const char *const *addresses;
        unsigned n_addresses;   /* 1 .. REMOTE_ADDRESSES_MAX */
        const char *user;       /* NULL: "default" */
        const char *secret;     /* NULL: no AUTH is sent */
        unsigned large_threads; /* 1 .. REMOTE_LARGE_THREADS_MAX: connections to each node for large
                                   ones; 0: 2 */
        unsigned max_ops;       /* submitted and not reaped; 0: 8,192, not tuned */
        unsigned connect_msec;  /* until a connection is established, TLS and AUTH included; 0:
                                   REMOTE_CONNECT_MSEC */
        unsigned silence_msec;  /* a node has failed that owes answers on a connection, and for so
                                   long sends no byte and takes nothing of a value; 0: 500 */
        bool is_tls;            /* TLS 1.2 or later, and the node's certificate is verified */
        const char *tls_ca;     /* PEM file of trusted CAs; NULL: the system's */
        const char
                *tls_host; /* the name that certificates must have; NULL: the connected address */
        const char *tls_cert, *tls_key; /* PEM files, for servers that verify their clients (Redis
                                           does by default); NULL: none */
};

/* Checks the options, without files and names. Returns 0, or -EINVAL with the sentence in `why`. */
int remote_options_check(const struct remote_options *options, char why[REMOTE_WHY_BYTES]);

#endif
