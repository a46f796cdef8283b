/* Requests of a connection under way through its rings: publishes and frees (flight.h of rings/),
 * and fetches (fetch.h there). The structs are here because a connection embeds them. */
#ifndef KVL_LIB_IN_FLIGHT_H
#define KVL_LIB_IN_FLIGHT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/list.h"
#include "client/lib/shared/ring.h"
#include "client/lib/shared/shm.h"

struct fetching;
struct flight;

/* Flights of a connection, and the rings that carry them and the fetches. */
struct flights {
        struct shm_map map;    /* owned: the client segment */
        struct ring ring;      /* in it; ring.header NULL: none */
        struct list_link list; /* oldest first */
        struct flight *next;   /* the oldest that isn't submitted whole; NULL: there is none */
        uint64_t last_id;
        bool is_with; /* the last PUBLISHes had a WITH, which may apply to the next ones, too */
};

/* Limit on a connection's fetches under way through its rings, a power of two: as many as the
 * daemon begins for one client's namespace. */
#define FETCHES_MAX 256

/* A page that the daemon was asked to fetch. */
struct fetch_slot {
        struct fetching *fetching; /* NULL: free */
        uint32_t index;            /* of its pages */
        uint64_t user_data;
        uint64_t position; /* of the submission */
};

/* Fetches of a connection. */
struct fetches {
        struct list_link list; /* those in rings, oldest first */
        struct fetch_slot slots[FETCHES_MAX];
        uint32_t n_begun;
        uint64_t serial;      /* of the submission made last */
        uint64_t resume_head; /* entries below it were executed by the previous daemon */
        bool was_resumed;     /* completions of the previous daemon may come */
};

#endif
