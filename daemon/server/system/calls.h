/*
 * How long requests take, by kind: histograms of the time from a frame to its answer, in the loop's
 * thread. What a request waited for before, or between two tries (leases, keys), isn't in it: waits
 * are counted by tenant. And how often each rule of the protocol was broken.
 *
 * A request costs two looks at the clock and two additions. Nothing is allocated; counts are since
 * the start. Loop thread only.
 */
#ifndef KVL_SERVER_CALLS_H
#define KVL_SERVER_CALLS_H

#include <stddef.h>
#include <stdint.h>

#include "proto/msg.h"

/* Upper bounds of the buckets in nanoseconds: from a release on the socket to a check of all pages
 * of a large daemon, so that a factor of about two is told apart. Not tuned. */
#define CALLS_BOUNDS                                                                              \
        {                                                                                         \
                10000, 20000, 50000, 100000, 200000, 500000, 1000000, 2000000, 5000000, 10000000, \
                        20000000, 50000000, 100000000, 500000000, 1000000000                      \
        }
#define CALLS_BUCKETS 16 /* one more than bounds: what is beyond */

enum {
#define X(name, ...) CALLS_ROW_##name,
        MSG_TABLE(X)
#undef X
                CALLS_KINDS
};

#define CALLS_RULES       64      /* of LOG_RULES_MAX */
#define CALLS_OTHER_RULES "other" /* beyond */

struct call_times {
        uint64_t counts[CALLS_BUCKETS]; /* not cumulative */
        uint64_t sum_nsec;
};

struct broken_rule {
        const char *rule; /* static */
        uint64_t n;
};

struct calls {
        struct call_times times[CALLS_KINDS]; /* by row of the message table */
        struct broken_rule rules[CALLS_RULES + 1];
        size_t n_rules;
};

extern const uint64_t calls_bounds_nsec[CALLS_BUCKETS - 1];

/* Something took so long. */
void call_times_note(struct call_times *t, uint64_t nsec);

/* A request of a type that is in the table was answered. */
void calls_note(struct calls *c, const struct msg_info *info, uint64_t nsec);

/* `rule` is static text. */
void calls_note_violation(struct calls *c, const char *rule);

#endif
