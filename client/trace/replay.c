#include "client/trace/replay.h"

#include <errno.h>
#include <sched.h>
#include <stdlib.h>

#include "base/macros.h"
#include "client/trace/jobs.h"

#define STEP_REQUESTS 256 /* not tuned: between two looks at the counter */

struct replay {
        const struct sim_trace *trace;
        const struct replay_job *jobs;
};

static int run_replay(void *data, size_t i, void *result, _Atomic uint64_t *n_done)
{
        const struct replay *replay = data;
        int64_t left = replay->trace->n_requests, next;
        struct sim *s;
        int r = sim_new(replay->trace, &replay->jobs[i].options, &s);

        if (r < 0)
                return r;
        do {
                next = sim_run(s, STEP_REQUESTS);
                atomic_fetch_add(n_done, (uint64_t)(left - MAX(next, 0)));
                left = next;
        } while (left > 0);
        sim_result(s, result);
        sim_free(s);
        return (int)left;
}

int replay_run(const struct sim_trace *trace, struct replay_job *jobs, size_t n_jobs,
        unsigned n_processes, bool (*progress)(uint64_t done, uint64_t total, void *data),
        void *data)
{
        _cleanup_free_ struct sim_result *results =
                calloc(MAX(n_jobs, (size_t)1), sizeof(*results));
        struct replay replay = {trace, jobs};
        const struct jobs all = {.n = n_jobs,
                .result_bytes = sizeof(*results),
                .run = run_replay,
                .data = &replay,
                .total = (uint64_t)n_jobs * trace->n_requests};
        int r = results ? jobs_run(&all, results, n_processes, progress, data) : -ENOMEM;

        for (size_t i = 0; i < n_jobs && r == 0; i++)
                jobs[i].result = results[i];
        return r;
}

unsigned replay_cpus(void)
{
        cpu_set_t cpus;

        return sched_getaffinity(0, sizeof(cpus), &cpus) == 0 ? MAX((unsigned)CPU_COUNT(&cpus), 1u)
                                                              : 1;
}

double replay_hit_ratio(const struct sim_result *r)
{
        return r->input_tokens > 0 ? (double)r->hit_tokens / (double)r->input_tokens : 0;
}
