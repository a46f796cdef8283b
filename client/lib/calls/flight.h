/*
 * Publishing and freeing through the rings, from submission to completion.
 *
 * A flight is one publish or free of up to KVL_MAX_LEASE_PAGES pages. The daemon works and
 * completes in order, so flights are a queue: the next completion belongs to the oldest incomplete
 * flight. A flight that doesn't fit the ring is submitted in parts, each once the part before it is
 * complete. A publish goes on only if all parts before succeeded. Later flights wait.
 *
 *   started -> (part submitted -> completed)* -> its call proceeds
 *         \-> its caller gave up: no further parts; pins that it brings are dropped
 *
 * All with the connection's lock unless stated otherwise.
 */
#ifndef KVL_LIB_FLIGHT_H
#define KVL_LIB_FLIGHT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/list.h"
#include "client/lib/objects/in-flight.h"
#include "client/lib/shared/fast.h"
#include "proto/kvlease.pb-c.h"

struct kvl_conn;
struct kvl_ns;
struct kvl_publish;
struct flight;
struct op;

/* Takes the client segment, which has the rings. */
void flights_init(struct kvl_conn *conn, struct shm_map *map);

/* Unmaps the rings after the connection is closed; no call waits for any flight. Does nothing if
 * there are none. */
void flights_deinit(struct kvl_conn *conn);

/*
 * Runs a flight of op->pages[0..op->n_asked-1] to its end, or starts it (and takes the op). It is a
 * publish (each page is pinned first), or a free if publish is NULL. Both are borrowed during the
 * call. A flight waits while the ring is full. The results are those of the socket. As op_run() and
 * op_start(), without the lock.
 */
int flight_run(struct op *op, const struct kvl_publish *publish, uint64_t deadline_nsec);
int flight_start(struct op *op, const struct kvl_publish *publish);

/*
 * The two steps of a start. flight_prepare() copies pages and keys, and pins a publish's pages (in
 * shared memory). A prepared flight is in no queue, so it blocks no other, until it is launched or
 * dropped. Returns NULL if out of memory.
 *
 * flight_launch() ends the call if the connection is over, and else leaves it pending like a
 * started flight. Without shared memory (a publish only) the request goes over the socket.
 * flight_drop(NULL) does nothing.
 */
struct flight *flight_prepare(struct op *op, const struct kvl_publish *publish);
void flight_launch(struct flight *f);
void flight_drop(struct flight *f);

/* Returns the most bytes of token ids that fit the PUBLISH of so many pages, at most
 * KVL_MAX_PUBLISH_PAGES. */
size_t flight_max_ids_bytes(uint32_t n_pages);

/* Makes the PUBLISH message for the socket; borrows the arrays of `p`. Leaves out token ids that
 * don't fit. */
Kvlease__V1__PublishRequest flight_message(const struct kvl_ns *ns, const struct kvl_publish *p);

/* Forgets the namespace, which is being freed: its flights have no call any more, and give nothing
 * back. */
void flights_forget_ns(struct kvl_ns *ns);

/* Takes completions, then submits as much as there is room for. Returns true if there were any. */
bool flights_look(struct kvl_conn *conn);

/* The connection is over: takes earlier completions, and ends the rest with `code`. */
void flights_broken(struct kvl_conn *conn, int code, const char *why);

/* Rings if the daemon sleeps; not while it is away. */
void flights_ring(struct kvl_conn *conn);

/* The daemon is back, and may have missed the last bell: rings. */
void flights_back(struct kvl_conn *conn);

/* Submits a REFILL, as flight_refill() does. */
void flight_refill_locked(struct kvl_ns *ns, uint32_t n_pages);

/* ---- without the lock ------------------------------------------------------------------------ */

/* Submits a TOUCH for a lookup of n_keys whose deepest found page is `page`. Returns false if it
 * was dropped. */
bool flight_touch(struct kvl_ns *ns, uint64_t request, uint32_t n_keys, uint32_t page,
        const struct fast_hit *hit);

/* Submits a REFILL by `n_pages` more than the magazine has; 0: up to its level. */
void flight_refill(struct kvl_ns *ns, uint32_t n_pages);

/* Submits an EXPECT of a page with this generation, and rings. Returns 0; -EAGAIN: the daemon
 * doesn't read, or another thread is submitting; -ENOTCONN; -EOPNOTSUPP: the daemon is too old for
 * it. */
int flight_expect(struct kvl_ns *ns, uint32_t page, uint64_t generation, uint32_t ttl_msec);

/* Submits a REQUEST_END with this ending. Returns 0; -EAGAIN: the daemon doesn't read; -ENOTCONN;
 * -EPROTO. */
int flight_request_end(struct kvl_ns *ns, uint64_t request, uint32_t ending);

#endif
