/*
 * Analysis of a trace's traffic, without a policy: lengths, repeats, sessions, ages of reuse, page
 * sizes, demand; and the hit-ratio curves. Times in milliseconds.
 *
 * A request *continues* a session if it is longer than the session's previous request, has all its
 * blocks but the last, and is the first to continue it. The last block may be partial, and becomes
 * another one when the sequence goes on. Blocks that all requests share, as a system prompt, make
 * no session. All other requests begin a session.
 */
#ifndef KVL_TRACE_ANALYSIS_H
#define KVL_TRACE_ANALYSIS_H

#include <stddef.h>
#include <stdint.h>

#include "client/trace/curves.h"
#include "client/trace/trace.h"

/* Distributions: quantiles, and a histogram over powers of two to draw. */
#define DIST_QUANTILES 9
#define DIST_MEDIAN    3

/* Bin b counts values from 2^(b/2) up to the next: two bins an octave. Bin 0 has the zeros, too. */
#define DIST_BINS 128

struct dist {
        uint64_t n;
        double mean;
        uint64_t quantiles[DIST_QUANTILES]; /* values that occurred */
        uint64_t bins[DIST_BINS];
};

/* Makes a distribution of the values, which it sorts. */
void dist_of(uint64_t *values, size_t n, struct dist *ret);

/* Returns the smallest of the n > 0 sorted values that `part` (0..1) of them don't exceed. */
uint64_t dist_quantile(const uint64_t *sorted, size_t n, double part);

/* Returns the lower edge of a bin. */
double dist_bin_start(unsigned bin);

/* Returns the first and last non-empty bin: 0 and 0 if n == 0. */
void dist_range(const struct dist *d, unsigned *ret_first, unsigned *ret_last);

/* Parts of the requests that a cache of any size could have. */
struct repeats {
        uint64_t input_tokens, output_tokens;
        uint64_t repeated_tokens;   /* of the input: in blocks that occurred before */
        uint64_t repeated_requests; /* whose first block occurred before */
        uint64_t blocks, repeated_blocks;
        uint64_t continued; /* requests that continue a session */
};

struct sessions {
        uint64_t n;
        struct dist turns;         /* requests of a session */
        struct dist gap_msec;      /* between two of its requests */
        struct dist duration_msec; /* first to last, of sessions with several requests */
};

/* A page size. */
struct page_size {
        uint32_t tokens;
        uint64_t page_tokens;   /* of all pages of all requests, input and output */
        uint64_t wasted_tokens; /* of these: after the end of a sequence */
        uint64_t hit_tokens;    /* with a cache of any size */
        bool estimated;         /* hit_tokens, if smaller than the trace's blocks */
};

#define PAGE_SIZES 7 /* 16, 32, .. 1024 */

struct page_sizes {
        struct page_size sizes[PAGE_SIZES];
        unsigned advised;
        uint64_t long_tokens; /* three of four sequences have at least this */
};

#define DEMAND_POLICIES_MAX 8

/* Demand of a tenant: pages (the trace's blocks) in use, over time. */
struct demand {
        uint64_t p50_pages, p99_pages, max_pages; /* of time */
        uint64_t requests, unique_pages;
        /* With a cache of p99_pages of its own, by the daemon's policies, as in evict_policies. */
        struct sim_result at_p99[DEMAND_POLICIES_MAX];
        unsigned best; /* the policy that hits most; the first of equals */
};

struct analysis {
        const struct trace *trace; /* borrowed */
        uint64_t duration_msec;
        struct dist input_tokens, output_tokens;
        struct repeats repeats;
        struct sessions sessions;
        /* Time between two uses of a block, counted once a block: first reuse, and all. */
        struct dist first_reuse_msec, reuse_msec;
        struct page_sizes page_sizes;
        uint64_t hold_msec;     /* how long a request keeps its pages: see analyze_demand() */
        struct demand *demands; /* owned; of each tenant */
        struct curves curves;
};

struct analysis_options {
        unsigned n_processes;
        uint64_t hold_msec; /* 0: determined */
        /* For the curves; NULL: ANALYSIS_POLICIES and ANALYSIS_CAPACITIES. */
        const char *policies, *capacities;
        bool (*progress)(uint64_t done, uint64_t total, void *data);
        void *data;
};

/* The daemon's policies, two that are often named beside LRU, and the optimum. */
#define ANALYSIS_POLICIES   "daemon,arc,lru2,optimum"
#define ANALYSIS_CAPACITIES "0.5%,1%,2%,5%,10%,20%,35%,50%,100%"

/* Returns 0: *ret is to be freed; it borrows the trace. -EINVAL: a sentence in err; as
 * replay_run(); -ENOMEM. */
int analyze(const struct trace *trace, const struct analysis_options *options, struct analysis *ret,
        char *err, size_t err_len);
void analysis_free(struct analysis *a);

/* Parts of analyze(); each fills its own part. Return 0 or -ENOMEM. */
int analyze_requests(const struct sim_trace *t, struct analysis *ret);
int analyze_page_sizes(const struct sim_trace *t, struct page_sizes *ret);
int analyze_demand(const struct sim_trace *t, uint64_t hold_msec, struct demand *ret);

/* Returns, for each request, which one it continues; UINT32_MAX: none. n_requests entries, owned;
 * NULL: no memory. */
uint32_t *find_sessions(const struct sim_trace *t);

double page_size_waste(const struct page_size *p);                              /* 0..1 */
double page_size_hit_ratio(const struct page_size *p, const struct repeats *r); /* 0..1 */

#endif
