#include "client/trace/curves.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/macros.h"
#include "base/parse.h"
#include "client/trace/jobs.h"
#include "policy/sim/policies.h"

/* ---- one replay ------------------------------------------------------------------------------ */

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

/* ---- lists ----------------------------------------------------------------------------------- */

/* Returns the next comma-separated word, NULL at the end; advances *rest. */
static const char *next_word(char **rest)
{
        return *rest ? strsep(rest, ",") : NULL;
}

static int refuse_policy(const char *name, char *err, size_t err_len)
{
        char shown[FORMAT_EXCERPT_MAX];
        int len = snprintf(err, err_len,
                "there is no policy '%s': there are all, daemon (those of kvleased),",
                format_excerpt(name, strlen(name), shown));

        for (unsigned i = 0; sim_policies[i] && len > 0 && (size_t)len < err_len; i++)
                len += snprintf(err + len, err_len - (size_t)len, "%s %s", i > 0 ? "," : "",
                        sim_policies[i]->name);
        return -EINVAL;
}

static int add_policy(struct curves *c, const struct evict_ops *policy, char *err, size_t err_len)
{
        for (unsigned i = 0; i < c->n_policies; i++)
                if (c->policies[i] == policy)
                        return 0;
        if (c->n_policies == CURVES_POLICIES_MAX) {
                snprintf(err, err_len, "more than %d policies", CURVES_POLICIES_MAX);
                return -EINVAL;
        }
        c->policies[c->n_policies++] = policy;
        return 0;
}

static int add_policies(
        struct curves *c, const struct evict_ops *const *policies, char *err, size_t err_len)
{
        int r = 0;

        for (unsigned i = 0; policies[i] && r == 0; i++)
                r = add_policy(c, policies[i], err, err_len);
        return r;
}

static int add_named(struct curves *c, const char *name, char *err, size_t err_len)
{
        const struct evict_ops *policy = sim_policy_find(name);

        if (strcmp(name, "all") == 0)
                return add_policies(c, sim_policies, err, err_len);
        if (strcmp(name, "daemon") == 0)
                return add_policies(c, evict_policies, err, err_len);
        return policy ? add_policy(c, policy, err, err_len) : refuse_policy(name, err, err_len);
}

int curves_set_policies(struct curves *c, const char *list, char *err, size_t err_len)
{
        _cleanup_free_ char *copy = strdup(list);
        char *rest = copy;
        const char *name;
        int r = copy ? 0 : -ENOMEM;

        c->n_policies = 0;
        while (r == 0 && (name = next_word(&rest)))
                r = add_named(c, name, err, err_len);
        return r;
}

static bool knows_costs(const struct evict_ops *policy)
{
        return policy->goes_by_cost;
}

static bool knows_windows(const struct evict_ops *policy)
{
        return evict_find(policy->name) != NULL;
}

/* Behind each policy that knows of something comes the same policy n_told times more, with `told`
 * of 1 to n_told. */
static int add_told(struct curves *c, bool (*knows)(const struct evict_ops *policy), uint8_t *told,
        unsigned n_told, char *err, size_t err_len)
{
        const struct evict_ops *policies[CURVES_POLICIES_MAX];
        unsigned n = c->n_policies, to = 0;

        memcpy(policies, c->policies, sizeof(policies));
        for (unsigned i = 0; i < n; i++)
                for (unsigned k = 0; k <= (knows(policies[i]) ? n_told : 0); k++) {
                        if (to == CURVES_POLICIES_MAX) {
                                snprintf(err, err_len,
                                        "more than %d policies, some of them once with and once "
                                        "without what --attention-crossover, --window-groups or --hints tells them",
                                        CURVES_POLICIES_MAX);
                                return -EINVAL;
                        }
                        c->policies[to] = policies[i];
                        told[to++] = (uint8_t)k;
                }
        c->n_policies = to;
        return 0;
}

