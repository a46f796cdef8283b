/*
 * The daemon as an object: the loop, the state (daemon/core), tenants and their sockets, peers.
 *
 *   server_init()  -> state and tenants, no socket yet: what the fuzzer drives
 *   server_start() -> runtime directory, lock, sockets, signals; then uv_run() by server_run()
 *   server_stop()  -> clients are told, output is flushed, the loop ends
 *   server_deinit()
 *
 * One thread (and those of libuv's pool for files: disk.h). Nothing here wakes up by itself but the
 * watchdog, where systemd asks for it, the sizer where a tenant has one (sizing-timer.h), what is
 * waited for (upkeep-timer.h), and once more after work (server_expect_quiet()).
 */
#ifndef KVL_SERVER_SERVER_H
#define KVL_SERVER_SERVER_H

#include <stdbool.h>
#include <stdint.h>

#include <uv.h>

#include "base/list.h"
#include "daemon/core/ground/detail.h"
#include "daemon/core/objects/store.h"
#include "daemon/core/recovery/recover.h"
#include "daemon/server/keeping/keeping.h"
#include "daemon/server/keeping/kept-sockets.h"
#include "daemon/server/services/descriptors.h"
#include "daemon/server/services/disk-tier.h"
#include "daemon/server/services/movement.h"
#include "daemon/server/services/recorder.h"
#include "daemon/server/settings/config.h"
#include "daemon/server/settings/rundir.h"
#include "daemon/server/settings/tenantdb.h"
#include "daemon/server/system/activation.h"
#include "daemon/server/system/calls.h"
#include "daemon/server/system/disk.h"
#include "daemon/server/system/exit-code.h"
#include "daemon/server/system/reaping.h"
#include "daemon/server/system/test-clock.h"
#include "daemon/server/system/turn-watch.h"
#include "daemon/server/waits/key-waits.h"
#include "proto/arena.h"
#include "proto/frame.h"

/* Most pages one message can name; kvlease.proto. */
#define MAX_LEASE_PAGES   4096
#define MAX_PUBLISH_PAGES 1024
#define MAX_LOOKUP_KEYS   1536
#define MAX_SESSION_PAGES 1024
#define MAX_LEASABLE_LOOK 8192 /* pages looked at for a LEASABLE: some 100 us; not tuned */
#define MAX_HELD_PAGES    256  /* each is looked for in all attachments of the group */

struct listener;
struct tenancy;

struct server {
        uv_loop_t loop;
        struct config_source source; /* borrowed, for reloads */
        struct config config;
        uint32_t n_options_pending; /* at the last reload: that differ and take a restart */
        struct tenantdb db;
        struct store store;
        uint64_t budget_bytes; /* of all pools */
        uint64_t start_nsec, ready_nsec;
        struct test_clock clock;
        uint64_t policies_nsec; /* when policies did their housekeeping last */
        bool old_sockets;       /* INBOUND_TEST_VARIABLE is set */
        bool keeps_state;       /* the state directory is there, and locked */
        struct disk disk;
        struct recorder recorder;

        struct list_link tenancies; /* struct tenancy.link, by id */
        uint64_t last_tenancy_id;
        struct listener *default_listener, *admin_listener,
                *monitor_listener; /* NULL before start */
        struct activation activation;
        struct keeping keeping;
        bool took_over;                   /* from an earlier kvleased: */
        struct recovery recovery;         /* what was found */
        uint32_t n_resumed;               /* clients of it that came back */
        struct kept_sockets kept_sockets; /* not taken yet */
        struct rundir rundir;
        int spare_fd;                     /* closed to accept and refuse when no other is left */
        int admin_fds[DESCRIPTORS_ADMIN]; /* of descriptors.c; -1 */
        bool serving;                     /* sockets are opened for tenants as they are made */

        struct list_link peers;   /* struct peer.link */
        struct list_link backlog; /* struct peer.backlog_link: of no tenant, has work */
        struct list_link hellos;  /* struct peer.hello_link: not introduced yet, oldest first */
        struct list_link unread;  /* struct peer.unread_link: waits for what no event tells */
        struct list_link
                lingering;  /* struct peer.linger_link: dead, what it held isn't reused yet */
        unsigned look_msec; /* until it is looked for next */
        uint64_t n_starved; /* replies the kernel took late, descriptors being under way */
        uint32_t n_peers, n_refused;
        uint32_t n_monitors; /* of these: on the monitor socket */
        uint32_t n_adopted;  /* of these: clients of the daemon before, that wait to resume */
        uint64_t last_peer_id, last_listener_id;
        uint64_t n_violations;
        struct calls calls;
        struct turn_watch turn_watch;

        /* For the one request being handled at a time. */
        struct arena arena;
        uint8_t out[FRAME_MAX_SIZE];
        uint32_t pages[MAX_LEASE_PAGES];
        uint32_t page_tokens[MAX_LOOKUP_KEYS]; /* of `pages`, where LOOKUP tells them */

