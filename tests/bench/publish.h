/* Shared by the parts of the benchmark `publish`. */
#ifndef KVL_BENCH_PUBLISH_H
#define KVL_BENCH_PUBLISH_H

#include "tests/bench/bench.h"

/* publish-full.c: publishes into a full namespace and adds its rows. Returns 0 or -errno, with a
 * message. */
int publish_run_full(struct bench_run *run);

/* publish-events.c: publishes for followers, likewise. */
int publish_run_events(struct bench_run *run);

#endif
