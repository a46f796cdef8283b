/*
 * Brings a call's pages from lower tiers to the device. Each is asked for (FETCH), and its pin
 * exchanged for a pin of the page that then has its key. Also copies pages into leased ones, and
 * demotes pages (op.h, enum fetch_way).
 *
 *   WAITING -> BEGUN (asked for; here with a pin of its own on the page) -> ENDED
 *         ^-----/  evicted before it was pinned: up to 8 times; cancelled by the daemon: once
 *
 * With shared memory, fetches go through the rings, at most FETCHES_MAX of a connection at a time,
 * and complete in any order. Otherwise they go over the socket, in batches. A lookup's run ends
 * before the first page that can't be brought up, or wasn't in time: that is no error.
 *
 * A call that gives up leaves its BEGUN pages behind; their results are dropped. A restarted daemon
 * forgets the fetches that it had begun, so they are asked for again. All with the connection's
 * lock.
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

/* This bit of user_data marks completions of a FETCH; flights count too slowly to set it. */
#define FETCH_USER_DATA (UINT64_C(1) << 63)

void fetches_init(struct kvl_conn *conn);

/* Frees the rest after the connection is closed; no call waits for any of it. */
void fetches_deinit(struct kvl_conn *conn);

/* The steps that bring pages of lower tiers to the device. */
extern const struct op_fetch_steps fetch_steps;

/* The type of kvl_fetch() and kvl_fetch_start(), and of transfers that windows begin. */
extern const struct op_type op_type_fetch;

/* Two of these steps, for fetches that are prepared long before they begin. */
int fetching_prepare(struct op *op);
void fetching_drop(struct op *op);

/* Takes a completion with FETCH_USER_DATA. Returns 0; -EPROTO: it makes no sense. */
int fetches_take(struct kvl_conn *conn, const struct shm_completion *c);

/* Asks for waiting pages, as many as there is room for. Returns 0 or -EPROTO. */
int fetches_submit(struct kvl_conn *conn);

/* The connection is over: ends the calls with the pages they have. */
void fetches_broken(struct kvl_conn *conn, int code, const char *why);

/* A new daemon is there, which hasn't begun yet: notes how far the previous one had executed. */
void fetches_resume(struct kvl_conn *conn);

/* Asks again for fetches that the previous daemon had begun and this one doesn't know. This one is
 * at work, and all stored completions are taken. */
void fetches_back(struct kvl_conn *conn);

/* Forgets the namespace, which has no calls any more and is being freed. */
void fetches_forget_ns(struct kvl_ns *ns);

#endif
