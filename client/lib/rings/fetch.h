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

/* What says in user_data that a completion is of a FETCH; flights count too slowly to come there.
 */
#define FETCH_USER_DATA (UINT64_C(1) << 63)

void fetches_init(struct kvl_conn *conn);

/* After the connection is closed; nobody waits for any of it. */
void fetches_deinit(struct kvl_conn *conn);

/* What calls bring to the device what they found below it with. */
extern const struct op_fetch_steps fetch_steps;

/* kvl_fetch() and its like, and what windows begin. */
extern const struct op_type op_type_fetch;

/* As struct op_fetch_steps has them, for whoever prepares a fetch before it is begun. */
int fetching_prepare(struct op *op);
void fetching_drop(struct op *op);

/* A completion with FETCH_USER_DATA. 0; -EPROTO: it makes no sense. */
int fetches_take(struct kvl_conn *conn, const struct shm_completion *c);

/* Submits what there is room for. 0 or -EPROTO. */
int fetches_submit(struct kvl_conn *conn);

/* The connection is over: calls end with what they have. */
void fetches_broken(struct kvl_conn *conn, int code, const char *why);

/* There is another daemon, which hasn't begun to execute anything; it has, and all completions that
 * were stored are taken. */
void fetches_resume(struct kvl_conn *conn);
void fetches_back(struct kvl_conn *conn);

/* The namespace goes away, without calls. */
void fetches_forget_ns(struct kvl_ns *ns);

#endif
