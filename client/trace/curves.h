/*
 * Hit-ratio curves: some policies at some capacities, over all tenants in one cache, or over equal
 * static parts, one a tenant.
 */
#ifndef KVL_TRACE_CURVES_H
#define KVL_TRACE_CURVES_H

#include "client/trace/replay.h"

#define CURVES_POLICIES_MAX   32
#define CURVES_CAPACITIES_MAX 64
#define CURVES_SEEDS_MAX      100 /* the mean is known to a tenth of the spread then */

struct capacity {
        double percent; /* of the trace's blocks; 0: given in pages */
        uint32_t pages; /* >= 1 */
};

/* Token hit ratios with several seeds. */
struct hit_spread {
        double mean, least, most;
        double stddev; /* of one seed: of the sample, by n - 1; 0 with a single one */
};

struct curves {
        const struct evict_ops *policies[CURVES_POLICIES_MAX]; /* borrowed */
        bool goes_by_cost[CURVES_POLICIES_MAX];                /* sim_options: of that policy */
        struct capacity capacities[CURVES_CAPACITIES_MAX];     /* as given */
        bool is_told_windows[CURVES_POLICIES_MAX];             /* sim_windows.told, likewise */
        unsigned n_policies, n_capacities;
        uint32_t crossover; /* tokens, of sim_options; 0: computation is no matter */
        bool split;
        uint32_t below; /* a tier below has so many times the pages; 0: none. Policies must know it
                         */
        uint32_t expect, wrong_percent; /* sim_options; policies must have lock() */
        struct sim_engine engine;       /* the time that requests take */
        struct sim_windows windows;     /* but for `told` */
        unsigned n_seeds;               /* 0 is 1: of the ids of pages, 0..n_seeds-1 */
        /* Of policy p at capacity c, summed over tenants and seeds; policy_bytes of one seed. */
        struct sim_result results[CURVES_POLICIES_MAX][CURVES_CAPACITIES_MAX];
        struct hit_spread spreads[CURVES_POLICIES_MAX][CURVES_CAPACITIES_MAX];
};

/* "lru,pgi"; "daemon": those that it offers; "all". 0, -EINVAL with a sentence in err, or -ENOMEM.
 */
int curves_set_policies(struct curves *c, const char *list, char *err, size_t err_len);

/*
 * What a miss costs matters: results say what computation hits save, and behind each policy that
 * can go by it comes the same policy once more, which does. 0, or -EINVAL with a sentence in err.
 */
int curves_set_crossover(struct curves *c, uint32_t crossover, char *err, size_t err_len);

/*
 * The model has so many groups of layers with a window of so many tokens (sim_windows), both > 0.
 * Behind each of kvleased's policies comes the same policy once more, which is told whose window
 * has passed. Not with curves_set_crossover(). 0, or -EINVAL with a sentence in err.
 */
int curves_set_windows(
        struct curves *c, uint32_t groups, uint32_t tokens, char *err, size_t err_len);

/* "1%,2.5%,1000" of a trace with n_unique blocks: rounded down, at least a page. 0, -EINVAL with
 * a sentence in err, or -ENOMEM. */
int curves_set_capacities(
        struct curves *c, const char *list, uint32_t n_unique, char *err, size_t err_len);

/* As replay_run(). */
int curves_run(struct curves *c, const struct sim_trace *trace, unsigned n_processes,
        bool (*progress)(uint64_t done, uint64_t total, void *data), void *data);

/* Hit ratio of policy p at capacity c, in both tiers, and in the upper one alone. */
double curves_at(const struct curves *c, unsigned policy, unsigned capacity);
double curves_above(const struct curves *c, unsigned policy, unsigned capacity);

/* The part of the computation of all input that hits in both tiers save. */
double curves_saved(const struct curves *c, unsigned policy, unsigned capacity);

/* Of requests that take time: the part of the cache that those that ran held, in the mean over
 * time; and how long a request waited before it began, in the mean over all. 0 where none took any.
 */
double curves_held(const struct curves *c, unsigned policy, unsigned capacity);
uint64_t curves_wait_msec(const struct curves *c, unsigned policy, unsigned capacity);

/* "pgi"; "pgi+cost" where it goes by what a miss costs; "pgi+told" where it is told whose window
 * has passed. */
#define CURVES_NAME_MAX 32
char *curves_policy_name(const struct curves *c, unsigned policy, char buf[CURVES_NAME_MAX]);

/* "5 %" or "1000 pages" */
char *capacity_text(const struct capacity *c, char buf[32]);

#endif
