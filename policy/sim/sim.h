/*
 * The trace simulator: what a policy would have hit, with a cache of so many pages. PURE: no I/O,
 * no clock. It drives the very policies of the daemon (policy/evict.h) with the events the daemon
 * would, over slots that are reused as page indices are. One instance is one thread's; a trace is
 * read only and may be shared.
 *
 * The model (docs/POLICY.md, "The model"): a request is a path from the root of a tree of blocks;
 * its hit is the longest prefix of it that is cached. Then it holds its whole path, the blocks it
 * lacks are inserted (victims are leaves nobody holds; where there is none the rest of the path
 * isn't cached), and it ends. Every request counts, from a cold start.
 *
 * With an engine that takes time (struct sim_engine) a request runs for as long as its input is
 * prefilled and its output is decoded, and holds its pages until then (docs/POLICY.md, "Requests
 * that run"). Without, it is over in the moment in which it begins.
 *
 * With expectations: the requests that come next are a queue that is known. Each is expected
 * (policy/expect.h) when it enters the queue, as an engine would say of a request that waits.
 *
 * With layers of a window (struct sim_windows): see policy/sim/windows.c.
 *
 * With a tier below: what has no room on the device goes down, unless the tier below would drop it
 * next; what a request finds there comes up, before it inserts. A page is in one of both. Moves
 * take no time.
 */
#ifndef KVL_POLICY_SIM_H
#define KVL_POLICY_SIM_H

#include <stdbool.h>
#include <stdint.h>

#include "policy/evict.h"
#include "policy/expect.h"

struct sim_request {
        uint64_t time_nsec; /* not before the request's predecessor */
        uint64_t first;     /* its blocks are trace.blocks[first .. first + n_blocks - 1] */
        uint32_t n_blocks;
        uint32_t input_tokens; /* the last block may be partial: (n_blocks-1)*block_tokens < input
                                  <= n_blocks*block_tokens; others count as the trace counts them */
        uint32_t output_tokens;
        uint32_t tenant; /* 0.. */
        uint8_t hint;    /* enum evict_hint, of the text's end */
};

/* Blocks are numbered densely: 0..n_unique-1, one number a node of the prefix tree. */
struct sim_trace {
        const struct sim_request *requests; /* n_requests, borrowed, as the rest */
        const uint32_t *blocks;             /* n_blocks */
        const uint32_t *parents;            /* n_unique; NODE_NONE: begins a text */
        uint64_t n_blocks;
        uint32_t n_requests, n_unique, n_tenants;
        uint32_t block_tokens;
};

/* The time that requests take. All zero: none. */
struct sim_engine {
        /* Input that wasn't found, of each request by itself; 0: it is there at once. */
        uint64_t prefill_tokens_per_sec;
        /* 0: output takes neither time nor pages. */
        uint64_t output_token_nsec;
        uint32_t max_running; /* requests; 0: no limit */
};

/* Groups of layers that attend to a window, beside one of full attention. All zero: none. */
struct sim_windows {
        uint32_t groups;
        uint32_t tokens; /* of the window, > 0 */
        bool told;       /* the policy is told whose window has passed (evict_insert) */
};

static inline bool sim_takes_time(const struct sim_engine *e)
{
        return e->prefill_tokens_per_sec > 0 || e->output_token_nsec > 0 || e->max_running > 0;
}

/* Times are cut here: 200 years, as those of traces. */
#define SIM_TIME_MAX_NSEC UINT64_C(6300000000000000000)

struct sim_options {
        const struct evict_ops *policy;
        uint32_t capacity_pages; /* > 0 */
        uint32_t below_pages;    /* of the tier below; 0: none */
        uint32_t max_ghosts;     /* evict_params */
        uint32_t crossover;      /* tokens, of policy/recompute.h, for what the result says of
                                    computation */
        bool goes_by_cost;       /* the policy is told the crossover, too (evict_params) */
        uint32_t expect;         /* requests of the queue that is known; 0: nothing is expected */
        uint32_t wrong_percent;  /* so many of them are told wrong: a text that nobody asks for
                                    again is expected instead of theirs */
        uint32_t tenant;         /* only its requests; SIM_ALL_TENANTS */
        /* The optimum's rules: nothing is held, what was just inserted may be the victim. */
        bool may_bypass;
        struct sim_engine engine;   /* not with a tier below, and not with may_bypass */
        struct sim_windows windows; /* with none of: a tier below, expect, may_bypass, engine */
        uint64_t seed;      /* of the ids of pages, which stand for the hashes of their keys */
        const void *learnt; /* load()ed before the first request; may be NULL */
        size_t learnt_bytes;
        /* A block leaves the device for others: it goes down, or is dropped. It may be looked at,
         * and nothing else. NULL: nobody asks. */
        void (*leaves)(void *data, uint32_t block);
        void *leaves_data; /* borrowed */
};

#define SIM_ALL_TENANTS UINT32_MAX

/* What became of requests that take time; zero where none does. */
struct sim_flight_result {
        uint64_t waited_requests;   /* that didn't begin when they came */
        uint64_t wait_nsec;         /* of these, in sum */
        uint64_t uncached_blocks;   /* of requests that had no room for all of theirs, alone */
        uint64_t duplicate_blocks;  /* computed by two requests at the same time */
        uint64_t max_running;       /* requests, at the same time */
        double held_page_seconds;   /* pages that running requests held, times how long */
        double cached_page_seconds; /* the capacity, times how long the trace took */
};

struct sim_result {
        uint64_t requests, input_tokens, blocks, inserts, evictions;
        uint64_t hit_tokens, hit_blocks; /* in both tiers */
        /* What computing these tokens takes, in units of a token at the beginning of a text
         * (policy/recompute.h); without a crossover the tokens. */
        double input_cost, hit_cost;
        uint64_t below_tokens; /* of these: in pages that weren't on the device */
        uint64_t demotions, promotions;
        struct expect_counters expected;
        uint64_t policy_bytes; /* metadata at the end */
        struct sim_flight_result flight;
};

struct sim;

/* 0: *ret_sim, owned. -EINVAL: the policy is "optimum" without may_bypass, or capacity 0, or there
 * is a tier below, or something is expected, for a policy that has no lock(), or with may_bypass;
 * or an engine that takes time, or windows, with any of these; or what was learnt is not what the
 * policy's load() takes; -ENOMEM. Borrows the trace; options are copied. */
int sim_new(const struct sim_trace *trace, const struct sim_options *options, struct sim **ret_sim);
void sim_free(struct sim *s);

/* Runs up to `n` more requests. Number of those that are left; 0: done. */
uint32_t sim_run(struct sim *s, uint32_t n);

/*
 * For who divides the requests of a trace among several caches, instead of sim_run(): runs this one
 * alone. Requests come in the order of the trace; which ones don't come is the caller's choice.
 * Nothing is expected, requests take no time, there are no windows, and the policy isn't the
 * optimum.
 */
void sim_run_one(struct sim *s, uint32_t request);

/* Blocks that this request of the trace would find, from its start on, if it ran now. */
uint32_t sim_would_hit(const struct sim *s, uint32_t request);

void sim_result(const struct sim *s, struct sim_result *ret);

/* The policy's instance, for save() and check(). Borrowed. */
const void *sim_policy(const struct sim *s);

/* Debug: cached set prefix-closed, its size, the policy's own check. NULL, or a static sentence. */
const char *sim_check(const struct sim *s);

#endif
