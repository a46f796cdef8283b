/*
 * Operations that a peer waits for: requests that are answered later, and pages that it fetches.
 * Each is an object of a file of daemon/server/waits/ (or tenants/) that embeds a struct pending.
 * The peer has a list of each kind, so the code that ends a peer needs to know none of them.
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
        PENDING_LEASE,  /* parked.c: waits for room, or behind a lease that does */
        PENDING_KEY,    /* key-waits.c: for a key that another client computes */
        PENDING_FETCH,  /* fetches.c: for a page of a lower tier */
        PENDING_IMPORT, /* imports.c: for pages of other hosts */
        PENDING_DISK,   /* durable.c: until a removal is durable on disk */
        /* Later requests of the peer wait until these are finished: */
        PENDING_DROP,   /* drops.c: until a removal in slices is finished */
        PENDING_TENANT, /* tenant-changes.c: until a tenant's change is stored and in force */
        PENDING_EVENTS, /* followers.c: for the next event */
        N_PENDING
};

struct pending_ops {
        enum pending_kind kind;
        /* The peer has ended or isn't to be answered: takes the operation off the peer's list
         * (pending_remove()), and frees it if nothing else holds it. */
        void (*drop)(struct pending *w);
        /* In a turn of the peer: continues at most `max` operations. Returns true if more are left.
         * NULL: they continue by themselves. */
        bool (*go_on)(struct peer *p, unsigned max);
};

struct pending {
        struct list_link link; /* struct pending_list.list */
        struct peer *peer;     /* borrowed; NULL: on no list, no peer is to be answered */
        const struct pending_ops *ops;
        size_t bytes;                /* daemon memory that it uses */
        struct frame_header request; /* of the request to answer; unused for a submission */
};

struct pending_list {
        struct list_link list; /* struct pending.link, the first one first */
        uint32_t n;
        size_t bytes; /* of all of them */
};

#endif
