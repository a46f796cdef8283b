/*
 * Durations of requests by kind: histograms of the time from a frame to its answer in the loop's
 * thread. Waits before a request, or between two tries (leases, keys), aren't included: those are
 * counted by tenant. Also, counts of broken rules of the protocol, with zeros for rules never
 * broken: Prometheus sees no increase in a counter that appears with its first count.
 *
 * A request costs two readings of the clock and two additions. Nothing is allocated; counts are
 * since the start. Loop thread only.
 */
#ifndef KVL_SERVER_CALLS_H
#define KVL_SERVER_CALLS_H

#include <stddef.h>
#include <stdint.h>

#include "proto/msg.h"

/* Upper bounds of the buckets in nanoseconds. They span a release on the socket to a check of a
 * large daemon, in steps of about two. Not tuned. */
#define CALLS_BOUNDS                                                                              \
        {                                                                                         \
                10000, 20000, 50000, 100000, 200000, 500000, 1000000, 2000000, 5000000, 10000000, \
                        20000000, 50000000, 100000000, 500000000, 1000000000                      \
        }
#define CALLS_BUCKETS 16 /* one more than bounds, for longer calls */

enum {
#define X(name, ...) CALLS_ROW_##name,
        MSG_TABLE(X)
#undef X
                CALLS_KINDS
};

/* X(rule): the rules of the protocol for peer_violation(); tests/tools/check-rules.py compares them
 * with the source. The last one stands for unlisted rules. */
#define CALLS_RULE_TABLE(X)       \
        X("bad-flags")            \
        X("bad-frame")            \
        X("bad-magic")            \
        X("bad-message")          \
        X("bad-seq")              \
        X("bad-version")          \
        X("fd-count")             \
        X("fds")                  \
        X("flags-in-request")     \
        X("frame-too-long")       \
        X("hello-first")          \
        X("hello-twice")          \
        X("magazine")             \
        X("max-pending")          \
        X("no-reply-not-allowed") \
        X("not-reading")          \
        X("resume")               \
        X("ring-flags")           \
        X("ring-free-count")      \
        X("ring-head")            \
        X("ring-op")              \
        X("ring-tail")            \
        X("type-not-allowed")     \
        X("other")

enum {
#define X(rule) +1
        CALLS_RULES = CALLS_RULE_TABLE(X)
#undef X
};

struct call_times {
        uint64_t counts[CALLS_BUCKETS]; /* not cumulative */
        uint64_t sum_nsec;
};

struct calls {
        struct call_times times[CALLS_KINDS]; /* by row of the message table */
        uint64_t broken[CALLS_RULES];         /* how often, by calls_rules */
};

extern const char *const calls_rules[CALLS_RULES];

extern const uint64_t calls_bounds_nsec[CALLS_BUCKETS - 1];

/* Counts a duration. */
void call_times_note(struct call_times *t, uint64_t nsec);

/* Counts an answered request of a type in the table. */
void calls_note(struct calls *c, const struct msg_info *info, uint64_t nsec);

/* A peer broke the rule. */
void calls_note_violation(struct calls *c, const char *rule);

#endif
