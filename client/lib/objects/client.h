/*
 * A connection as users have it (<kvlease.h>): the socket, the rings, and the namespaces that are
 * open on it.
 */
#ifndef KVL_LIB_CLIENT_H
#define KVL_LIB_CLIENT_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/list.h"
#include "client/lib/connection/conn.h"
#include "client/lib/kvlease.h"
#include "client/lib/objects/in-flight.h"
#include "client/lib/objects/process.h"

/* Functions by which a room tells rooms above it what it may not call them for by name. There is
 * one such table, in life/wiring.c. */
struct client_listeners {
        /* [L] Called when a context of the device with this name is found broken: pages that work
         * on the device should have written may hold anything. */
        void (*device_broken)(struct kvl_conn *conn, const char *device);
};

struct kvl_conn {
        /* Owned. Its lock guards `namespaces`, `event_*` and all of the namespaces */
        struct conn *conn;
        const struct client_listeners *listeners;
        unsigned n_forks; /* process_n_forks of who may use it */
        int timeout_msec; /* < 0: for ever */
        bool metadata_only;
        struct conn_welcome welcome;
        struct flights flights;       /* of the client segment, where there is one */
        struct fetches fetches;       /* likewise, and over the socket */
        _Atomic uint64_t n_requests;  /* begun */
        _Atomic uint32_t n_started;   /* calls whose callback hasn't begun */
        _Atomic uint32_t n_recalled;  /* sets to be given back at a safe point, of all namespaces */
        uint64_t n_safepoints;        /* that had something to do; the number of the last */
        uint64_t streams_looked_nsec; /* when streams were last asked whether they are in order */
        struct list_link namespaces;
        kvl_event_fn event_fn;
        void *event_data;
        pthread_cond_t idle; /* a namespace has no callback running any more */
};

/* 0, or -ECHILD with the sentence: it is the connection of another process. */
static inline int client_check_process(const struct kvl_conn *conn)
{
        return process_check(conn->n_forks);
}

/* When a blocking call that begins now gives up. */
static inline uint64_t client_deadline(const struct kvl_conn *conn)
{
        return conn_deadline(conn->timeout_msec);
}

#endif
