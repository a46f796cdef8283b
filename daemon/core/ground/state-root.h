/*
 * The root of what outlives kvleased: a page of memory that is kept as KEEP_STATE (keep.h), and
 * with nothing kept a page of the process itself, so that everybody counts in the same place.
 *
 *   made (zeros, then the rest, the magic last) -> adopted by the daemon that comes after
 *                                             \-> unknown or damaged: dropped with everything kept
 *
 * The layout of all kept memory has one version, and it stands here: what a daemon doesn't know it
 * doesn't read. Loop thread only.
 */
#ifndef KVL_CORE_STATE_ROOT_H
#define KVL_CORE_STATE_ROOT_H

#include <assert.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/core/ground/keep.h"
#include "gpu/device.h"

struct detail;
struct store;

/* Of the root, of records (records.h) and of whatever else is kept but extents and the segments
 * that clients see, which have their own. */
#define STATE_LAYOUT_VERSION 3
#define STATE_MAGIC          UINT64_C(0x31307473736c766b) /* "kvlsst01", little-endian */
#define STATE_BYTES          4096

/*
 * A device that has a canary (canary.h), whose number of keep.h is the row's, from 1. The value is
 * stored last.
 */
#define STATE_CANARIES 32 /* devices without members, and members; more are refused */
struct state_canary {
        _Atomic uint64_t value; /* of the canary that is kept, or that is to be made; 0: free */
        char device[DEVICE_NAME_MAX + 1];
        uint8_t reserved[7];
};

/* Whom the daemon serves, and at how many deaths of a daemon it served whom: culprit.h. Zeros:
 * nobody. */
struct state_serving {
        uint64_t tenant, client; /* culprit_mark(); id, 0: of a tenant, without one */
        uint64_t takes_over;     /* what it left is being taken over (0, 1) */
};

#define STATE_SUSPECTS 16 /* not tuned */
struct state_suspect {
        uint64_t tenant, client; /* client 0: all of the tenant */
        uint64_t last_nsec;      /* CLOCK_MONOTONIC: kept memory is gone when the machine stops */
        uint32_t n_deaths;       /* 0: the row is free */
        uint32_t n_taking_over;  /* of these */
};

/*
 * Counters hold the last number given, stored before the number is used: a kill leaves one out at
 * most. Recovery raises those that are below what it finds.
 */
struct state_root {
        uint64_t magic;
        uint32_t version; /* STATE_LAYOUT_VERSION */
        uint32_t bytes;   /* STATE_BYTES */
        uint32_t sum;     /* of the fields up to here, and of their meaning: state_sum() */
        uint32_t reserved;
        _Atomic uint64_t boot_epoch;
        _Atomic uint64_t n_restarts; /* adoptions since it was made */
        _Atomic uint64_t last_ns_id, last_nsset_id;
        _Atomic uint64_t last_member_id, last_group_id;
        _Atomic uint64_t last_extent, last_records; /* numbers of keep.h; start over at the end */
        _Atomic uint64_t is_unsure; /* clients may have been told of what wasn't kept (0, 1) */
        struct state_canary canaries[STATE_CANARIES];
        struct state_serving serving;
        _Atomic uint64_t crashed; /* it died by a fault of its own (0, 1) */
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

/* The next number, > 0. */
static inline uint64_t state_next(_Atomic uint64_t *counter)
{
        uint64_t n = atomic_load_explicit(counter, memory_order_relaxed) + 1;

        atomic_store_explicit(counter, n, memory_order_release);
        return n;
}

/* At least n. */
static inline void state_raise(_Atomic uint64_t *counter, uint64_t n)
{
        if (atomic_load_explicit(counter, memory_order_relaxed) < n)
                atomic_store_explicit(counter, n, memory_order_release);
}

#endif
