/*
 * Internals of a relay (relay.h), by file:
 *
 *   relay.c        the store: opening, closing; operations in; figures;
 *   relay-lane.c   a lane's thread: its connection, deadlines, cancels;
 *   relay-loan.c   operations that kvlease-exchange has: values in and out, results.
 *
 * relay.of.lock guards inboxes and figures. All else of a lane belongs to its thread.
 */
#ifndef KVL_RELAY_IMPL_H
#define KVL_RELAY_IMPL_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/list.h"
#include "base/map.h"
#include "daemon/relay/relay-arena.h"
#include "daemon/relay/relay-channel.h"
#include "daemon/relay/relay.h"
#include "daemon/remote/io/remote-store.h"

#define RELAY_LANES (1 + RELAY_LARGE_LANES)

struct relay;

/* An operation of a batch. */
struct relay_row {
        bool is_sent;                 /* else it has its result */
        uint32_t keys_at, keys_bytes; /* in relay_loan.keys */
        uint64_t at, bytes;           /* place of its value in the arena */
};

/* A batch on a lane. */
struct relay_loan {
        struct list_link link;    /* relay_lane.inbox, waiting, live or given_up */
        struct remote_task *task; /* NULL: given up, kvlease-exchange still has it */
        uint64_t id;
        uint64_t deadline_nsec;
        uint64_t value_bytes; /* of all its values */
        struct relay_place place;
        uint8_t *keys;      /* owned; of all operations, as relay-wire.h has them; NULL: sent */
        uint32_t n, n_sent; /* operations; those that were sent */
        struct relay_row rows[];
};

enum relay_state { RELAY_IS_AWAY, RELAY_GREETS, RELAY_IS_READY };

struct relay_lane {
        struct relay *relay;
        unsigned index;
        pthread_t thread;
        bool is_started;
        int event_fd;
        struct list_link inbox;    /* struct relay_loan.link; under relay.of.lock */
        bool is_stopping;          /* under relay.of.lock */
        _Atomic bool has_canceled; /* a batch of this lane may be canceled */
        _Atomic uint64_t bytes;    /* of values that aren't over */

        enum relay_state state;
        uint64_t tried_nsec; /* time of the last attempt to connect */
        uint64_t until_nsec; /* AWAY: time of the next attempt; GREETS: the latest answer */
        struct relay_channel channel;
        struct relay_arena arena;
        struct list_link waiting;  /* for a place in the arena */
        struct list_link live;     /* sent */
        struct list_link given_up; /* oldest first */
        struct map by_id;          /* of live and given_up */
};

struct relay {
        struct remote_store of;
        char *socket;   /* owned */
        uint8_t *hello; /* owned: struct relay_open and its texts */
        size_t hello_bytes;
        uint64_t next_id; /* the loop's */
        struct relay_lane lanes[RELAY_LANES];
        uint64_t status_nsec; /* of the last STATUS that was taken; the first lane's */

        /* Figures from kvlease-exchange. */
        struct remote_stats stats;
        struct remote_node_stats nodes[REMOTE_NODES_MAX];
};

/* ---- relay.c --------------------------------------------------------------------------------- */

/* Takes a STATUS. One that comes too soon after another has no effect: the loop waits for the
 * lock. Returns 0 or -EPROTO. */
int relay_take_status(struct relay *r, const uint8_t *bytes, size_t n);

/* The store has no client now, because of this sentence. */
void relay_note_fault(struct relay *r, const char *why);

/* kvlease-exchange has taken the store. */
void relay_note_ready(struct relay *r);

/* ---- relay-lane.c ---------------------------------------------------------------------------- */

int relay_lane_start(struct relay_lane *l);
void relay_lane_stop(struct relay_lane *l);
void relay_lane_wake(struct relay_lane *l);

/* ---- relay-loan.c ---------------------------------------------------------------------------- */

struct relay_loan *relay_loan_new(struct remote_task *t, uint64_t id);

/* Sends a waiting loan, or ends it. Returns 0; -EAGAIN: there is no place for its values, the loan
 * waits. */
int relay_loan_send(struct relay_lane *l, struct relay_loan *n);

/* Ends a loan that kvlease-exchange doesn't have, or has no more. */
void relay_loan_end(struct relay_lane *l, struct relay_loan *n, int result);

/* Ends the batch of a loan that was sent. The loan stays in `given_up`, with a deadline of now. */
void relay_loan_give_up(struct relay_lane *l, struct relay_loan *n, int result);

/* Takes a DONE, which ends the loan. Returns 0 or -EPROTO. */
int relay_loan_take_done(struct relay_lane *l, const struct relay_message *m);

#endif
