/*
 * The trace simulator: the hits of a policy with a cache of a given size. PURE: no I/O, no clock.
 * It runs the daemon's policies (policy/evict.h) with the events that the daemon would send, over
 * slots that are reused as page indices are. Each instance belongs to one thread. A trace is only
 * read, and may be shared.
 *
 * The model (docs/measure/POLICY.md, "The model"): a request is a path from the root of a tree of
 * blocks. Its hit is the longest prefix of it that is cached. Then it holds its whole path, missing
 * blocks are inserted, and it ends. Victims are leaves that aren't held; if there is none, the rest
 * of the path isn't cached. Every request counts, from a cold start.
 *
 * With an engine that takes time (struct sim_engine) a request runs until its input is prefilled
 * and its output decoded. It holds its pages until then (docs/measure/POLICY.md, "Requests that
 * run"). Otherwise it ends in the moment in which it begins.
 *
 * With expectations the next requests wait in a queue. Each is expected (policy/expect.h) when it
 * enters the queue, as an engine announces waiting requests.
 *
 * With layers of a window (struct sim_windows): see policy/sim/windows.c.
 *
 * With a tier below, device pages without room are demoted, unless the tier below would drop them
 * next. Pages that a request finds there move up before it inserts. A page is in one tier. Moves
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
        uint32_t ending; /* evict_ops.ending() */
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
        /* Prefill of the input that wasn't found, for each request by itself; 0: it takes no time.
         */
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

/* Hints at the end of each request, drawn from the trace's future instead of the trace's hints.
 * They say whether the text continues: a later request has all of its whole blocks. All zero: none.
 */
struct sim_hints {
        bool drawn;
        bool timed;             /* they also say after how much time */
        uint32_t right_percent; /* share of hints that are right; the others say the opposite */
};

static inline bool sim_takes_time(const struct sim_engine *e)
{
        return e->prefill_tokens_per_sec > 0 || e->output_token_nsec > 0 || e->max_running > 0;
}

/* Times are cut here, at 200 years, like those of traces. */
#define SIM_TIME_MAX_NSEC UINT64_C(6300000000000000000)

struct sim_options {
        const struct evict_ops *policy;
        uint32_t capacity_pages; /* > 0 */
        uint32_t below_pages;    /* size of the tier below; 0: none */
        uint32_t max_ghosts;     /* evict_params */
        uint32_t crossover;      /* tokens (policy/recompute.h), for the costs in the result */
        bool goes_by_cost;       /* the policy gets the crossover, too (evict_params) */
        uint32_t expect;         /* length of the queue; 0: nothing is expected */
        uint32_t wrong_percent;  /* share of requests for which a text is expected that isn't
                                    requested again, instead of theirs */
        uint32_t count_from;     /* index of a request of the trace: the result leaves out earlier
                                    ones; not with sim_run_one() */
        uint32_t tenant;         /* run this tenant's requests; SIM_ALL_TENANTS: all */
        /* The optimum's rules: nothing is held, and a block that was just inserted may be evicted.
         */
        bool may_bypass;
        struct sim_engine engine;   /* not with a tier below, and not with may_bypass */
        struct sim_windows windows; /* with none of: a tier below, expect, may_bypass, engine */
        struct sim_hints hints;
        uint64_t seed;      /* of the ids of pages, which stand for the hashes of their keys */
        const void *learnt; /* load()ed before the first request; may be NULL */
        size_t learnt_bytes;
        /* Called when a block of the device is demoted or dropped. It must not change the
         * simulator. May be NULL. */
        void (*leaves)(void *data, uint32_t block);
        void *leaves_data; /* borrowed */
};

#define SIM_ALL_TENANTS UINT32_MAX

/* Results of requests that take time; else all zero. */
struct sim_flight_result {
        uint64_t waited_requests;   /* requests that didn't begin at their time */
        uint64_t wait_nsec;         /* sum over these */
        uint64_t uncached_blocks;   /* of requests that lacked room although they ran alone */
        uint64_t duplicate_blocks;  /* computed by two requests at the same time */
        uint64_t max_running;       /* requests, at the same time */
        double held_page_seconds;   /* pages that running requests held, times how long */
        double cached_page_seconds; /* the capacity, times how long the trace took */
};

struct sim_result {
        uint64_t requests, input_tokens, blocks, inserts, evictions;
        uint64_t hit_tokens, hit_blocks; /* in both tiers */
        /* Cost of computing these tokens, in units of a token at the beginning of a text
         * (policy/recompute.h). Without a crossover: the number of tokens. */
        double input_cost, hit_cost;
        uint64_t below_tokens; /* hit tokens in pages of the tier below */
        uint64_t demotions, promotions;
        struct expect_counters expected;
        uint64_t policy_bytes; /* metadata at the end */
        struct sim_flight_result flight;
};

struct sim;

/* Returns 0 and *ret_sim (owned), -ENOMEM, or -EINVAL for: a capacity of 0; "optimum" without
 * may_bypass; a tier below or `expect`, with may_bypass or a policy without lock(); an engine that
 * takes time, with may_bypass, a tier below or `expect`; windows of 0 tokens, or with any of these;
 * `learnt` that the policy's load() refuses. Borrows the trace, copies options. */
int sim_new(const struct sim_trace *trace, const struct sim_options *options, struct sim **ret_sim);
void sim_free(struct sim *s);

/* Runs up to `n` more requests. Returns the number that is left; 0: done. */
uint32_t sim_run(struct sim *s, uint32_t n);

/*
 * Runs one request. For callers that divide a trace among several caches, instead of sim_run().
 * Calls follow the order of the trace, and may leave out requests. Not with `expect`, an engine
 * that takes time, windows, or may_bypass.
 */
void sim_run_one(struct sim *s, uint32_t request);

/* Blocks that this request would find, from its start on, if it ran now. */
uint32_t sim_would_hit(const struct sim *s, uint32_t request);

void sim_result(const struct sim *s, struct sim_result *ret);

/* The policy's instance, for save() and check(). Borrowed. */
const void *sim_policy(const struct sim *s);

/* Debug: checks the cached set, its size, and the policy. Returns NULL or a static sentence. */
const char *sim_check(const struct sim *s);

#endif
