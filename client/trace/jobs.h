/*
 * Many jobs of the same kind in several processes: the next free process takes the next. Processes
 * rather than threads: they share what was read before by copy-on-write, and one that dies takes
 * nothing with it.
 */
#ifndef KVL_TRACE_JOBS_H
#define KVL_TRACE_JOBS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct jobs {
        size_t n;
        size_t result_bytes; /* of each job: plain memory, without pointers that count elsewhere */
        /* Does job i in one of the processes: fills *result, which is zero, and adds to *n_done
         * what it has done, as it goes. 0 or -errno, which is that of jobs_run(). */
        int (*run)(void *data, size_t i, void *result, _Atomic uint64_t *n_done);
        void *data;     /* borrowed, and copied on write */
        uint64_t total; /* what all of them add */
};

/*
 * Runs all jobs in at most n_processes (> 0). results: n times result_bytes; filled where it
 * returns 0. progress (may be NULL) is called about ten times a second with what is done and the
 * total; false ends it. 0; -ECANCELED; -ECHILD: a process ended before its jobs; -ENOMEM; -errno of
 * fork() or of a job. The caller has no other children that end meanwhile, and one thread.
 */
int jobs_run(const struct jobs *jobs, void *results, unsigned n_processes,
        bool (*progress)(uint64_t done, uint64_t total, void *data), void *data);

#endif
