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
#include <errno.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/macros.h"
#include "client/trace/analysis.h"

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
