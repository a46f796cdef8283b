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
 * All with the connection's lock.
 */
#ifndef KVL_LIB_FLIGHT_H
#define KVL_LIB_FLIGHT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/list.h"
#include "client/lib/fast.h"
#include "client/lib/ring.h"
#include "client/lib/shm.h"

struct kvl_conn;
struct kvl_ns;
struct kvl_publish;
struct op;

/* Of a connection. */
struct flights {
        struct shm_map map;    /* owned: the client segment */
        struct ring ring;      /* in it; ring.header NULL: none */
        struct list_link list; /* oldest first */
        uint64_t last_id;
};

/* The segment is taken. What it completes is looked at from now on. */
void flights_init(struct kvl_conn *conn, struct shm_map *map);

/* After the connection is closed; nobody waits for any of it. Unmaps. Safe where there is none. */
void flights_deinit(struct kvl_conn *conn);

/*
 * Starts op->pages[0..op->n_asked-1]: a publish (each page is pinned first), or a free where
 * publish is NULL. Borrows both during the call. 0: the call is pending; it ends as over the
 * socket. -ENOTCONN (detail set); -ENOMEM; -EAGAIN: the ring is full, and op isn't one that is
 * waited for.
 */
int flight_start(struct op *op, const struct kvl_publish *publish);

/* The namespace goes away: its flights have no call any more, and give nothing back. */
void flights_forget_ns(struct kvl_ns *ns);

/* Rings where the daemon sleeps. */
void flights_ring(struct kvl_conn *conn);

/* REFILL, as flight_refill(). */
void flight_refill_locked(struct kvl_ns *ns, uint32_t n_pages);

/* ---- without the lock ------------------------------------------------------------------------ */

/* TOUCH for a lookup of n_keys, of which `page` is the deepest that was found. False: dropped. */
bool flight_touch(struct kvl_ns *ns, uint64_t request, uint32_t n_keys, uint32_t page,
        const struct fast_hit *hit);

/* REFILL by `n_pages` more than the magazine has, or up to its level. */
void flight_refill(struct kvl_ns *ns, uint32_t n_pages);

/* REQUEST_END. 0; -EAGAIN: the daemon doesn't read; -ENOTCONN; -EPROTO. */
int flight_request_end(struct kvl_ns *ns, uint64_t request);

#endif
