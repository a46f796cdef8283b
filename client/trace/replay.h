/* Many simulations of one trace in several processes (jobs.h): a job each. */
#ifndef KVL_TRACE_REPLAY_H
#define KVL_TRACE_REPLAY_H

#include <stdbool.h>
#include <stddef.h>

#include "policy/sim/sim.h"

struct replay_job {
        struct sim_options options;
        struct sim_result result;
};

/*
 * Runs all jobs in at most `n_processes` (> 0) and fills their results. progress (may be NULL) is
 * called about ten times a second with requests simulated and of all jobs; false ends it.
 * 0; -ECANCELED; -ECHILD: a process ended before its jobs; -ENOMEM; -errno of fork(). The caller
 * has no other children that end meanwhile, and one thread.
 */
int replay_run(const struct sim_trace *trace, struct replay_job *jobs, size_t n_jobs,
        unsigned n_processes, bool (*progress)(uint64_t done, uint64_t total, void *data),
        void *data);

/* CPUs that this process may use, at least 1. */
unsigned replay_cpus(void);

/* Hit tokens per input token; 0 where there is none. */
double replay_hit_ratio(const struct sim_result *r);

#endif
