/* Runs many simulations of one trace in several processes (jobs.h), one a job. */
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
 * Runs all jobs in at most `n_processes` (> 0) and fills their results. The caller has one thread,
 * and no other children that end meanwhile. progress (may be NULL) is called about ten times a
 * second with the requests simulated and those of all jobs; false ends it. Returns 0; -ECANCELED;
 * -ECHILD: a process ended before its jobs; -ENOMEM; -errno of fork().
 */
int replay_run(const struct sim_trace *trace, struct replay_job *jobs, size_t n_jobs,
        unsigned n_processes, bool (*progress)(uint64_t done, uint64_t total, void *data),
        void *data);

/* Returns the CPUs that this process may use, at least 1. */
unsigned replay_cpus(void);

/* Returns hit tokens per input token; 0 without input. */
double replay_hit_ratio(const struct sim_result *r);

#endif
