/*
 * The root of the state that outlives kvleased: a page of memory that is stored as KEEP_STATE
 * (keep.h). Without a descriptor store it is a page of the process, so that counters have one
 * place.
 *
 *   made (zeros, then the rest, the magic last) -> adopted by the daemon that comes after
 *                                             \-> unknown or damaged: all stored memory dropped
 *
 * The layout of all kept memory has one version, STATE_LAYOUT_VERSION. A daemon doesn't read a
 * version that it doesn't know. Loop thread only.
 */
#ifndef KVL_CORE_STATE_ROOT_H
#define KVL_CORE_STATE_ROOT_H

#include <assert.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/core/state/keep.h"
#include "gpu/device.h"

struct detail;
struct store;

/* Covers the root, records (records.h) and all other stored memory, except extents and segments
 * that clients see, which have their own version. */
#define STATE_LAYOUT_VERSION 3
#define STATE_MAGIC          UINT64_C(0x31307473736c766b) /* "kvlsst01", little-endian */
#define STATE_BYTES          4096

/* A device that has a canary (canary.h). The row's number from 1 is the canary's in keep.h. The
 * value is stored last. */
#define STATE_CANARIES 32 /* devices and members of devices; more are refused */
struct state_canary {
        _Atomic uint64_t
                value; /* of a canary that is stored or about to be made; 0: the row is free */
        char device[DEVICE_NAME_MAX + 1];
        uint8_t reserved[7];
};

/* The tenant and client that the daemon serves now: suspect.h. Zeros: none. */
struct state_serving {
        uint64_t tenant, client; /* suspect_mark(); client id, 0: work of the tenant alone */
        uint64_t takes_over;     /* recovering the client's state (0, 1) */
};

#define STATE_SUSPECTS 16 /* not tuned; a suspect was served when daemons died */
struct state_suspect {
        uint64_t tenant, client; /* client 0: all clients of the tenant */
        uint64_t last_nsec;      /* CLOCK_MONOTONIC; stored memory doesn't survive a reboot */
        uint32_t n_deaths;       /* 0: the row is free */
        uint32_t n_taking_over;  /* of these, during a recovery */
};

/* Counters hold the last number given. They are stored before the number is used: a kill skips at
 * most one number. Recovery raises counters that are below the numbers it finds. */
struct state_root {
        uint64_t magic;
        uint32_t version; /* STATE_LAYOUT_VERSION */
        uint32_t bytes;   /* STATE_BYTES */
        uint32_t sum;     /* state_sum() of the fields so far and of their meaning */
        uint32_t reserved;
        _Atomic uint64_t boot_epoch;
        _Atomic uint64_t n_restarts; /* adoptions since it was made */
        _Atomic uint64_t last_ns_id, last_nsset_id;
        _Atomic uint64_t last_member_id, last_group_id;
        _Atomic uint64_t last_extent, last_records; /* numbers of keep.h; wrap around at the end */
        _Atomic uint64_t is_unsure; /* clients may know of objects that weren't stored (0, 1) */
        struct state_canary canaries[STATE_CANARIES];
        struct state_serving serving;
        _Atomic uint64_t crashed; /* the daemon died by its own fault (0, 1) */
        struct state_suspect suspects[STATE_SUSPECTS];
        uint8_t reserved2[STATE_BYTES - 128 - STATE_CANARIES * sizeof(struct state_canary) -
                          STATE_SUSPECTS * sizeof(struct state_suspect)];
};
static_assert(sizeof(struct state_canary) == 80, "layout");
static_assert(offsetof(struct state_root, canaries) == 96, "layout");
static_assert(offsetof(struct state_root, serving) == 2656, "layout");
static_assert(offsetof(struct state_root, suspects) == 2688, "layout");
static_assert(sizeof(struct state_suspect) == 32, "layout");
static_assert(sizeof(struct state_root) == STATE_BYTES, "layout");

/* Takes and returns the next number, > 0. */
static inline uint64_t state_next(_Atomic uint64_t *counter)
{
        uint64_t n = atomic_load_explicit(counter, memory_order_relaxed) + 1;

        atomic_store_explicit(counter, n, memory_order_release);
        return n;
}

/* Raises the counter to at least n. */
static inline void state_raise(_Atomic uint64_t *counter, uint64_t n)
{
        if (atomic_load_explicit(counter, memory_order_relaxed) < n)
                atomic_store_explicit(counter, n, memory_order_release);
}

#endif
