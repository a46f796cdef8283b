/*
 * How long the loop's turns take: a histogram, and the longest. One loop serves all tenants, so a
 * turn that takes long keeps everybody waiting; requests alone (calls.h) wouldn't tell of timers,
 * background work and descriptors that are closed.
 *
 * A turn is what lies between two waits for events. What the loop's thread waited for a processor
 * meanwhile is left out, as far as the kernel says it (/proc/thread-self/schedstat): on a busy
 * machine that is another program's time. A system call that blocks counts.
 *
 * A turn costs a look at the clock, and two system calls where the last ones are older than 10 ms.
 * Loop thread only.
 */
#ifndef KVL_SERVER_TURN_WATCH_H
#define KVL_SERVER_TURN_WATCH_H

#include <stdbool.h>
#include <stdint.h>

#include <uv.h>

#include "daemon/server/system/calls.h"

struct turn_watch {
        uv_prepare_t prepare;
        struct call_times turns; /* by calls_bounds_nsec */
        uint64_t longest_nsec;
        bool has_begun;
        uint64_t began_nsec, idle_nsec; /* of this turn: the clock, and libuv's sum of waits */
        int schedstat_fd;               /* -1: none; then waits for a processor count */
        uint64_t waited_nsec;           /* for a processor, since the thread began; as of: */
        uint64_t sampled_nsec;
};

/* In the loop's thread, before the loop runs first: tells libuv to measure its waits, and opens
 * what says how long the thread waits. Counts nothing yet. */
void turn_watch_init(struct turn_watch *w, uv_loop_t *loop);

/* From the next turn on. */
void turn_watch_start(struct turn_watch *w);

/* The handle `prepare` is the caller's to close. */
void turn_watch_stop(struct turn_watch *w);

/* A turn took that long and waited so long of it for a processor; `waited_nsec` may be more. */
void turn_watch_note(struct turn_watch *w, uint64_t nsec, uint64_t waited_nsec);

#endif
