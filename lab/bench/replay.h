/* Recorded traffic through a private daemon: see replay.c. */
#ifndef KVL_BENCH_REPLAY_H
#define KVL_BENCH_REPLAY_H

#include <stdint.h>

#include "policy/sim/sim.h"

/* Pages of 4 KiB, in sets of so many. */
#define REPLAY_SET_PAGES 512

struct replay_cache {
        const char *policy; /* of eviction */
        /* Multiples of REPLAY_SET_PAGES: more than the longest request has; in host memory, 0:
         * none. */
        uint32_t device_pages, host_pages;
};

/* Hits in percent of the input tokens of the first n_requests. A page of a lower tier is a hit if
 * the lookup moved it up. Returns 0, or -errno with a line on stderr. */
int replay_measure(const struct sim_trace *trace, uint32_t n_requests,
        const struct replay_cache *cache, double *ret_percent);

#endif
