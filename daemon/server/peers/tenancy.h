/*
 * The server's side of a tenant: its rules, its socket, the resources of its connections.
 * daemon/server/services/tenants.h makes and changes it.
 */
#ifndef KVL_SERVER_TENANCY_H
#define KVL_SERVER_TENANCY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/list.h"
#include "daemon/server/config/config.h"
#include "policy/bucket.h"

struct listener;
struct server;
struct tenant;

/* A tenant's requests that wait for their turn (daemon/server/peers/turns.h). */
struct turns {
        struct list_link link;    /* server.turns.due or, paused, server.turns.paused */
        struct list_link waiting; /* struct peer.links.backlog: have work, the next first */
        uint64_t owes_nsec;       /* taken beyond its time */
        uint64_t passed_nsec; /* last time it was skipped, as it owes; 0: it isn't skipped now */
        uint64_t visit_nsec;  /* left of the visits under way */
        bool paused;
        uint64_t paused_nsec; /* since when */
        struct bucket requests, connects;
        /* Since start. */
        uint64_t n_requests; /* and submissions, also unlimited ones */
        uint64_t n_pauses, pauses_nsec;
        uint64_t n_refused; /* connections, by max_connects */
};

struct tenancy {
        struct list_link link;       /* server.tenancies.list */
        uint64_t id;                 /* never reused while the daemon runs */
        struct server *server;       /* borrowed */
        struct tenant *tenant;       /* owned, of the store */
        struct tenant_config config; /* in force */
        bool from_config;
        struct listener *listener;    /* owned; NULL before the server serves */
        uint32_t n_peers;             /* connections, also those not introduced yet */
        uint32_t n_adopted;           /* of these: struct peers.n_adopted */
        unsigned descriptors_refused; /* of descriptors.c: refusals that were logged */
        struct turns turns;
        size_t pending_bytes;     /* of pending.c */
        bool said_held;           /* reaping.c */
        bool is_short;            /* at start: its reservation didn't fit */
        uint64_t reserved_before; /* during a reload: its reservation before */
};

#endif
