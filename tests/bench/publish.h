/* Shared by the parts of the benchmark `publish`. */
#ifndef KVL_BENCH_PUBLISH_H
#define KVL_BENCH_PUBLISH_H

#include "tests/bench/bench.h"

/* publish-full.c: into a namespace that is full. Adds its rows; 0 or -errno, told. */
int publish_run_full(struct bench_run *run);

#endif
