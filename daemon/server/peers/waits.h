/* Waiting requests of all peers together: each struct belongs to one file of
 * daemon/server/peers/. */
#ifndef KVL_SERVER_WAITS_H
#define KVL_SERVER_WAITS_H

#include <stdbool.h>
#include <stdint.h>

#include <uv.h>

#include "base/list.h"
#include "base/map.h"

/* Leases that wait (parked.c). */
struct leases {
        struct list_link parked;    /* struct peer.links.parked: have a waiting lease */
        struct list_link due;       /* struct peer.links.due: those to be tried again */
        uv_timer_t timer;           /* runs while a lease waits for room */
        bool room_came;             /* memory was freed since the last round of tries began */
        bool in_round, is_retrying; /* a round of tries runs; one of its tries runs */
        bool round_is_all; /* the last round tries all, not only leases at their deadline */
        uint64_t round_ended_nsec, round_busy_nsec; /* of the last round that tried all */
};

/* Keys that one client computes while others wait for them (key-waits.c). */
struct key_waits {
        struct map groups;    /* hash of a key -> struct key_group, owned */
        struct list_link due; /* struct key_group.link: their announcements have ended */
};

/* Checks of the whole state (checks.c). */
struct checks {
        struct list_link list; /* struct checking.link: whose slice is next */
};

/* Requests that follow the event log (followers.c). */
struct followers {
        struct list_link list; /* struct follower.link */
        uv_timer_t timer;      /* runs while there are any */
        uint64_t seen;         /* number of events at the last look */
};

#endif