int curves_set_crossover(struct curves *c, uint32_t crossover, char *err, size_t err_len)
{
        c->crossover = crossover;
        return add_told(c, knows_costs, c->goes_by_cost, 1, err, err_len);
}

int curves_set_windows(
        struct curves *c, uint32_t groups, uint32_t tokens, char *err, size_t err_len)
{
        c->windows = (struct sim_windows){.groups = groups, .tokens = tokens};
        return add_told(c, knows_windows, c->is_told_windows, 1, err, err_len);
}

static bool knows_hints(const struct evict_ops *policy)
{
        return policy->hint;
}

int curves_set_hints(struct curves *c, const char *list, bool timed, char *err, size_t err_len)
{
        _cleanup_free_ char *copy = strdup(list);
        char *rest = copy, shown[FORMAT_EXCERPT_MAX];
        const char *text;
        uint64_t percent;

        c->n_hints = 0;
        c->hints_timed = timed;
        if (!copy)
                return -ENOMEM;
        while ((text = next_word(&rest))) {
                if (c->n_hints == CURVES_HINTS_MAX) {
                        snprintf(err, err_len, "more than %d shares of hints", CURVES_HINTS_MAX);
                        return -EINVAL;
                }
                if (parse_u64(text, &percent) < 0 || percent > 100) {
                        snprintf(err, err_len, "'%s' is no share of right hints, 0 to 100 percent",
                                format_excerpt(text, strlen(text), shown));
                        return -EINVAL;
                }
                c->hints_right[c->n_hints++] = (uint32_t)percent;
        }
        return add_told(c, knows_hints, c->hints, c->n_hints, err, err_len);
}

static struct sim_hints hints_of(const struct curves *c, unsigned policy)
{
        if (c->hints[policy] == 0)
                return (struct sim_hints){0};
        return (struct sim_hints){true, c->hints_timed, c->hints_right[c->hints[policy] - 1]};
}

char *curves_policy_name(const struct curves *c, unsigned policy, char buf[CURVES_NAME_MAX])
{
        char hints[8] = "";

        if (c->hints[policy] > 0)
                snprintf(hints, sizeof(hints), "+%u%%", hints_of(c, policy).right_percent);
        snprintf(buf, CURVES_NAME_MAX, "%s%s%s%s", c->policies[policy]->name,
                c->goes_by_cost[policy] ? "+cost" : "", c->is_told_windows[policy] ? "+told" : "",
                hints);
        return buf;
}

/* "12.5%" or "1000" */
static int parse_capacity(const char *text, uint32_t n_unique, struct capacity *ret)
{
        char *end;
        double number;

        if (text[0] < '0' || text[0] > '9' || text[strspn(text, "0123456789.%")] != '\0')
                return -EINVAL;
        number = strtod(text, &end);
        if (strcmp(end, "%") == 0) {
                if (!(number > 0 && number <= 100))
                        return -EINVAL;
                *ret = (struct capacity){
                        number, (uint32_t)MAX(floor(number * n_unique / 100), 1.0)};
                return 0;
        }
        if (*end || number < 1 || number >= NODE_NONE || number != floor(number))
                return -EINVAL;
        *ret = (struct capacity){0, (uint32_t)number};
        return 0;
}

int curves_set_capacities(
        struct curves *c, const char *list, uint32_t n_unique, char *err, size_t err_len)
{
        _cleanup_free_ char *copy = strdup(list);
        char *rest = copy, shown[FORMAT_EXCERPT_MAX];
        const char *text;

        c->n_capacities = 0;
        if (!copy)
                return -ENOMEM;
        while ((text = next_word(&rest))) {
                if (c->n_capacities == CURVES_CAPACITIES_MAX) {
                        snprintf(err, err_len, "more than %d capacities", CURVES_CAPACITIES_MAX);
                        return -EINVAL;
                }
                if (parse_capacity(text, n_unique, &c->capacities[c->n_capacities]) < 0) {
                        snprintf(err, err_len,
                                "'%s' is no capacity: allowed are pages (1000) and parts of the trace's blocks, to 100%% (2.5%%)",
                                format_excerpt(text, strlen(text), shown));
                        return -EINVAL;
                }
                c->n_capacities++;
        }
        return 0;
}

