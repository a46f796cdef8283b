/*
 * Bound of the daemon's memory for waiting peers of tenants: unsent output, and stored requests
 * (leases and keys that wait). Each peer has bounds of its own (outqueue.h,
 * and the lists below); max_pending of [daemon] bounds all of them together.
 *
 * Three quarters of max_pending are for answers. A peer may use at most the *rest* of these, and
 * nothing if its tenant already uses more than the rest. So the largest user reaches the bound
 * first, and a tenant alone gets at most half. A peer at the bound isn't read from until it takes
 * its output, and no further request is stored for it. A peer that takes its output at once is not
 * affected.
 *
 * The last quarter is for messages sent unasked. When that is used up, too, one peer is muted or
 * dropped as breaking a rule: of the tenant that uses most, the peer with most unsent output.
 *
 * Administrators aren't counted, so tenants' backlogs never hold them.
 */
#ifndef KVL_SERVER_PENDING_H
#define KVL_SERVER_PENDING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/list.h"
#include "proto/frame.h"
#include "proto/msg.h"

struct attach;
struct peer;
struct pending;
struct request;

/*
 * Operations that a peer waits for: requests that are answered later, and pages that it fetches.
 * Each is an object of a file of this folder (or of services/) that embeds a struct pending.
 * The peer has a list of each kind, so the code that ends a peer needs to know none of them.
 */

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
        /* Its namespace is closed: answers, and ends as drop() does. NULL: the same with the usual
         * refusal. */
        void (*cancel)(struct pending *w);
};

struct pending {
        struct list_link link; /* struct pending_list.list */
        struct peer *peer;     /* borrowed; NULL: on no list, no peer is to be answered */
        const struct pending_ops *ops;
        struct attach *attach; /* borrowed; it ends with this one. NULL: with its peer alone */
        size_t bytes;          /* daemon memory that it uses */
        struct frame_header request; /* of the request to answer; unused for a submission */
};

struct pending_list {
        struct list_link list; /* struct pending.link, the first one first */
        uint32_t n;
        size_t bytes; /* of all of them */
};

/* Text of a refusal. */
#define PENDING_FULL_TEXT                                                                        \
        "kvleased has no memory to let the request wait: raise max_pending in [daemon], or ask " \
        "again later"
#define PENDING_CLOSED_TEXT "the namespace was closed while the request waited"

/* Recounts the daemon's memory for the peer, which may have changed. Cheap. */
void pending_recount(struct peer *p);

/* Recounts after a message was sent to the peer. Afterwards a peer (also this one) may be muted or
 * doomed. */
void pending_check(struct peer *p);

/* Limit of unsent output, in bytes: a peer with more isn't read from. */
size_t pending_hold_bytes(const struct peer *p);

/* Bytes that may be stored for the peer in addition. */
size_t pending_left(const struct peer *p);

/* ---- waiting operations ---------------------------------------------------------------------- */

/* Starts with empty lists. */
void pending_init(struct peer *p);

/* Adds an operation that the peer waits for, behind those of its kind, or before them (`first`). */
void pending_add(struct pending *w, struct peer *p, const struct pending_ops *ops, size_t bytes,
        const struct frame_header *request, bool first);

/* Defers the request until the operation answers it. Does no more if the peer has hung up: then the
 * operation has no peer. */
void pending_defer(
        struct pending *w, struct request *rq, const struct pending_ops *ops, size_t bytes);

/* Answers the request of an operation that has ended, if it has a peer, and removes it. */
void pending_answer(struct pending *w, ProtobufCMessage *reply, int code, const char *detail);

/* Removes the operation from its peer. Idempotent, also if it is all zero and was never added. */
void pending_remove(struct pending *w);

/* Drops all waiting operations of the kind without an answer. Idempotent. */
void pending_drop(struct peer *p, enum pending_kind kind);
void pending_drop_all(struct peer *p);

/* The peer closes the namespace `ns_id`, or (0) all: operations there are answered with -ENOENT. */
void pending_cancel(struct peer *p, uint32_t ns_id);

/* A turn of the peer: see `go_on` of struct pending_ops. */
bool pending_go_on(struct peer *p, enum pending_kind kind, unsigned max);

#endif
