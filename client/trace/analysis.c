#include "client/trace/analysis.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/macros.h"

/* ---- requests and sessions ------------------------------------------------------------------- */

/* Returns the blocks of a request that an earlier request of the trace had. `seen`: n_unique flags.
 */
static uint32_t known_blocks(
        const struct sim_trace *t, const struct sim_request *r, const bool *seen)
{
        uint32_t n = 0;

        while (n < r->n_blocks && seen[t->blocks[r->first + n]])
                n++;
        return n;
}

/* ---- sessions -------------------------------------------------------------------------------- */

struct finder {
        const struct sim_trace *trace;
        /* 1 + the request that ended at a block, or one block below it, and wasn't continued; 0:
         * none. Owned, as the rest. */
        uint32_t *at, *above;
        bool *seen;
        uint32_t *continued; /* the result */
};

static const uint32_t *path_of(const struct finder *f, uint32_t request)
{
        return f->trace->blocks + f->trace->requests[request].first;
}

/* Returns the request that `request` continues: the shorter one that ended deepest on its path. */
static uint32_t find_end(const struct finder *f, uint32_t request)
{
        const struct sim_request *requests = f->trace->requests;
        const uint32_t *path = path_of(f, request);

        for (uint32_t i = requests[request].n_blocks; i-- > 0;) {
                uint32_t found = f->at[path[i]] > 0 ? f->at[path[i]] : f->above[path[i]];

                if (found > 0 && requests[found - 1].input_tokens < requests[request].input_tokens)
                        return found - 1;
        }
        return UINT32_MAX;
}

/* Notes the end of a request: its last block, and the one before if that is a sequence of its own.
 * It is if this request, or its session, began it. Otherwise each request with the same system
 * prompt would continue this one. */
static void note_end(struct finder *f, uint32_t request, uint32_t n_fresh)
{
        uint32_t n = f->trace->requests[request].n_blocks;
        const uint32_t *path = path_of(f, request);
        bool is_continued = f->continued[request] != UINT32_MAX;

        if (n > 0 && (is_continued || n_fresh > 0))
                f->at[path[n - 1]] = request + 1;
        if (n > 1 && (is_continued || n_fresh > 1))
                f->above[path[n - 2]] = request + 1;
}

/* The request was continued: no other request continues it. */
static void drop_end(struct finder *f, uint32_t request)
{
        uint32_t n = f->trace->requests[request].n_blocks;
        const uint32_t *path = path_of(f, request);

        if (f->at[path[n - 1]] == request + 1)
                f->at[path[n - 1]] = 0;
        if (n > 1 && f->above[path[n - 2]] == request + 1)
                f->above[path[n - 2]] = 0;
}

static void link_sessions(struct finder *f)
{
        const struct sim_trace *t = f->trace;

        for (uint32_t i = 0; i < t->n_requests; i++) {
                const struct sim_request *r = &t->requests[i];
                uint32_t known = known_blocks(t, r, f->seen);

                f->continued[i] = find_end(f, i);
                if (f->continued[i] != UINT32_MAX)
                        drop_end(f, f->continued[i]);
                note_end(f, i, r->n_blocks - known);
                for (uint32_t j = known; j < r->n_blocks; j++)
                        f->seen[t->blocks[r->first + j]] = true;
        }
}

uint32_t *find_sessions(const struct sim_trace *t)
{
        uint32_t *continued = malloc(MAX(t->n_requests, 1u) * sizeof(*continued));
        _cleanup_free_ uint32_t *at = calloc(MAX(t->n_unique, 1u), sizeof(*at));
        _cleanup_free_ uint32_t *above = calloc(MAX(t->n_unique, 1u), sizeof(*above));
        _cleanup_free_ bool *seen = calloc(MAX(t->n_unique, 1u), sizeof(*seen));
        struct finder f = {t, at, above, seen, continued};

        if (!continued || !at || !above || !seen) {
                free(continued);
                return NULL;
        }
        link_sessions(&f);
        return continued;
}

/* ---- distributions --------------------------------------------------------------------------- */

