/*
 * The daemon as an object: the loop, the state (daemon/core), tenants and their sockets, peers.
 * Each member belongs to one module or file; daemon/server/server.h makes and ends all of them.
 */
#ifndef KVL_SERVER_OBJECTS_SERVER_H
#define KVL_SERVER_OBJECTS_SERVER_H

#include <stdbool.h>
#include <stdint.h>

#include <uv.h>

#include "base/list.h"
#include "daemon/core/state/store.h"
#include "daemon/core/life/recover.h"
#include "daemon/server/config/rundir.h"
#include "daemon/server/config/tenantdb.h"
#include "daemon/server/peers/keeping.h"
#include "daemon/server/peers/loop.h"
#include "daemon/server/peers/peers.h"
#include "daemon/server/peers/scratch.h"
#include "daemon/server/peers/services.h"
#include "daemon/server/peers/sockets.h"
#include "daemon/server/peers/waits.h"
#include "daemon/server/config/config.h"
#include "daemon/server/base/activation.h"
#include "daemon/server/base/calls.h"
#include "daemon/server/base/disk.h"
#include "daemon/server/base/test-clock.h"
#include "daemon/server/base/turn-watch.h"

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
