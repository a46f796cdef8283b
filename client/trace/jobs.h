/* Runs many jobs of the same kind in several processes: a free process takes the next job.
 * Processes, unlike threads, share the data read before by copy-on-write, and the death of one
 * affects nothing else. */
#ifndef KVL_TRACE_JOBS_H
#define KVL_TRACE_JOBS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct jobs {
        size_t n;
        size_t result_bytes; /* of each job: plain memory, without pointers */
        /* Does job i in one of the processes: fills *result, which is zero, and adds its progress
         * to *n_done. Returns 0 or -errno, which jobs_run() returns. */
        int (*run)(void *data, size_t i, void *result, _Atomic uint64_t *n_done);
        void *data;     /* borrowed, and copied on write */
        uint64_t total; /* the sum that all jobs add */
};

/*
 * Runs all jobs in at most n_processes (> 0). The caller has one thread, and no other children that
 * end meanwhile. results: n times result_bytes; filled if it returns 0. progress (may be NULL) is
 * called about ten times a second with the progress and the total; false ends it. Returns 0;
 * -ECANCELED; -ECHILD: a process ended before its jobs; -ENOMEM; -errno of fork() or of a job.
 */
int jobs_run(const struct jobs *jobs, void *results, unsigned n_processes,
        bool (*progress)(uint64_t done, uint64_t total, void *data), void *data);

#endif
