/*
 * Leases that wait: for room, or for a device that makes it (daemon/core/memory/wait.h). A waiting
 * request has changed nothing that the peer can see. Its peer is *parked*, with a copy of the
 * frame; only further LEASEs of the peer wait behind it, in order. Its other requests are handled:
 * they may free or unmap what a lease waits for. Replies carry the number of the request.
 *
 * A request is run again after an event of the device's queue, after memory was freed, and at its
 * deadline. While any waits for room it is also polled: pins in segments end without an event. The
 * order is that of wait_order().
 */
#ifndef KVL_SERVER_PARKED_H
#define KVL_SERVER_PARKED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/frame.h"

struct server;
struct peer;
struct pool;

/* Bytes that may wait behind a request, some 500 usual LEASEs; further ones of its peer are
 * refused. The peer's other requests are read: it may have to give back recalled memory. Not
 * tuned. */
#define PARKED_MAX_BEHIND_BYTES 65536

/* Interval of tries while no freed memory is reported: a pin in a segment ends without an event.
 * Not tuned. */
#define PARKED_POLL_MSEC 10

/* Least interval between rounds of tries, even if memory is freed more often. Not tuned. */
#define PARKED_PAUSE_MSEC 1

/* A round of tries takes at most 1/PARKED_LOAD of the time. It pauses after PARKED_TURN_NSEC until
 * the next turn, so that other requests are handled in between. Not tuned. */
#define PARKED_LOAD      10
#define PARKED_TURN_NSEC 200000

/* Initialises the server's part. */
void parked_init(struct server *s);

/* True if the request must wait behind others of its peer, before its first run. */
bool parked_comes_behind(const struct peer *p, uint16_t type);

/* Runs the request again. Returns true if it was answered; false: it still waits. */
typedef bool (*parked_run_fn)(struct peer *p, const struct frame *f);

/* Parks the request, to be run again by `run`. Returns 0; -ENOMEM (also if max_pending is near) or
 * -EBUSY (too many of the peer wait): refuse the request. Its lease is called off on failure, or if
 * no peer is there to be answered. */
int parked_add(struct peer *p, const struct frame *f, parked_run_fn run);

/* The peer closes the namespace `ns_id`, or (0) all with BYE: leases there are answered with
 * -ENOENT first. */
void parked_cancel(struct peer *p, uint32_t ns_id);

/* Requests run again in one loop turn: each may examine all pages of its tenant. Not tuned. */
#define PARKED_RETRIES_PER_TURN 16

/* Makes all leases due that wait for the pool's device (NULL: all leases): call parked_retry()
 * until it returns false. Leases that wait for room have a round soon. */
void parked_make_due(struct server *s, const struct pool *pool);

/*
 * Runs requests that are due for the pool again, in the order in which they became due, at most
 * PARKED_RETRIES_PER_TURN of them. An answered peer is scheduled, to continue its later input.
 * Returns true if more are due.
 */
bool parked_retry(struct server *s, const struct pool *pool);

/* A turn of the loop: tries that aren't due to a queue. Returns true if there is more to do. */
bool parked_work(struct server *s);

/* Answers all of them with DRAINING at once, without a search for room. */
void parked_refuse(struct server *s);

#endif
