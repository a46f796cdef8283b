/* State of the server's services: each group belongs to one file of daemon/server/services/. */
#ifndef KVL_SERVER_SERVICES_H
#define KVL_SERVER_SERVICES_H

#include <stdbool.h>
#include <stdint.h>

#include <uv.h>

#include "base/hash.h"
#include "base/list.h"
#include "base/map.h"
#include "daemon/server/base/recorder-file.h"

struct chunk;
struct writer;

/* The daemon's traffic as a trace (recorder.h). */
struct recorder {
        bool on;
        struct hash_seed secret;
        uint64_t start_nsec;
        struct map requests;      /* number of a request and its namespace -> struct running */
        struct list_link running; /* struct running, longest idle first */
        uint32_t n_running;
        struct writer *writer;  /* of the last recording; its jobs own it once recording is off */
        struct chunk *filling;  /* owned; NULL: nothing waits to be handed on */
        unsigned n_writing;     /* chunks handed on */
        uint64_t waiting_bytes; /* of all chunks */
        uint64_t n_recorded, n_bytes; /* of the recording, also on their way to the disk */
        uint64_t n_lost;
        uint64_t n_unnamed;                 /* requests without a number, of all that began */
        char trouble[RECORDER_TROUBLE_MAX]; /* the disk's last error; "": none */
        char path[RECORDER_PATH_MAX]; /* of the file written last; before that its directory */
};

/* The threads that copy pages between tiers (movement.h). */
struct movement {
        uv_poll_t poll;   /* of the mover */
        uv_timer_t timer; /* runs while transfers wait for an event that isn't reported */
        uv_timer_t rings; /* runs while a client streams (prefetch.h) */
        bool is_watched;  /* `poll` is open */
        bool is_due;      /* a look in the next turn */
};

/* Stores that hosts share (remotes.h). */
struct remotes {
        struct list_link list;  /* struct remote_service.link */
        uv_timer_t timer;       /* runs while a remote has timed work */
        uv_timer_t watch;       /* runs if there are remotes: checks that they are reachable */
        bool is_due;            /* a look in the next turn */
        uint64_t n_descriptors; /* that remotes may use; at most a second old */
};

struct services {
        struct movement movement;
        struct remotes remotes;
        struct list_link disk_tiers; /* struct disk_tier.link */
        struct list_link queues;     /* struct queue_watch.link */
        uv_prepare_t queue_prepare;  /* active if there are queues */
        uv_timer_t leasables_timer;  /* runs until all namespaces were counted */
        uint32_t n_leasables_due;    /* not yet looked at since the last execution */
        uint32_t n_leasables_ticks;  /* since then */
        uv_timer_t periodic_timer;   /* runs while periodic work waits */
        uv_timer_t compact_timer;    /* runs after work, and while compaction has work */
        bool prealloc_wanted;        /* timers.c */
        uint64_t prealloc_nsec;      /* when leases made it look last */
        uv_timer_t sizing_timer;     /* runs while any tenant has a sizer or a schedule */
};

#endif