static uint64_t msec_between(const struct sim_request *from, const struct sim_request *to)
{
        return (to->time_nsec - from->time_nsec) / NSEC_PER_MSEC;
}

static void measure_lengths(const struct sim_trace *t, uint64_t *values, struct analysis *ret)
{
        for (uint32_t i = 0; i < t->n_requests; i++)
                values[i] = t->requests[i].input_tokens;
        dist_of(values, t->n_requests, &ret->input_tokens);
        for (uint32_t i = 0; i < t->n_requests; i++)
                values[i] = t->requests[i].output_tokens;
        dist_of(values, t->n_requests, &ret->output_tokens);
}

/* `first`, `turns`: workspace, an entry for each request. */
static void measure_sessions(const struct sim_trace *t, const uint32_t *continued, uint64_t *values,
        uint32_t *first, uint32_t *turns, struct analysis *ret)
{
        struct sessions *s = &ret->sessions;
        size_t n = 0;

        for (uint32_t i = 0; i < t->n_requests; i++) {
                first[i] = continued[i] == UINT32_MAX ? i : first[continued[i]];
                turns[i] = 0;
                turns[first[i]]++;
                if (continued[i] != UINT32_MAX)
                        values[n++] = msec_between(&t->requests[continued[i]], &t->requests[i]);
        }
        ret->repeats.continued = n;
        dist_of(values, n, &s->gap_msec);
        n = 0;
        for (uint32_t i = 0; i < t->n_requests; i++)
                if (turns[i] > 0)
                        values[n++] = turns[i];
        s->n = n;
        dist_of(values, n, &s->turns);
        /* The last request of a session overwrites those before it. */
        for (uint32_t i = 0; i < t->n_requests; i++)
                values[first[i]] = msec_between(&t->requests[first[i]], &t->requests[i]);
        n = 0;
        for (uint32_t i = 0; i < t->n_requests; i++)
                if (turns[i] > 1)
                        values[n++] = values[i];
        dist_of(values, n, &s->duration_msec);
}

/* Returns the hit tokens of n known blocks: a request's last block may be partial. */
static uint64_t tokens_of_blocks(const struct sim_trace *t, const struct sim_request *r, uint32_t n)
{
        return MIN((uint64_t)n * t->block_tokens, (uint64_t)r->input_tokens);
}

static void measure_repeats(const struct sim_trace *t, bool *seen, struct repeats *ret)
{
        for (uint32_t i = 0; i < t->n_requests; i++) {
                const struct sim_request *r = &t->requests[i];
                uint32_t known = known_blocks(t, r, seen);

                ret->input_tokens += r->input_tokens;
                ret->output_tokens += r->output_tokens;
                ret->repeated_tokens += tokens_of_blocks(t, r, known);
                ret->repeated_requests += known > 0;
                ret->blocks += r->n_blocks;
                ret->repeated_blocks += known;
                for (uint32_t j = known; j < r->n_blocks; j++)
                        seen[t->blocks[r->first + j]] = true;
        }
}

/* `last`: 1 + the last request that used a block, `reused`: of each block; zeroed workspace.
 * `values`: n_blocks entries. */
static void measure_reuse(const struct sim_trace *t, uint32_t *last, bool *reused, bool first_only,
        uint64_t *values, struct dist *ret)
{
        size_t n = 0;

        for (uint32_t i = 0; i < t->n_requests; i++) {
                const struct sim_request *r = &t->requests[i];

                for (uint32_t j = 0; j < r->n_blocks; j++) {
                        uint32_t block = t->blocks[r->first + j];

                        if (last[block] > 0 && !(first_only && reused[block]))
                                values[n++] = msec_between(&t->requests[last[block] - 1], r);
                        reused[block] = last[block] > 0;
                        last[block] = i + 1;
                }
        }
        dist_of(values, n, ret);
}

