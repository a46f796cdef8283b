/*
 * Bound of the daemon's memory for waiting peers of tenants: unsent output, and stored requests
 * (leases and keys that wait). Each peer has bounds of its own (outqueue.h, objects/pending.h);
 * max_pending of [daemon] bounds all of them together.
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

#include <stddef.h>

#include "daemon/server/objects/pending.h"

struct peer;

/* Text of a refusal. */
#define PENDING_FULL_TEXT                                                                        \
        "kvleased has no memory to let the request wait: raise max_pending in [daemon], or ask " \
        "again later"

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

/* Removes the operation from its peer. Idempotent, also if it is all zero and was never added. */
void pending_remove(struct pending *w);

/* Drops all waiting operations of the kind without an answer. Idempotent. */
void pending_drop(struct peer *p, enum pending_kind kind);
void pending_drop_all(struct peer *p);

/* A turn of the peer: see `go_on` of struct pending_ops. */
bool pending_go_on(struct peer *p, enum pending_kind kind, unsigned max);

#endif
