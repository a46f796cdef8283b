/* Hit-ratio curves of some policies at some capacities. All tenants share one cache, or each has an
 * equal static part. */
#ifndef KVL_TRACE_CURVES_H
#define KVL_TRACE_CURVES_H

#include <stdbool.h>
#include <stddef.h>

#include "policy/sim/sim.h"

/* Runs many simulations of one trace in several processes (jobs.h), one a job. */
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

#define CURVES_POLICIES_MAX   32
#define CURVES_CAPACITIES_MAX 64
#define CURVES_SEEDS_MAX      100 /* then the mean is known to a tenth of the spread */
#define CURVES_HINTS_MAX      8

struct capacity {
        double percent; /* of the trace's blocks; 0: given in pages */
        uint32_t pages; /* >= 1 */
};

/* Token hit ratios with several seeds. */
struct hit_spread {
        double mean, least, most;
        double stddev; /* of one seed: sample deviation (n - 1); 0 with a single one */
};

struct curves {
        const struct evict_ops *policies[CURVES_POLICIES_MAX]; /* borrowed */
        uint8_t goes_by_cost[CURVES_POLICIES_MAX];             /* sim_options: of that policy */
        struct capacity capacities[CURVES_CAPACITIES_MAX];     /* as given */
        uint8_t is_told_windows[CURVES_POLICIES_MAX];          /* sim_windows.told, likewise */
        uint8_t hints[CURVES_POLICIES_MAX];     /* 0: no drawn ones; else 1 + an index of: */
        uint32_t hints_right[CURVES_HINTS_MAX]; /* percent */
        unsigned n_hints;
        bool hints_timed; /* sim_hints */
        unsigned n_policies, n_capacities;
        uint32_t crossover; /* tokens, of sim_options; 0: computation doesn't count */
        bool split;
        uint32_t below; /* pages of a lower tier, in multiples; 0: none. Policies must support it */
        uint32_t expect, wrong_percent; /* sim_options; policies must have lock() */
        uint32_t count_from;            /* sim_options */
        struct sim_engine engine;       /* the time that requests take */
        struct sim_windows windows;     /* all but `told` */
        unsigned n_seeds;               /* seeds of page ids, 0..n_seeds-1; 0: one */
        /* For policy p at capacity c, summed over tenants and seeds; policy_bytes of one seed. */
        struct sim_result results[CURVES_POLICIES_MAX][CURVES_CAPACITIES_MAX];
        struct hit_spread spreads[CURVES_POLICIES_MAX][CURVES_CAPACITIES_MAX];
};

/* "lru,pgi"; "daemon": the daemon's; "all". Returns 0, -EINVAL with a sentence, or -ENOMEM. */
int curves_set_policies(struct curves *c, const char *list, char *err, size_t err_len);

/* Makes results report the computation that hits save. After each policy that can consider costs,
 * adds the same policy considering them. Returns 0, or -EINVAL with a sentence in err. */
int curves_set_crossover(struct curves *c, uint32_t crossover, char *err, size_t err_len);

/*
 * Gives the model so many groups of layers with a window of so many tokens (sim_windows), both > 0.
 * After each of kvleased's policies, adds the same policy with the hint that a window has passed.
 * Not with curves_set_crossover(). Returns 0, or -EINVAL with a sentence in err.
 */
int curves_set_windows(
        struct curves *c, uint32_t groups, uint32_t tokens, char *err, size_t err_len);

/*
 * "0,80,100": after each policy that knows hints, adds the same policy with drawn hints (sim_hints)
 * of which so many percent are right, for each number. Not with curves_set_crossover() and
 * curves_set_windows(). Returns 0, -EINVAL with a sentence in err, or -ENOMEM.
 */
int curves_set_hints(struct curves *c, const char *list, bool timed, char *err, size_t err_len);

/* "1%,2.5%,1000" of a trace with n_unique blocks: rounded down, at least a page. Returns 0, -EINVAL
 * with a sentence in err, or -ENOMEM. */
int curves_set_capacities(
        struct curves *c, const char *list, uint32_t n_unique, char *err, size_t err_len);

/* Returns as replay_run(). */
int curves_run(struct curves *c, const struct sim_trace *trace, unsigned n_processes,
        bool (*progress)(uint64_t done, uint64_t total, void *data), void *data);

/* Return the hit ratio of policy p at capacity c, in both tiers, and in the upper one alone. */
double curves_at(const struct curves *c, unsigned policy, unsigned capacity);
double curves_above(const struct curves *c, unsigned policy, unsigned capacity);

/* Returns the share of all input's computation that hits in both tiers save. */
double curves_saved(const struct curves *c, unsigned policy, unsigned capacity);

/* For requests that take time: the share of the cache held by running ones, averaged over time; and
 * the wait before a request began, averaged over all. 0 if none took any time. */
double curves_held(const struct curves *c, unsigned policy, unsigned capacity);
uint64_t curves_wait_msec(const struct curves *c, unsigned policy, unsigned capacity);

/* "pgi"; "pgi+cost" if it considers the cost of misses; "pgi+told" with hints of windows; "pgi+80%"
 * with drawn hints. */
#define CURVES_NAME_MAX 32
char *curves_policy_name(const struct curves *c, unsigned policy, char buf[CURVES_NAME_MAX]);

/* "5 %" or "1000 pages" */
char *capacity_text(const struct capacity *c, char buf[32]);

#endif