static int analyze_blocks(const struct sim_trace *t, struct analysis *ret)
{
        _cleanup_free_ uint64_t *values = malloc(MAX(t->n_blocks, UINT64_C(1)) * sizeof(*values));

        for (unsigned first_only = 0; first_only < 2; first_only++) {
                _cleanup_free_ uint32_t *last = calloc(MAX(t->n_unique, 1u), sizeof(*last));
                _cleanup_free_ bool *flags = calloc(MAX(t->n_unique, 1u), sizeof(*flags));

                if (!values || !last || !flags)
                        return -ENOMEM;
                if (first_only)
                        measure_repeats(t, flags, &ret->repeats);
                for (uint32_t i = 0; i < t->n_unique; i++)
                        flags[i] = false;
                measure_reuse(t, last, flags, first_only, values,
                        first_only ? &ret->first_reuse_msec : &ret->reuse_msec);
        }
        return 0;
}

int analyze_requests(const struct sim_trace *t, struct analysis *ret)
{
        size_t n = MAX(t->n_requests, 1u);
        _cleanup_free_ uint64_t *values = malloc(n * sizeof(*values));
        _cleanup_free_ uint32_t *first = malloc(n * sizeof(*first));
        _cleanup_free_ uint32_t *turns = malloc(n * sizeof(*turns));
        _cleanup_free_ uint32_t *continued = find_sessions(t);

        if (!values || !first || !turns || !continued)
                return -ENOMEM;
        ret->duration_msec = msec_between(&t->requests[0], &t->requests[t->n_requests - 1]);
        measure_lengths(t, values, ret);
        measure_sessions(t, continued, values, first, turns, ret);
        return analyze_blocks(t, ret);
}

/* ---- page sizes ------------------------------------------------------------------------------ */

/*
 * Page sizes: the memory and the hits that they cost.
 *
 * A sequence of input and output has pages of its own at its end; half of the last one is empty on
 * average. A hit covers whole pages (or all of an input that occurred as a whole). If pages are
 * smaller than the trace's blocks, a block that differs may have the same start. That is assumed
 * for sessions only, in which the next request begins with the whole previous input.
 */

/* Not tuned; stated with the advice. The largest page within these two bounds is advised: the
 * memory it wastes, and the hits it loses compared to the smallest page. Larger pages are fewer to
 * look up and to move. */
#define WASTE_MAX    0.01
#define HIT_LOSS_MAX 0.005

/* Pages of 256 tokens and more require that three in four sequences have this many of them. */
#define LARGE_TOKENS    256
#define LARGE_PAGES_MIN 32

double page_size_waste(const struct page_size *p)
{
        return p->page_tokens > 0 ? (double)p->wasted_tokens / (double)p->page_tokens : 0;
}

double page_size_hit_ratio(const struct page_size *p, const struct repeats *r)
{
        return r->input_tokens > 0 ? (double)p->hit_tokens / (double)r->input_tokens : 0;
}

static void add_request(const struct sim_trace *t, const struct sim_request *r, uint64_t block_hit,
        uint64_t text_hit, struct page_size *p)
{
        uint64_t text = (uint64_t)r->input_tokens + r->output_tokens;
        uint64_t pages = round_up_u64(text, p->tokens);
        uint64_t hit = p->tokens < t->block_tokens ? text_hit : block_hit;

        p->page_tokens += pages;
        p->wasted_tokens += pages - text;
        p->hit_tokens += hit == r->input_tokens ? hit : hit / p->tokens * p->tokens;
}

static void measure_hits(const struct sim_trace *t, const uint32_t *continued, bool *seen,
        uint64_t *texts, struct page_sizes *ret)
{
        for (uint32_t i = 0; i < t->n_requests; i++) {
                const struct sim_request *r = &t->requests[i];
                uint32_t known = known_blocks(t, r, seen);
                uint64_t block_hit =
                        MIN((uint64_t)known * t->block_tokens, (uint64_t)r->input_tokens);
                uint64_t text_hit = block_hit;

                if (continued[i] != UINT32_MAX)
                        text_hit = MAX(block_hit,
                                MIN((uint64_t)r->input_tokens,
                                        (uint64_t)t->requests[continued[i]].input_tokens));
                for (uint32_t j = known; j < r->n_blocks; j++)
                        seen[t->blocks[r->first + j]] = true;
                for (unsigned s = 0; s < PAGE_SIZES; s++)
                        add_request(t, r, block_hit, text_hit, &ret->sizes[s]);
                texts[i] = (uint64_t)r->input_tokens + r->output_tokens;
        }
}

