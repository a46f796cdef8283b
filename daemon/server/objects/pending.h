/*
 * What a peer waits for: requests that are answered later, and pages that it fetches. Each is an
 * object of a file of daemon/server/waits/ (or of tenants/), which embeds a struct pending; the
 * peer has a list of each kind, so that whoever ends a peer needs to know none of them.
 */
#ifndef KVL_SERVER_OBJECTS_PENDING_H
#define KVL_SERVER_OBJECTS_PENDING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/list.h"
#include "proto/frame.h"

struct peer;
struct pending;

/* In the order in which they are dropped. */
enum pending_kind {
        PENDING_LEASE,  /* parked.c: waits for room, or behind one that does */
        PENDING_KEY,    /* key-waits.c: for a key that somebody computes */
        PENDING_FETCH,  /* fetches.c: for a page from below the device */
        PENDING_IMPORT, /* imports.c: for pages of other hosts */
        PENDING_DISK,   /* durable.c: until a disk has forgotten what was taken out */
        /* Nothing that the peer sent after these is handled before they are over: */
        PENDING_DROP,   /* drops.c: until all of something is gone */
        PENDING_TENANT, /* tenant-changes.c: until a tenant's change is written and in force */
        PENDING_EVENTS, /* followers.c: for what happens next */
        N_PENDING
};

struct pending_ops {
        enum pending_kind kind;
        /* The peer is gone, or isn't to be answered: takes it off the peer's list
         * (pending_remove()), and frees it where nothing else holds it. */
        void (*drop)(struct pending *w);
        /* In a turn of the peer: goes on with those that may, at most `max` of them. True: there
         * are more. NULL: they go on by themselves. */
        bool (*go_on)(struct peer *p, unsigned max);
};

struct pending {
        struct list_link link; /* struct pending_list.list */
        struct peer *peer;     /* borrowed; NULL: it is on no list, nobody is to be answered */
        const struct pending_ops *ops;
        size_t bytes;                /* that the daemon keeps for the peer by it */
        struct frame_header request; /* of what is answered later; of a submission: nothing */
};

struct pending_list {
        struct list_link list; /* struct pending.link, the first one first */
        uint32_t n;
        size_t bytes; /* of all of them */
};

#endif