char *capacity_text(const struct capacity *c, char buf[32])
{
        if (c->percent > 0)
                snprintf(buf, 32, "%g %%", c->percent);
        else
                snprintf(buf, 32, "%" PRIu32 " pages", c->pages);
        return buf;
}

/* ---- running --------------------------------------------------------------------------------- */

/* The simulation of a job. */
struct place {
        unsigned policy, capacity, seed;
        uint32_t part, n_parts;
};

static void prepare_job(struct curves *c, const struct place *at, struct replay_job *job)
{
        uint32_t pages = MAX(c->capacities[at->capacity].pages / at->n_parts, 1u);

        job->options = (struct sim_options){
                .policy = c->policies[at->policy],
                .capacity_pages = pages,
                .below_pages = (uint32_t)MIN((uint64_t)pages * c->below, NODE_NONE - 1),
                .crossover = c->crossover,
                .goes_by_cost = c->goes_by_cost[at->policy],
                .expect = c->expect,
                .wrong_percent = c->wrong_percent,
                .count_from = c->count_from,
                .tenant = at->n_parts > 1 ? at->part : SIM_ALL_TENANTS,
                .may_bypass = c->policies[at->policy] == &evict_optimum,
                .engine = c->engine,
                .hints = hints_of(c, at->policy),
                .windows = {c->windows.groups, c->windows.tokens, c->is_told_windows[at->policy]},
                .seed = at->seed,
        };
}

static void add_flight(struct sim_flight_result *sum, const struct sim_flight_result *r)
{
        sum->waited_requests += r->waited_requests;
        sum->wait_nsec += r->wait_nsec;
        sum->uncached_blocks += r->uncached_blocks;
        sum->duplicate_blocks += r->duplicate_blocks;
        sum->max_running = MAX(sum->max_running, r->max_running);
        sum->held_page_seconds += r->held_page_seconds;
        sum->cached_page_seconds += r->cached_page_seconds;
}

static void add_result(struct sim_result *sum, const struct sim_result *r, bool first_seed)
{
        sum->requests += r->requests;
        sum->input_tokens += r->input_tokens;
        sum->hit_tokens += r->hit_tokens;
        sum->input_cost += r->input_cost;
        sum->hit_cost += r->hit_cost;
        sum->blocks += r->blocks;
        sum->hit_blocks += r->hit_blocks;
        sum->below_tokens += r->below_tokens;
        sum->demotions += r->demotions;
        sum->promotions += r->promotions;
        sum->expected.received += r->expected.received;
        sum->expected.fulfilled += r->expected.fulfilled;
        sum->expected.expired += r->expected.expired;
        sum->expected.dropped += r->expected.dropped;
        sum->inserts += r->inserts;
        sum->evictions += r->evictions;
        sum->policy_bytes += first_seed ? r->policy_bytes : 0;
        add_flight(&sum->flight, &r->flight);
}

static void take_result(struct curves *c, const struct place *at, struct replay_job *job)
{
        struct sim_result *sum = &c->results[at->policy][at->capacity];

        if (at->part == 0 && at->seed == 0)
                *sum = (struct sim_result){0};
        add_result(sum, &job->result, at->seed == 0);
}

static unsigned n_seeds(const struct curves *c)
{
        return MAX(c->n_seeds, 1u);
}

