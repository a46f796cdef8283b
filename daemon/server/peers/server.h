/*
 * The daemon as an object: the loop, the state (daemon/core), tenants and their sockets, peers.
 * Each member belongs to one module or file; daemon/server/server.h makes and ends all of them.
 */
#ifndef KVL_SERVER_OBJECTS_SERVER_H
#define KVL_SERVER_OBJECTS_SERVER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <uv.h>

#include "base/list.h"
#include "daemon/core/state/store.h"
#include "base/map.h"
#include "base/hash.h"
#include "daemon/core/life/recover.h"
#include "daemon/server/config/rundir.h"
#include "daemon/server/config/tenantdb.h"
#include "daemon/server/peers/keeping.h"
#include "daemon/server/peers/loop.h"
#include "daemon/server/config/config.h"
#include "daemon/server/base/activation.h"
#include "daemon/server/base/calls.h"
#include "daemon/server/base/disk.h"
#include "daemon/server/base/test-clock.h"
#include "daemon/server/base/turn-watch.h"
#include "daemon/server/base/recorder-file.h"
#include "policy/bucket.h"
#include "proto/arena.h"
#include "proto/frame.h"

struct tenant;
struct chunk;
struct writer;
struct kept_socket;
struct listener;
struct reaper;
struct frame;
struct peer;
struct server;
struct tenancy;

/* Most pages one message can name; kvlease.proto. */
#define MAX_LEASE_PAGES   4096
#define MAX_PUBLISH_PAGES 1024
#define MAX_LOOKUP_KEYS   1536
#define MAX_SESSION_PAGES 1024
#define MAX_LEASABLE_LOOK 8192 /* pages looked at for a LEASABLE: some 100 us; not tuned */
#define MAX_HELD_PAGES    256  /* each is searched in all attachments of the group */

struct scratch {
        struct arena arena;          /* of messages */
        uint8_t out[FRAME_MAX_SIZE]; /* of its reply */
        uint32_t pages[MAX_LEASE_PAGES];
        uint32_t page_tokens[MAX_LOOKUP_KEYS]; /* of `pages`, where LOOKUP tells them */
};

/* Callbacks of peers, filled in by daemon/server/wiring.c. */
struct peers_wiring {
        /* Handles a request of the peer. */
        void (*on_frame)(struct peer *p, const struct frame *f);
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
        uv_timer_t grace_timer; /* peer-end.c; runs while peers linger */
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

/* Descriptors reserved for administrators: for four of them, and files that they write. Not
 * tuned. */
#define SOCKETS_ADMIN_FDS 12

struct sockets {
        struct listener *default_listener, *admin_listener,
                *monitor_listener; /* owned; NULL before start. Tenants have theirs */
        uint64_t last_listener_id;
        bool old_sockets; /* INBOUND_TEST_VARIABLE is set */
        int spare_fd;     /* closed to accept and refuse a connection if no other is free */
        int admin_fds[SOCKETS_ADMIN_FDS]; /* admin_fds_hold(); -1 */
};

/* Listening sockets of the previous process (kept-sockets.h). */
struct kept_sockets {
        struct kept_socket *sockets; /* owned; those that no listener has taken yet */
        size_t n;
};

/* How memory and connections are returned to the system (reaping.h). */
struct reaping {
        struct reaper *reaper; /* owned; NULL: there is none */
        uv_poll_t poll;
        uv_timer_t timer; /* runs while anything is being closed */
};

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

/* From the start of the process to its end. */
struct life {
        uint64_t start_nsec, ready_nsec;
        bool keeps_state;         /* the state directory is there, and locked */
        bool took_over;           /* from an earlier kvleased: */
        struct recovery recovery; /* recovered objects */
        bool serving;             /* sockets are opened for tenants as they are made */
        bool stopping;
        bool leaving;     /* the process is about to end: server_deinit() */
        bool restarting;  /* ends with EXIT_RESTART */
        bool left_behind; /* a thread may be in a driver: end by _exit() */
        uv_timer_t stop_timer, watchdog;
        uv_signal_t signals[3];
};

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

struct tenancies {
        struct list_link list; /* struct tenancy.link, by id */
        uint64_t last_id;
        struct list_link changes; /* of tenant-changes.c; owned */
        unsigned n_changes;
};

struct server {
        struct loop loop;
        struct life life;
        struct test_clock clock;
        struct config_source source; /* borrowed, for reloads */
        struct config config;        /* in force; its files and tenants are those read last */
        struct config next; /* as read last, without files and tenants; for the next start */
        uint32_t n_options_pending; /* options that differ between the two and need a restart */
        struct tenantdb db;
        struct disk disk;
        struct rundir rundir;
        struct activation activation;
        struct keeping keeping;
        struct store store;
        uint64_t budget_bytes; /* of all pools */
        struct sockets sockets;
        struct kept_sockets kept_sockets;
        struct reaping reaping;
        struct tenancies tenancies;
        struct peers peers;
        struct tenants_turns turns;
        struct scratch scratch;
        struct calls calls;
        struct turn_watch turn_watch;
        struct leases leases;
        struct key_waits key_waits;
        struct checks checks;
        struct followers followers;
        uv_timer_t recall_timer; /* recalls.c; runs while sets are recalled */
        struct services services;
        struct recorder recorder;
};

/* The time now, for every call into daemon/core that takes one. */
static inline uint64_t server_now(const struct server *s)
{
        return test_clock_now(&s->clock);
}

/* Adds a note to the event log, now. */
static inline void server_note(struct server *s, const struct event_note *n)
{
        event_note(&s->store.event_log, server_now(s), n);
}

#endif
