/*
 * Durations of the loop's turns: a histogram, and the longest turns with their longest parts. One
 * loop serves all tenants, so a long turn delays every client. Requests alone (calls.h) don't cover
 * timers, background work and the closing of descriptors.
 *
 * A turn is the time between two waits for events. libuv could measure its waits, but would make a
 * second system call in each turn (UV_METRICS_IDLE_TIME). So the callback that most turns begin
 * with calls turn_watch_wake(). A turn that begins with another callback counts from the next
 * millisecond of the loop's time, and a turn of timers alone from its begin. The thread's waits for
 * a processor are subtracted, as far as the kernel tells them (/proc/thread-self/schedstat): on a
 * busy machine these are due to other programs. A blocking system call counts.
 *
 * Code that can take long in a turn reports it as a part: a request, tasks, a timer. The longest
 * part of the turn is recorded.
 *
 * A turn costs two readings of the clock, and two system calls if the last ones are older than 10
 * ms. Loop thread only.
 */
#ifndef KVL_SERVER_TURN_WATCH_H
#define KVL_SERVER_TURN_WATCH_H

#include <stdbool.h>
#include <stdint.h>

#include <uv.h>

#include "base/clock.h"
#include "base/parse.h"
#include "daemon/server/base/calls.h"

/* Shorter turns and parts aren't recorded. Not tuned. */
#define TURN_RECORD_NSEC NSEC_PER_MSEC

/* Number of longest turns since the start; and of ten-minute intervals of the last hour, each with
 * its longest. */
#define TURNS_LONGEST     4
#define TURNS_RECENT      6
#define TURNS_RECENT_NSEC (600 * NSEC_PER_SEC)

struct turn_record {
        uint64_t at_nsec;   /* when it ended, by CLOCK_MONOTONIC; 0: there is none */
        uint64_t nsec;      /* how long it was */
        const char *what;   /* its longest part; static; NULL: none was reported */
        uint64_t what_nsec; /* its duration; may exceed the turn, as it includes waits for a
                               processor */
        char tenant[TENANT_NAME_MAX + 1]; /* served by that part; "": none */
};

struct turn_watch {
        struct turn_record now; /* `what`, `what_nsec` and `tenant` of this turn */
        struct turn_record longest[TURNS_LONGEST]; /* the longest first */
        struct turn_record recent[TURNS_RECENT];   /* in no order */
        uv_prepare_t prepare;
        uv_check_t check;
        struct call_times turns; /* by calls_bounds_nsec */
        uint64_t longest_nsec;
        bool is_awake;        /* this turn has begun, at: */
        uint64_t began_nsec;  /* by CLOCK_MONOTONIC */
        int schedstat_fd;     /* -1: none; then waits for a processor count */
        uint64_t waited_nsec; /* for a processor, since the thread began; as of: */
        uint64_t sampled_nsec;
};

/* Called in the loop's thread, before the loop runs first: opens the thread's schedstat. Counts
 * nothing yet. */
void turn_watch_init(struct turn_watch *w, uv_loop_t *loop);

/* From the next turn on. */
void turn_watch_start(struct turn_watch *w);

/* Stops; the caller closes the handles `prepare` and `check`. */
void turn_watch_stop(struct turn_watch *w);

/* The loop's wait has ended. Only the first call of a turn has an effect. */
void turn_watch_wake(struct turn_watch *w);

/* Notes a turn that ends now, with its duration and its wait for a processor; `waited_nsec` may
 * exceed the turn. */
void turn_watch_note(struct turn_watch *w, uint64_t now_nsec, uint64_t nsec, uint64_t waited_nsec);

/* A part of this turn: `what` is static; tenant: "" or NULL: none. */
void turn_watch_part(struct turn_watch *w, const char *what, const char *tenant, uint64_t nsec);

/* turn_watch_part() for the time since began_nsec. Returns the time now, where the next part
 * begins. */
uint64_t turn_watch_since(
        struct turn_watch *w, const char *what, const char *tenant, uint64_t began_nsec);

/* The n-th turn of the last hour, by its time, the oldest first; NULL: there is none. */
const struct turn_record *turn_watch_recent(
        const struct turn_watch *w, size_t n, uint64_t now_nsec);

#endif