/* Calls fn for every job, in order: those of one policy and capacity are adjacent. */
static void each_job(struct curves *c, uint32_t n_parts, struct replay_job *jobs,
        void (*fn)(struct curves *c, const struct place *at, struct replay_job *job))
{
        struct place at = {.n_parts = n_parts};

        for (at.policy = 0; at.policy < c->n_policies; at.policy++)
                for (at.capacity = 0; at.capacity < c->n_capacities; at.capacity++)
                        for (at.seed = 0; at.seed < n_seeds(c); at.seed++)
                                for (at.part = 0; at.part < n_parts; at.part++)
                                        fn(c, &at, jobs++);
}

/* Returns the hit ratio of all parts with one seed. */
static double ratio_of(const struct replay_job *jobs, uint32_t n_parts)
{
        struct sim_result sum = {0};

        for (uint32_t i = 0; i < n_parts; i++)
                add_result(&sum, &jobs[i].result, true);
        return replay_hit_ratio(&sum);
}

/* jobs: of one policy and capacity. */
static struct hit_spread spread_of(
        const struct replay_job *jobs, unsigned n_seeds, uint32_t n_parts)
{
        struct hit_spread s = {.least = 1};
        double squares = 0;

        for (unsigned i = 0; i < n_seeds; i++) {
                double ratio = ratio_of(jobs + (size_t)i * n_parts, n_parts);

                s.mean += ratio / n_seeds;
                s.least = MIN(s.least, ratio);
                s.most = MAX(s.most, ratio);
        }
        for (unsigned i = 0; i < n_seeds; i++) {
                double off = ratio_of(jobs + (size_t)i * n_parts, n_parts) - s.mean;

                squares += off * off;
        }
        if (n_seeds > 1)
                s.stddev = sqrt(squares / (n_seeds - 1));
        return s;
}

static void take_spreads(struct curves *c, uint32_t n_parts, const struct replay_job *jobs)
{
        for (unsigned p = 0; p < c->n_policies; p++)
                for (unsigned i = 0; i < c->n_capacities; i++) {
                        c->spreads[p][i] = spread_of(jobs, n_seeds(c), n_parts);
                        jobs += (size_t)n_seeds(c) * n_parts;
                }
}

int curves_run(struct curves *c, const struct sim_trace *trace, unsigned n_processes,
        bool (*progress)(uint64_t done, uint64_t total, void *data), void *data)
{
        uint32_t n_parts = c->split ? trace->n_tenants : 1;
        size_t n = (size_t)c->n_policies * c->n_capacities * n_seeds(c) * n_parts;
        _cleanup_free_ struct replay_job *jobs = calloc(MAX(n, (size_t)1), sizeof(*jobs));
        int r;

        if (!jobs)
                return -ENOMEM;
        each_job(c, n_parts, jobs, prepare_job);
        r = replay_run(trace, jobs, n, n_processes, progress, data);
        if (r == 0) {
                each_job(c, n_parts, jobs, take_result);
                take_spreads(c, n_parts, jobs);
        }
        return r;
}

double curves_at(const struct curves *c, unsigned policy, unsigned capacity)
{
        return replay_hit_ratio(&c->results[policy][capacity]);
}

double curves_above(const struct curves *c, unsigned policy, unsigned capacity)
{
        struct sim_result above = c->results[policy][capacity];

        above.hit_tokens -= above.below_tokens;
        return replay_hit_ratio(&above);
}

double curves_saved(const struct curves *c, unsigned policy, unsigned capacity)
{
        const struct sim_result *r = &c->results[policy][capacity];

        return r->input_cost > 0 ? r->hit_cost / r->input_cost : 0;
}

double curves_held(const struct curves *c, unsigned policy, unsigned capacity)
{
        const struct sim_flight_result *f = &c->results[policy][capacity].flight;

        return f->cached_page_seconds > 0 ? f->held_page_seconds / f->cached_page_seconds : 0;
}

uint64_t curves_wait_msec(const struct curves *c, unsigned policy, unsigned capacity)
{
        const struct sim_result *r = &c->results[policy][capacity];

        return r->requests > 0 ? r->flight.wait_nsec / r->requests / NSEC_PER_MSEC : 0;
}