static bool is_good(const struct page_sizes *all, const struct page_size *p, uint64_t input_tokens)
{
        uint64_t lost = all->sizes[0].hit_tokens - MIN(p->hit_tokens, all->sizes[0].hit_tokens);

        if (p->tokens >= LARGE_TOKENS && all->long_tokens < (uint64_t)p->tokens * LARGE_PAGES_MIN)
                return false;
        return page_size_waste(p) <= WASTE_MAX &&
               (double)lost <= HIT_LOSS_MAX * (double)input_tokens;
}

static void advise(const struct sim_trace *t, struct page_sizes *ret)
{
        uint64_t input_tokens = 0;

        for (uint32_t i = 0; i < t->n_requests; i++)
                input_tokens += t->requests[i].input_tokens;
        ret->advised = 0;
        for (unsigned s = 1; s < PAGE_SIZES; s++)
                if (is_good(ret, &ret->sizes[s], input_tokens))
                        ret->advised = s;
}

int analyze_page_sizes(const struct sim_trace *t, struct page_sizes *ret)
{
        _cleanup_free_ uint32_t *continued = find_sessions(t);
        _cleanup_free_ bool *seen = calloc(MAX(t->n_unique, 1u), sizeof(*seen));
        _cleanup_free_ uint64_t *texts = calloc(MAX(t->n_requests, 1u), sizeof(*texts));
        struct dist lengths;

        if (!continued || !seen || !texts)
                return -ENOMEM;
        *ret = (struct page_sizes){0};
        for (unsigned s = 0; s < PAGE_SIZES; s++)
                ret->sizes[s] = (struct page_size){
                        .tokens = 16u << s, .estimated = 16u << s < t->block_tokens};
        measure_hits(t, continued, seen, texts, ret);
        dist_of(texts, t->n_requests, &lengths);
        ret->long_tokens = dist_quantile(texts, t->n_requests, 0.25);
        advise(t, ret);
        return 0;
}

/* ---- demand ---------------------------------------------------------------------------------- */

/*
 * Demand: the pages that a tenant has in use. A request's pages, of input and output, are in use
 * from its time on for `hold`; a shared page counts once. kvleased's sizer calls this, in whole
 * extent sets, demand.
 *
 * `hold` must be chosen: a trace doesn't say how long a request runs, and a conversation's pages
 * are wanted until its next turn. The default is the median gap between two turns: half of all next
 * turns then come while their pages are in use. If no request continues another, it is a minute.
 * Quantiles are over time, not over requests.
 */

/* A number of pages in use, and for how long. */
struct level {
        uint64_t pages, nsec;
};

struct sweep {
        const struct sim_trace *trace;
        uint32_t tenant;
        uint32_t *last; /* owned; 1 + the last request that used the block; 0: not in use */
        uint64_t n_pages, since_nsec;
        struct level *levels; /* owned; two entries a request */
        size_t n_levels;
        struct demand *ret;
};

static uint64_t output_pages(const struct sim_trace *t, const struct sim_request *r)
{
        uint64_t text = (uint64_t)r->input_tokens + r->output_tokens;
        uint64_t pages = (text + t->block_tokens - 1) / t->block_tokens;

        return pages > r->n_blocks ? pages - r->n_blocks : 0;
}

/* Ends the current level. */
static void note_level(struct sweep *s, uint64_t now_nsec)
{
        if (now_nsec > s->since_nsec)
                s->levels[s->n_levels++] = (struct level){s->n_pages, now_nsec - s->since_nsec};
        s->since_nsec = now_nsec;
}

static void begin_request(struct sweep *s, uint32_t request)
{
        const struct sim_request *r = &s->trace->requests[request];

        for (uint32_t i = 0; i < r->n_blocks; i++) {
                uint32_t *last = &s->last[s->trace->blocks[r->first + i]];

                s->n_pages += *last == 0;
                *last = request + 1;
        }
        s->n_pages += output_pages(s->trace, r);
        s->ret->max_pages = MAX(s->ret->max_pages, s->n_pages);
        s->ret->requests++;
}

