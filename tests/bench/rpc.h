/* Shared by the parts of the benchmark `rpc`. */
#ifndef KVL_BENCH_RPC_H
#define KVL_BENCH_RPC_H

#include "tests/bench/bench.h"

/* rpc-hit.c: returns 0 or -errno, with a message. */
int rpc_run_hits(struct bench_run *run);

#endif
