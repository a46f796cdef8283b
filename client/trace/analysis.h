/*
 * What a trace says about its traffic, by itself (no policy): lengths, repeats, sessions, ages of
 * reuse, page sizes, demand; and the hit-ratio curves. Times in milliseconds.
 *
 * A request *continues* a session where it is longer than the request before it in that session,
 * has all of its blocks but the last, and no other has continued there: the last block may be
 * partial, and is another one once the text goes on. What is shared by all, as a system prompt is,
 * makes no session. All others begin a session.
 */
#ifndef KVL_TRACE_ANALYSIS_H
#define KVL_TRACE_ANALYSIS_H

#include "client/trace/curves.h"
#include "client/trace/dist.h"
#include "client/trace/trace.h"

/* Of the text before a request that could be found, with a cache of any size. */
struct repeats {
        uint64_t input_tokens, output_tokens;
        uint64_t repeated_tokens;   /* of the input: in blocks that were there before */
        uint64_t repeated_requests; /* whose first block was */
        uint64_t blocks, repeated_blocks;
        uint64_t continued; /* requests that continue a session */
};

struct sessions {
        uint64_t n;
        struct dist turns;         /* requests of a session */
        struct dist gap_msec;      /* between two of them */
        struct dist duration_msec; /* first to last, of sessions with several */
};

/* A page size. */
struct page_size {
        uint32_t tokens;
        uint64_t page_tokens;   /* of all pages of all requests, input and output */
        uint64_t wasted_tokens; /* of these: behind the end of a text */
        uint64_t hit_tokens;    /* with a cache of any size */
        bool estimated;         /* hit_tokens: smaller than the trace's blocks (page-size.c) */
};

#define PAGE_SIZES 7 /* 16, 32, .. 1024 */

struct page_sizes {
        struct page_size sizes[PAGE_SIZES];
        unsigned advised;
        uint64_t long_tokens; /* what three of four texts have at least */
};

#define DEMAND_POLICIES_MAX 8

/* Demand of a tenant: pages (the trace's blocks) in use, over time. */
struct demand {
        uint64_t p50_pages, p99_pages, max_pages; /* of time */
        uint64_t requests, unique_pages;
        /* With a cache of p99_pages of its own, by the daemon's policies: as in evict_policies. */
        struct sim_result at_p99[DEMAND_POLICIES_MAX];
        unsigned best; /* of them: hits most; the first of equals */
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
        uint64_t hold_msec;     /* how long a request keeps its pages: see demand.c */
        struct demand *demands; /* owned; of each tenant */
        struct curves curves;
};

struct analysis_options {
        unsigned n_processes;
        uint64_t hold_msec; /* 0: found out */
        /* Of the curves; NULL: ANALYSIS_POLICIES and ANALYSIS_CAPACITIES. */
        const char *policies, *capacities;
        bool (*progress)(uint64_t done, uint64_t total, void *data);
        void *data;
};

/* The daemon's policies, the two that are often named beside LRU, and the optimum. */
#define ANALYSIS_POLICIES   "daemon,arc,lru2,optimum"
#define ANALYSIS_CAPACITIES "0.5%,1%,2%,5%,10%,20%,35%,50%,100%"

/* 0: *ret is to be freed; it borrows the trace. -EINVAL: a sentence in err; what replay_run()
 * returns; -ENOMEM. */
int analyze(const struct trace *trace, const struct analysis_options *options, struct analysis *ret,
        char *err, size_t err_len);
void analysis_free(struct analysis *a);

/* Parts of it; each fills its own part. 0 or -ENOMEM. */
int analyze_requests(const struct sim_trace *t, struct analysis *ret);
int analyze_page_sizes(const struct sim_trace *t, struct page_sizes *ret);
int analyze_demand(const struct sim_trace *t, uint64_t hold_msec, struct demand *ret);

/* Which request of a session each continues, UINT32_MAX: none. n_requests, owned; NULL: no
 * memory. */
uint32_t *find_sessions(const struct sim_trace *t);

/* Blocks of a request that an earlier request of the trace had. `seen`: n_unique flags, updated. */
uint32_t known_blocks(const struct sim_trace *t, const struct sim_request *r, const bool *seen);

double page_size_waste(const struct page_size *p);                              /* 0..1 */
double page_size_hit_ratio(const struct page_size *p, const struct repeats *r); /* 0..1 */

#endif
