/*
 * Pages below the device that a call wants on it: each is asked for (FETCH), and its pin exchanged
 * for one of the page that has its key then. Likewise pages that are to be copied into leased ones,
 * or to go below the device (op.h, enum fetch_way).
 *
 *   WAITING -> BEGUN (asked for; here with a pin of its own on the page) -> ENDED
 *         ^-----/  once, where the page that was named was gone before it could be pinned
 *
 * Where memory is shared this goes through the rings, at most FETCHES_MAX at a time of a
 * connection, and completes in any order; else over the socket, in batches. A lookup's run ends
 * before the first page that can't be brought up, or isn't when its time is over: that is no error.
 *
 * A call that gives up leaves behind what is BEGUN, which nobody waits for then. A daemon that is
 * restarted forgets what it had begun: it is asked for again. All with the connection's lock.
 */
#ifndef KVL_LIB_FETCH_H
#define KVL_LIB_FETCH_H

#include <stdbool.h>
#include <stdint.h>

#include "client/lib/objects/in-flight.h"
#include "proto/kvlease.pb-c.h"
#include "proto/shm.h"

struct kvl_conn;
struct kvl_ns;
struct op;
struct op_fetch_steps;
struct op_type;

/* This bit of user_data says that a completion is of a FETCH; flights count too slowly to ever set
 * it. */
#define FETCH_USER_DATA (UINT64_C(1) << 63)

void fetches_init(struct kvl_conn *conn);

/* Frees what is left after the connection is closed; nobody waits for any of it. */
void fetches_deinit(struct kvl_conn *conn);

/* How calls bring to the device what they found below it. */
extern const struct op_fetch_steps fetch_steps;

/* The type of kvl_fetch() and kvl_fetch_start(), and of what windows begin. */
extern const struct op_type op_type_fetch;

/* Two of these steps, for whoever prepares a fetch long before it is begun. */
int fetching_prepare(struct op *op);
void fetching_drop(struct op *op);

/* Takes a completion with FETCH_USER_DATA. 0; -EPROTO: it makes no sense. */
int fetches_take(struct kvl_conn *conn, const struct shm_completion *c);

/* Asks for as many of the pages that wait as there is room for. 0 or -EPROTO. */
int fetches_submit(struct kvl_conn *conn);

/* Ends the calls with what they have: the connection is over. */
void fetches_broken(struct kvl_conn *conn, int code, const char *why);

/* Notes what the daemon before has executed: there is another one, which hasn't begun yet. */
void fetches_resume(struct kvl_conn *conn);

/* Asks again for what the daemon before had begun and this one doesn't know of: it is at work, and
 * all completions that were stored are taken. */
void fetches_back(struct kvl_conn *conn);

/* Forgets the namespace, which has no calls any more and goes away. */
void fetches_forget_ns(struct kvl_ns *ns);

#endif
