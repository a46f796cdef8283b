/*
 * A circuit breaker keeps requests away from a failing node: they are answered at once, as a miss,
 * instead of after a timeout. Pure: time is a parameter.
 *
 *   closed --BREAKER_FAILURES in a row--> open --after its time--> half open --success--> closed
 *                                          ^                          |
 *                                          '----- failure: twice -----'
 *
 * A half-open breaker lets one request at a time through, as a trial. The caller ends a trial by
 * breaker_success(), breaker_failure(), or breaker_give_back() if it says nothing about the node.
 */
#ifndef KVL_REMOTE_BREAKER_H
#define KVL_REMOTE_BREAKER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/clock.h"

/* From the design for several hosts; not tuned. */
#define BREAKER_FAILURES      3
#define BREAKER_OPEN_NSEC     (1 * NSEC_PER_SEC)
#define BREAKER_OPEN_MAX_NSEC (30 * NSEC_PER_SEC)

enum breaker_state { BREAKER_CLOSED, BREAKER_OPEN, BREAKER_HALF_OPEN };

/* Zeroed: closed. */
struct breaker {
        enum breaker_state state;
        unsigned n_failures; /* in a row */
        bool is_trying;      /* half open: a trial is under way */
        uint64_t until_nsec; /* open: until then */
        uint64_t open_nsec;  /* duration of the last opening; 0: none since the last success */
};

/* "closed", "open", "half-open": in kvleasectl's JSON, never renamed. Static. */
const char *breaker_state_name(enum breaker_state state);

/* May a request go to the node? *ret_is_trial: it is a trial. */
bool breaker_admits(struct breaker *b, uint64_t now_nsec, bool *ret_is_trial);

void breaker_success(struct breaker *b);
void breaker_failure(struct breaker *b, uint64_t now_nsec);

/* Opens the breaker at once: the node says that it can't serve for now, or was silent for long. */
void breaker_trip(struct breaker *b, uint64_t now_nsec);

/* Ends a trial that says nothing about the node. */
void breaker_give_back(struct breaker *b);

#endif
