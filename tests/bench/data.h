/* data: cost for new processes of memory that exists already. */
#ifndef KVL_BENCH_DATA_H
#define KVL_BENCH_DATA_H

#include "tests/bench/bench.h"

/* Adds its rows to the run's. Returns 0 or -errno, with a message on stderr. */
int run_data_fresh(struct bench_run *run);

#endif
