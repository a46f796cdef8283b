/*
 * Publishing and freeing through the rings: what is under way between submission and completion.
 *
 * A flight is one publish or free of up to KVL_MAX_LEASE_PAGES pages. The daemon works in order and
 * completes in order, so flights are a queue: the next completion belongs to the oldest that isn't
 * complete. One that doesn't fit the ring is submitted in parts, each once the part before it is
 * complete (a publish goes on only where all before it went well), and what comes after it waits.
 *
 *   started -> (part submitted -> completed)* -> its call proceeds
 *         \-> nobody waits any more: no further parts; pins that it brings are dropped
 *
 * All with the connection's lock, but for what says otherwise.
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

/* Unmaps the rings after the connection is closed; nobody waits for any flight. Safe where there
 * are none. */
void flights_deinit(struct kvl_conn *conn);

/*
 * Runs a flight of op->pages[0..op->n_asked-1] to its end, or starts it (and takes the op): a
 * publish (each page is pinned first), or a free where publish is NULL. Both are borrowed during
 * the call. It waits for room in the ring where that is full; it ends as over the socket. As
 * op_run() and op_start(), without the lock.
 */
int flight_run(struct op *op, const struct kvl_publish *publish, uint64_t deadline_nsec);
int flight_start(struct op *op, const struct kvl_publish *publish);

/*
 * The same in two steps: prepared, its pages and keys are copied and a publish's pages pinned (in
 * shared memory); it is in no queue, so that it holds up nothing, until it is launched or dropped.
 * NULL: out of memory. To launch ends its call where the connection is over, and else leaves it
 * pending as a flight that was started is; without shared memory (a publish only) the request goes
 * over the socket. NULL is dropped without effect.
 */
struct flight *flight_prepare(struct op *op, const struct kvl_publish *publish);
void flight_launch(struct flight *f);
void flight_drop(struct flight *f);

/* A publish as the message that goes over the socket; borrows what `p` has. */
Kvlease__V1__PublishRequest flight_message(const struct kvl_ns *ns, const struct kvl_publish *p);

/* Forgets the namespace, which goes away: its flights have no call any more, and give nothing
 * back. */
void flights_forget_ns(struct kvl_ns *ns);

/* Takes completions, submits what there is room for then. True: there were some. */
bool flights_look(struct kvl_conn *conn);

/* The connection is over: what was completed before is taken, the rest ends with `code`. */
void flights_broken(struct kvl_conn *conn, int code, const char *why);

/* Rings where the daemon sleeps; not while it is away. */
void flights_ring(struct kvl_conn *conn);

/* The daemon is back, and may not have heard the last bell: rings. */
void flights_back(struct kvl_conn *conn);

/* Submits a REFILL, as flight_refill() does. */
void flight_refill_locked(struct kvl_ns *ns, uint32_t n_pages);

/* ---- without the lock ------------------------------------------------------------------------ */

/* Submits a TOUCH for a lookup of n_keys, of which `page` is the deepest that was found. False:
 * dropped. */
bool flight_touch(struct kvl_ns *ns, uint64_t request, uint32_t n_keys, uint32_t page,
        const struct fast_hit *hit);

/* Submits a REFILL by `n_pages` more than the magazine has, or up to its level. */
void flight_refill(struct kvl_ns *ns, uint32_t n_pages);

/* Submits an EXPECT of a page with this generation, and rings. 0; -EAGAIN: the daemon doesn't read,
 * or another thread is submitting; -ENOTCONN; -EOPNOTSUPP: the daemon is too old for it. */
int flight_expect(struct kvl_ns *ns, uint32_t page, uint64_t generation, uint32_t ttl_msec);

/* Submits a REQUEST_END. 0; -EAGAIN: the daemon doesn't read; -ENOTCONN; -EPROTO. */
int flight_request_end(struct kvl_ns *ns, uint64_t request);

#endif
