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

/* Functions by which a lower layer reports events to layers that it may not call by name. The one
 * such table is in life/wiring.c. */
struct client_listeners {
        /* [L] Called when a context of the device with this name is found broken. Pages that the
         * failed work should have written may hold anything. */
        void (*device_broken)(struct kvl_conn *conn, const char *device);
};

struct kvl_conn {
        /* Owned. Its lock guards `namespaces`, `event_*` and all of the namespaces */
        struct conn *conn;
        const struct client_listeners *listeners;
        unsigned n_forks; /* process_n_forks of the process that may use it */
        int timeout_msec; /* < 0: for ever */
        bool metadata_only;
        struct conn_welcome welcome;
        struct flights flights;       /* of the client segment, if there is one */
        struct fetches fetches;       /* through its rings, and over the socket */
        _Atomic uint64_t n_requests;  /* begun */
        _Atomic uint32_t n_started;   /* calls whose callback hasn't begun */
        _Atomic uint32_t n_recalled;  /* recalled sets of all namespaces */
        uint64_t n_safepoints;        /* that had work; number of the last one */
        uint64_t streams_looked_nsec; /* when the streams' health was last checked */
        struct list_link namespaces;
        kvl_event_fn event_fn;
        void *event_data;
        pthread_cond_t idle; /* a namespace has no callback running any more */
};

/* Returns 0, or -ECHILD with the sentence: the connection belongs to another process. */
static inline int client_check_process(const struct kvl_conn *conn)
{
        return process_check(conn->n_forks);
}

/* The deadline of a blocking call that begins now. */
static inline uint64_t client_deadline(const struct kvl_conn *conn)
{
        return conn_deadline(conn->timeout_msec);
}

#endif
