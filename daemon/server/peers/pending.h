/*
 * The daemon's memory for what peers of tenants wait for: output that they haven't taken, and
 * requests that are kept for them (leases and keys that wait). Each peer has bounds of its own
 * (outqueue.h, and what it waits for: objects/pending.h); max_pending of [daemon] bounds all of
 * them together.
 *
 * Three quarters of it are given out by asking: a peer may get at most what is *left* of them, and
 * nothing where its tenant has more than that already. So who has most comes to it first, and a
 * tenant alone gets no more than half. It isn't read from until it takes its output, and no further
 * request is kept for it. Who takes its output at once notices nothing. The rest is for what is
 * sent unasked. Where that is gone, too, the peer that has most unsent output, of the tenant
 * that has most among those with any, breaks a rule: it is muted or dropped.
 *
 * Administrators aren't counted: they are never held for what others left.
 */
#ifndef KVL_SERVER_PENDING_H
#define KVL_SERVER_PENDING_H

#include <stddef.h>

#include "daemon/server/objects/pending.h"

struct peer;

/* Where a request can't be kept. */
#define PENDING_FULL_TEXT                                                                        \
        "kvleased has no memory to let the request wait: raise max_pending in [daemon], or ask " \
        "again later"

/* What the daemon keeps for the peer may have changed: it is counted anew. Cheap. */
void pending_recount(struct peer *p);

/* Counts anew after something was sent to the peer. Somebody may be muted or doomed after that,
 * also the peer itself. */
void pending_check(struct peer *p);

/* While the peer has more unsent output than that, nothing more is read from it. */
size_t pending_hold_bytes(const struct peer *p);

/* How many bytes may be kept for the peer in addition. */
size_t pending_left(const struct peer *p);

/* ---- what a peer waits for ------------------------------------------------------------------- */

/* A new peer waits for nothing. */
void pending_init(struct peer *p);

/* The peer waits for it from now on, behind others of the kind; or before them (`first`). */
void pending_add(struct pending *w, struct peer *p, const struct pending_ops *ops, size_t bytes,
        const struct frame_header *request, bool first);

/* The peer doesn't wait for it any more. Safe to repeat, also where it was never added and is all
 * zero. */
void pending_remove(struct pending *w);

/* Nobody is to be answered: all of the kind are dropped. Safe to repeat. */
void pending_drop(struct peer *p, enum pending_kind kind);
void pending_drop_all(struct peer *p);

/* A turn of the peer, as `go_on` of struct pending_ops. */
bool pending_go_on(struct peer *p, enum pending_kind kind, unsigned max);

#endif
