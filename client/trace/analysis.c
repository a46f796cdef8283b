#include "client/trace/analysis.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/macros.h"

/* ---- distributions --------------------------------------------------------------------------- */

static const double dist_quantiles[DIST_QUANTILES] = {
        0.01, 0.05, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 1};

static int compare_values(const void *a, const void *b)
{
        uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

        return (x > y) - (x < y);
}

/* Returns twice the binary logarithm, rounded down: 2^k and 2^k * sqrt(2) begin bins. Compared by
 * squares, which are exact. */
static unsigned bin_of(uint64_t value)
{
        unsigned octave;

        if (value < 2)
                return 0;
        octave = 63 - (unsigned)__builtin_clzll(value);
        return 2 * octave +
               ((unsigned __int128)value * value >= (unsigned __int128)1 << (2 * octave + 1));
}

double dist_bin_start(unsigned bin)
{
        return bin == 0 ? 0 : exp2(bin / 2.0);
}

uint64_t dist_quantile(const uint64_t *sorted, size_t n, double part)
{
        double rank = ceil(part * (double)n);

        return sorted[rank < 1 ? 0 : MIN((size_t)rank, n) - 1];
}

void dist_of(uint64_t *values, size_t n, struct dist *ret)
{
        double sum = 0;

        *ret = (struct dist){.n = n};
        if (n == 0)
                return;
        qsort(values, n, sizeof(*values), compare_values);
        for (size_t i = 0; i < n; i++) {
                sum += (double)values[i];
                ret->bins[bin_of(values[i])]++;
        }
        ret->mean = sum / (double)n;
        for (unsigned i = 0; i < DIST_QUANTILES; i++)
                ret->quantiles[i] = dist_quantile(values, n, dist_quantiles[i]);
}

void dist_range(const struct dist *d, unsigned *ret_first, unsigned *ret_last)
{
        *ret_first = *ret_last = 0;
        for (unsigned i = DIST_BINS; i-- > 0;)
                if (d->bins[i] > 0)
                        *ret_first = i;
        for (unsigned i = 0; i < DIST_BINS; i++)
                if (d->bins[i] > 0)
                        *ret_last = i;
}

/* Default if no request continues another. Not tuned. */
#define DEFAULT_HOLD_MSEC (60 * UINT64_C(1000))

/* 200 years, as for the trace's times. */
#define HOLD_MSEC_MAX UINT64_C(6300000000000)

void analysis_free(struct analysis *a)
{
        free(a->demands);
        *a = (struct analysis){0};
}

static uint64_t choose_hold(const struct sessions *s, uint64_t given_msec)
{
        if (given_msec > 0)
                return MIN(given_msec, HOLD_MSEC_MAX);
        return s->gap_msec.n > 0 ? MAX(s->gap_msec.quantiles[DIST_MEDIAN], UINT64_C(1))
                                 : DEFAULT_HOLD_MSEC;
}

static unsigned count_policies(void)
{
        unsigned n = 0;

        while (n < DEMAND_POLICIES_MAX && evict_policies[n])
                n++;
        return n;
}

static void take_results(struct demand *d, const struct replay_job *jobs, unsigned n)
{
        for (unsigned p = 0; p < n; p++) {
                d->at_p99[p] = jobs[p].result;
                if (d->at_p99[p].hit_tokens > d->at_p99[d->best].hit_tokens)
                        d->best = p;
        }
}

static int simulate_demands(const struct analysis_options *o, struct analysis *a)
{
        const struct sim_trace *t = &a->trace->sim;
        unsigned n = count_policies();
        size_t n_jobs = (size_t)t->n_tenants * n;
        _cleanup_free_ struct replay_job *jobs = calloc(n_jobs, sizeof(*jobs));
        int r;

        if (!jobs)
                return -ENOMEM;
        for (size_t i = 0; i < n_jobs; i++)
                jobs[i].options = (struct sim_options){
                        .policy = evict_policies[i % n],
                        .capacity_pages = (uint32_t)MIN(
                                MAX(a->demands[i / n].p99_pages, UINT64_C(1)), (uint64_t)INT32_MAX),
                        .tenant = (uint32_t)(i / n),
                };
        r = replay_run(t, jobs, n_jobs, o->n_processes, NULL, NULL);
        for (uint32_t i = 0; r == 0 && i < t->n_tenants; i++)
                take_results(&a->demands[i], jobs + (size_t)i * n, n);
        return r;
}

static int run_demand(const struct analysis_options *o, struct analysis *a)
{
        int r;

        a->demands = calloc(a->trace->sim.n_tenants, sizeof(*a->demands));
        if (!a->demands)
                return -ENOMEM;
        r = analyze_demand(&a->trace->sim, a->hold_msec, a->demands);
        return r == 0 ? simulate_demands(o, a) : r;
}

static int run_all(const struct analysis_options *o, struct analysis *a, char *err, size_t err_len)
{
        const struct sim_trace *t = &a->trace->sim;
        int r = curves_set_policies(
                &a->curves, o->policies ? o->policies : ANALYSIS_POLICIES, err, err_len);

        if (r == 0)
                r = curves_set_capacities(&a->curves,
                        o->capacities ? o->capacities : ANALYSIS_CAPACITIES, t->n_unique, err,
                        err_len);
        if (r == 0)
                r = analyze_requests(t, a);
        if (r == 0)
                r = analyze_page_sizes(t, &a->page_sizes);
        if (r < 0)
                return r;
        a->hold_msec = choose_hold(&a->sessions, o->hold_msec);
        r = run_demand(o, a);
        if (r == 0)
                r = curves_run(&a->curves, t, o->n_processes, o->progress, o->data);
        return r;
}

int analyze(const struct trace *trace, const struct analysis_options *options, struct analysis *ret,
        char *err, size_t err_len)
{
        int r;

        *ret = (struct analysis){.trace = trace};
        r = run_all(options, ret, err, err_len);
        if (r < 0)
                analysis_free(ret);
        return r;
}