        uv_idle_t work;
        uv_timer_t hello_timer, stop_timer, look_timer, quiet_timer, watchdog;
        struct list_link parked; /* struct peer.parked_link: has a lease that waits */
        struct list_link due;    /* struct peer.due_link: of these, to be tried again */
        struct map key_waits;    /* of key-waits.c: hash of a key -> struct key_group, owned */
        struct list_link key_waits_due; /* struct key_group.link: their announcements have ended */
        uv_timer_t wait_timer;          /* parked.c; runs while a lease waits for room */
        bool room_came;             /* something came free since the last round of tries began */
        bool in_round, is_retrying; /* parked.c */
        bool round_is_all;          /* the one begun last: not only of those at their deadline */
        uint64_t round_ended_nsec, round_busy_nsec; /* of the last round of all */
        struct list_link queues;                    /* of queues.c */
        uv_prepare_t queue_prepare;                 /* queues.c; active where there are queues */
        bool left_behind;           /* a thread is in a driver, or may be: _exit() */
        uv_timer_t recall_timer;    /* recalls.c; runs while sets are recalled */
        uv_timer_t grace_timer;     /* peer-leave.c; runs while peers linger */
        uv_timer_t leasables_timer; /* leasables.c; runs until all namespaces were looked at */
        uint32_t n_leasables_due;   /* that weren't since something was executed */
        uv_timer_t upkeep_timer;    /* upkeep-timer.c; runs while there is something to wait for */
        uv_timer_t compact_timer;   /* compact-timer.c; runs after work, and while there is some */
        bool stock_wanted;          /* compact-timer.c */
        uint64_t stock_nsec;        /* when leases made it look last */
        struct movement movement;
        struct list_link followers;      /* struct follower.link */
        uv_timer_t follow_timer;         /* followers.c; runs while there are any */
        uint64_t followed;               /* events that were there when they were looked at last */
        struct list_link disk_tiers;     /* struct disk_tier.link */
        struct list_link tenant_changes; /* of tenant-changes.c; owned */
        unsigned n_tenant_changes;
        struct reaping reaping;
        uv_signal_t signals[3];
        uv_timer_t
                sizing_timer; /* sizing-timer.c; runs while any tenant has a sizer or a schedule */
        size_t pending_bytes; /* of pending.c */
        uint64_t n_overflows; /* peers muted or dropped for it, since start */
        /* turns.c */
        struct list_link turns_due, turns_paused; /* struct tenancy.turns.link */
        struct tenancy *turn_of;                  /* is being served; NULL */
        uint64_t turn_ends_nsec;                  /* its */
        uint64_t turns_share_nsec;                /* TURNS_SHARE_NSEC; tests set another */
        uv_check_t turns_check;
        uv_timer_t turns_timer; /* runs while tenants are paused */
        bool stopping;
        bool leaving;    /* the process is about to end: server_deinit() */
        bool restarting; /* ends with EXIT_RESTART */
};

/*
 * Takes the configuration and the tenants of the database; opens devices, makes tenants. EXIT_OK,
 * else the error has been logged and nothing is left.
 */
enum exit_code server_init(
        struct server *s, struct config *config, const struct config_source *source);

/*
 * The same with a device of the caller's (taken) and a database that can't be written: what
 * administrators change fails and is rolled back. For the fuzzer. 0 or -errno, nothing left.
 */
int server_init_for_test(struct server *s, struct config *config, struct device *device,
        uint64_t budget_bytes, uint64_t extent_bytes);

enum exit_code server_start(struct server *s);

/* Until a signal or server_stop(): EXIT_OK; or server_restart(): EXIT_RESTART. */
enum exit_code server_run(struct server *s);

/* Tells clients and ends the loop as soon as they have taken it, or at the stop timeout. */
void server_stop(struct server *s);

/* The same, for whoever started this process to start it again. */
void server_restart(struct server *s);

/* Peers, sockets and state go; memory that clients still map stays theirs. `left_behind` tells how
 * the process is to end. */
void server_deinit(struct server *s);

/* The time now, for every call into daemon/core that takes one. */
static inline uint64_t server_now(const struct server *s)
{
        return test_clock_now(&s->clock);
}

/* There may be background work or backlog: does it in the next turns. Cheap to repeat. */
void server_kick(struct server *s);

/* Watches the time of who must introduce itself: there is somebody, or the time has changed. */
void server_await_hello(struct server *s);

/*
 * Something was executed, so more may follow, by clients that don't ring for a touch: rings are
 * looked at once more after a while. Where nothing happens no timer runs. Cheap to repeat.
 */
void server_expect_quiet(struct server *s);

/* Takes what clients submitted without ringing. While there is any it is looked for again. */
void server_look_at_rings(struct server *s);

/*
 * A request is about to be handled. After a while in which nobody looked, the rings come first:
 * what is evicted for the request is chosen by hits until then.
 */
void server_wake(struct server *s);

struct peer;

/* The peer waits for what no event tells: peer_look() will be called. Cheap to repeat. */
void server_look_later(struct server *s, struct peer *p);

/* A peer has no more output: while stopping, that may have been the last. */
void server_output_drained(struct server *s);

/* STATUS= of the service manager. */
void server_notify_status(struct server *s);

#endif
