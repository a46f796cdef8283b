/*
 * Leases that wait: for room, or for a device that makes it (daemon/core/quota/wait.h). A waiting
 * request has changed nothing that the peer can see. Its peer is *parked*, with a copy of the
 * frame; only further LEASEs of the peer wait behind it, in order. Its other requests are handled:
 * they may free or unmap what a lease waits for. Replies carry the number of the request.
 *
 * A request is run again after an event of the device's queue, after memory was freed, now and then
 * while any waits for room (pins in segments end without an event), and at its deadline. The order
 * is that of wait_order().
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

/* While this much waits behind a request, further LEASEs of its peer are refused: some 500 usual
 * ones. It is read on: it may have to give back what is recalled. Not tuned. */
#define PARKED_MAX_BEHIND_BYTES 65536

/* How often leases that wait for room are tried while nothing is said to have come free: a pin in a
 * segment goes without a word. Not tuned. */
#define PARKED_POLL_MSEC 10

/* Least interval between rounds of tries, even if memory is freed more often. Not tuned. */
#define PARKED_PAUSE_MSEC 1

/* A round of tries takes at most 1/PARKED_LOAD of the time. It pauses after PARKED_TURN_NSEC until
 * the next turn, so that other requests are handled in between. Not tuned. */
#define PARKED_LOAD      10
#define PARKED_TURN_NSEC 200000

/* Sets up the server's part of it. */
void parked_init(struct server *s);

/* True if the request must wait behind others of its peer, before its first run. */
bool parked_comes_behind(const struct peer *p, uint16_t type);

/* Runs the request again. True: it was answered; false: it still waits. */
typedef bool (*parked_run_fn)(struct peer *p, const struct frame *f);

/* Parks the request, to be run again by `run`. Returns 0; -ENOMEM (also if max_pending is near) or
 * -EBUSY (too many of the peer wait): refuse the request. Its lease is called off on failure, or if
 * no peer is there to be answered. */
int parked_add(struct peer *p, const struct frame *f, parked_run_fn run);

/* The peer closes the namespace `ns_id`, or (0) all and says goodbye: what waits for that is
 * answered with -ENOENT first. */
void parked_cancel(struct peer *p, uint32_t ns_id);

/*
 * Requests run again in one loop turn. One that is refused may have weighed all pages of its tenant
 * before. Not tuned.
 */
#define PARKED_RETRIES_PER_TURN 16

/* All that wait for the pool's device now are due: parked_retry() until it returns false. Those
 * that wait for room have a round soon. NULL: all that wait are due. */
void parked_make_due(struct server *s, const struct pool *pool);

/*
 * Runs requests that are due for the pool again, in the order in which they became due, at most
 * PARKED_RETRIES_PER_TURN of them. An answered peer is scheduled, to continue its later input.
 * Returns true if more are due.
 */
bool parked_retry(struct server *s, const struct pool *pool);

/* A turn of the loop: tries that aren't due to a queue. Returns true if there is more to do. */
bool parked_work(struct server *s);

/* All of them are answered with DRAINING, at once: nothing is looked for to say so. */
void parked_refuse(struct server *s);

#endif
