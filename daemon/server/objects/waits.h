/* Who waits for what, of all peers together: each struct is of one file of daemon/server/waits/. */
#ifndef KVL_SERVER_WAITS_H
#define KVL_SERVER_WAITS_H

#include <stdbool.h>
#include <stdint.h>

#include <uv.h>

#include "base/list.h"
#include "base/map.h"

/* Leases that wait (parked.c). */
struct leases {
        struct list_link parked;    /* struct peer.links.parked: has a lease that waits */
        struct list_link due;       /* struct peer.links.due: of these, to be tried again */
        uv_timer_t timer;           /* runs while a lease waits for room */
        bool room_came;             /* something came free since the last round of tries began */
        bool in_round, is_retrying; /* a round of tries is under way; so is one of its tries */
        bool round_is_all;          /* the one begun last: not only of those at their deadline */
        uint64_t round_ended_nsec, round_busy_nsec; /* of the last round of all */
};

/* Keys that somebody computes and others wait for (key-waits.c). */
struct key_waits {
        struct map groups;    /* hash of a key -> struct key_group, owned */
        struct list_link due; /* struct key_group.link: their announcements have ended */
};

/* Checks of the whole state (checks.c). */
struct checks {
        struct list_link list; /* struct checking.link: whose slice is next */
};

/* Who follows what happens (followers.c). */
struct followers {
        struct list_link list; /* struct follower.link */
        uv_timer_t timer;      /* runs while there are any */
        uint64_t seen;         /* events that were there when they were looked at last */
};

#endif
