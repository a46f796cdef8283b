/* What the server knows of all of its peers together. */
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

/* What peers tell the rooms above; filled in by daemon/server/wiring.c. */
struct peers_wiring {
        /* The peer sent a request, which is handled now. */
        void (*on_frame)(struct peer *p, const struct frame *f);
        /* A FETCH of its ring is begun, as fetches_submit() (daemon/server/waits/fetches.h) says.
         */
        bool (*on_fetch)(struct attach *a, const struct fetch_request *rq, uint64_t user_data,
                struct submit_result *ret);
        void (*on_visit)(
                struct server *s); /* something is executed: before, or after, in this turn */
        void (*on_executed)(struct server *s);   /* something was executed */
        void (*on_member_end)(struct server *s); /* what a client held has gone back */
};

struct peers {
        const struct peers_wiring *wiring;
        struct list_link list;      /* struct peer.links.all: all of them */
        struct list_link backlog;   /* struct peer.links.backlog: of no tenant, has work */
        struct list_link hellos;    /* struct peer.links.hello: not introduced yet, oldest first */
        struct list_link unread;    /* struct peer.links.unread: waits for what no event tells */
        struct list_link lingering; /* struct peer.links.linger: dead, what it held isn't reused */
        unsigned look_msec;         /* until those in `unread` are looked at next */
        uint64_t n_starved;         /* replies the kernel took late, descriptors being under way */
        uint32_t n_peers, n_refused;
        uint32_t n_monitors; /* of these: on the monitor socket */
        uint32_t n_adopted;  /* of these: clients of the daemon before, that wait to resume */
        uint32_t n_resumed;  /* clients of the daemon before that came back */
        uint64_t last_id;
        uint64_t n_violations;
        size_t pending_bytes;   /* of pending.c */
        uint64_t n_overflows;   /* peers muted or dropped for it, since start */
        uint64_t policies_nsec; /* when policies did their housekeeping last (quiet.c) */
        bool was_executed;      /* something, since the last quiet while */
        uv_timer_t hello_timer, look_timer, quiet_timer;
        uv_timer_t grace_timer; /* peer-leave.c; runs while peers linger */
};

/* Whose turn it is, among the tenants (daemon/server/peers/turns.h). */
struct tenants_turns {
        struct list_link due, paused; /* struct tenancy.turns.link */
        struct tenancy *of;           /* is being served; NULL */
        uint64_t ends_nsec;           /* its turn */
        uint64_t share_nsec;          /* TURNS_SHARE_NSEC; tests set another */
        uv_check_t check;
        uv_timer_t timer; /* runs while tenants are paused */
};

#endif
