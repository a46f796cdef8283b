/* What the services of the server keep: each group is of one file of daemon/server/services/. */
#ifndef KVL_SERVER_SERVICES_H
#define KVL_SERVER_SERVICES_H

#include <stdbool.h>
#include <stdint.h>

#include <uv.h>

#include "base/hash.h"
#include "base/list.h"
#include "base/map.h"
#include "daemon/server/system/recorder-file.h"

struct chunk;
struct writer;

/* The daemon's traffic as a trace (recorder.h). */
struct recorder {
        bool on;
        struct hash_seed secret;
        uint64_t start_nsec;
        struct map requests;      /* number of a request and its namespace -> struct running */
        struct list_link running; /* likewise, the one that was idle longest first */
        uint32_t n_running;
        struct writer *writer;  /* of the last recording; owned by its jobs once that is off */
        struct chunk *filling;  /* owned; NULL: nothing waits to be handed on */
        unsigned n_writing;     /* chunks handed on */
        uint64_t waiting_bytes; /* of all chunks */
        uint64_t n_recorded, n_bytes; /* of the recording, also on their way to the disk */
        uint64_t n_lost;
        uint64_t n_unnamed;                 /* requests without a number, of all that began */
        char trouble[RECORDER_TROUBLE_MAX]; /* why the disk took some last; "": it took all */
        char path[RECORDER_PATH_MAX];       /* written to last; its directory before */
};

/* The threads that copy pages between tiers (movement.h). */
struct movement {
        uv_poll_t poll;   /* of the mover */
        uv_timer_t timer; /* runs while something waits that nobody tells of */
        uv_timer_t rings; /* runs while somebody streams (prefetch.h) */
        bool is_watched;  /* `poll` is open */
        bool is_due;      /* a look in the next turn */
};

/* What other hosts share (remotes.h). */
struct remotes {
        struct list_link list;  /* struct remote_service.link */
        uv_timer_t timer;       /* runs while something is to be done at a time */
        uv_timer_t watch;       /* runs where there are any: are they reached? */
        bool is_due;            /* a look in the next turn */
        uint64_t n_descriptors; /* that they may take, as of a second ago at most */
};

struct services {
        struct movement movement;
        struct remotes remotes;
        struct list_link disk_tiers; /* struct disk_tier.link */
        struct list_link queues;     /* struct queue_watch.link */
        uv_prepare_t queue_prepare;  /* active where there are queues */
        uv_timer_t leasables_timer;  /* runs until all namespaces were looked at */
        uint32_t n_leasables_due;    /* that weren't since something was executed */
        uint32_t n_leasables_ticks;  /* since then */
        uv_timer_t upkeep_timer;     /* runs while there is something to wait for */
        uv_timer_t compact_timer;    /* runs after work, and while there is some */
        bool stock_wanted;           /* compact-timer.c */
        uint64_t stock_nsec;         /* when leases made it look last */
        uv_timer_t sizing_timer;     /* runs while any tenant has a sizer or a schedule */
};

#endif