static void end_request(struct sweep *s, uint32_t request)
{
        const struct sim_request *r = &s->trace->requests[request];

        for (uint32_t i = 0; i < r->n_blocks; i++) {
                uint32_t *last = &s->last[s->trace->blocks[r->first + i]];

                if (*last != request + 1)
                        continue;
                *last = 0;
                s->n_pages--;
        }
        s->n_pages -= output_pages(s->trace, r);
}

/* Returns the tenant's next request from number i on; n_requests: none. */
static uint32_t next_of(const struct sweep *s, uint32_t i)
{
        while (i < s->trace->n_requests && s->trace->requests[i].tenant != s->tenant)
                i++;
        return i;
}

static void sweep_requests(struct sweep *s, uint64_t hold_nsec)
{
        const struct sim_trace *t = s->trace;
        uint32_t ended = next_of(s, 0);

        if (ended < t->n_requests)
                s->since_nsec = t->requests[ended].time_nsec;
        for (uint32_t i = ended; i < t->n_requests; i = next_of(s, i + 1)) {
                uint64_t now_nsec = t->requests[i].time_nsec;

                for (; ended < i && t->requests[ended].time_nsec + hold_nsec <= now_nsec;
                        ended = next_of(s, ended + 1)) {
                        note_level(s, t->requests[ended].time_nsec + hold_nsec);
                        end_request(s, ended);
                }
                note_level(s, now_nsec);
                begin_request(s, i);
        }
}

static int compare_levels(const void *a, const void *b)
{
        const struct level *x = a, *y = b;

        return (x->pages > y->pages) - (x->pages < y->pages);
}

/* Returns the pages that suffice for this part of the time. */
static uint64_t demand_quantile(const struct sweep *s, double part)
{
        uint64_t total = 0, sum = 0;

        for (size_t i = 0; i < s->n_levels; i++)
                total += s->levels[i].nsec;
        for (size_t i = 0; i < s->n_levels; i++) {
                sum += s->levels[i].nsec;
                if ((double)sum >= part * (double)total)
                        return s->levels[i].pages;
        }
        return s->ret->max_pages; /* all at one time */
}

static uint64_t count_unique(const struct sim_trace *t, uint32_t tenant, bool *seen)
{
        uint64_t n = 0;

        for (uint32_t i = 0; i < t->n_requests; i++) {
                const struct sim_request *r = &t->requests[i];

                for (uint32_t j = 0; r->tenant == tenant && j < r->n_blocks; j++) {
                        bool *one = &seen[t->blocks[r->first + j]];

                        n += !*one;
                        *one = true;
                }
        }
        return n;
}

/* Fills ret[0 .. n_tenants - 1]. */
int analyze_demand(const struct sim_trace *t, uint64_t hold_msec, struct demand *ret)
{
        _cleanup_free_ struct level *levels =
                calloc(2 * (size_t)t->n_requests + 1, sizeof(*levels));
        _cleanup_free_ bool *seen = calloc(MAX(t->n_unique, 1u), sizeof(*seen));

        for (uint32_t i = 0; i < t->n_tenants; i++) {
                _cleanup_free_ uint32_t *last = calloc(MAX(t->n_unique, 1u), sizeof(*last));
                struct sweep s = {
                        .trace = t, .tenant = i, .last = last, .levels = levels, .ret = &ret[i]};

                if (!last || !levels || !seen)
                        return -ENOMEM;
                ret[i] = (struct demand){0};
                sweep_requests(&s, hold_msec * NSEC_PER_MSEC);
                qsort(levels, s.n_levels, sizeof(*levels), compare_levels);
                ret[i].p50_pages = demand_quantile(&s, 0.5);
                ret[i].p99_pages = demand_quantile(&s, 0.99);
                ret[i].unique_pages = count_unique(t, i, seen);
        }
        return 0;
}

/* ---- quantiles and histograms -----------------------------------------------------------------
 */

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
