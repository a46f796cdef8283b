/* State that covers all peers of the server. */
#ifndef KVL_SERVER_PEERS_H
#define KVL_SERVER_PEERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <uv.h>

#include "base/list.h"

struct attach;
struct fetch_request;
struct frame;
struct peer;
struct server;
struct submit_result;
struct tenancy;

/* Callbacks of peers, filled in by daemon/server/wiring.c. */
struct peers_wiring {
        /* Handles a request of the peer. */
        void (*on_frame)(struct peer *p, const struct frame *f);
        /* Begins a FETCH of its ring; see fetches_submit() (daemon/server/peers/fetches.h). */
        bool (*on_fetch)(struct attach *a, const struct fetch_request *rq, uint64_t user_data,
                struct submit_result *ret);
        void (*on_visit)(struct server *s);      /* a peer's input is executed in this turn */
        void (*on_executed)(struct server *s);   /* submissions were executed */
        void (*on_member_end)(struct server *s); /* a client ended; its memory was freed */
};

struct peers {
        const struct peers_wiring *wiring;
        struct list_link list;      /* struct peer.links.all: all of them */
        struct list_link backlog;   /* struct peer.links.backlog: have work and no tenant */
        struct list_link hellos;    /* struct peer.links.hello: not introduced yet, oldest first */
        struct list_link unread;    /* struct peer.links.unread: polled by look_timer */
        struct list_link lingering; /* struct peer.links.linger: exited, memory not reused yet */
        unsigned look_msec;         /* interval after which `unread` is polled */
        uint64_t n_starved; /* replies that the kernel delayed because of descriptors in flight */
        uint32_t n_peers, n_refused;
        uint32_t n_monitors; /* of these: on the monitor socket */
        uint32_t n_adopted;  /* of these: clients of the previous daemon that may still resume */
        uint32_t n_resumed;  /* clients of the previous daemon that have resumed */
        uint64_t last_id;
        uint64_t n_violations;
        size_t pending_bytes;   /* of pending.c */
        uint64_t n_overflows;   /* peers muted or dropped over max_pending, since start */
        uint64_t policies_nsec; /* last housekeeping of policies (idle-interval.c) */
        bool was_executed;      /* input was executed since the last idle interval */
        uv_timer_t hello_timer, look_timer, idle_timer;
        uv_timer_t grace_timer; /* peer-leave.c; runs while peers linger */
};

/* Scheduling among the tenants (daemon/server/peers/turns.h). */
struct tenants_turns {
        struct list_link due, paused; /* struct tenancy.turns.link */
        struct tenancy *of;           /* the tenant being served; NULL */
        uint64_t ends_nsec;           /* its turn */
        uint64_t share_nsec;          /* TURNS_SHARE_NSEC; tests set another */
        uv_check_t check;
        uv_prepare_t prepare;
        uv_timer_t timer; /* runs while tenants are paused */
};

#endif
