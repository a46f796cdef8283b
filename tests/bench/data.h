/* data: what fresh processes pay for memory that is there already. */
#ifndef KVL_BENCH_DATA_H
#define KVL_BENCH_DATA_H

#include "tests/bench/bench.h"

/* Adds its rows to the run's. 0 or -errno, told on stderr. */
int run_data_fresh(struct bench_run *run);

#endif
