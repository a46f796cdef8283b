/*
 * Small random traces for the simulator: texts that continue each other, as conversations do. Seeds
 * as in test-random.h.
 */
#ifndef KVL_TESTS_RANDOM_TRACE_H
#define KVL_TESTS_RANDOM_TRACE_H

#include "policy/sim/sim.h"
#include "tests/unit/test-random.h"

#define RANDOM_TRACE_BLOCKS   4096 /* in all requests */
#define RANDOM_TRACE_REQUESTS 512
#define RANDOM_TRACE_UNIQUE   1024
#define RANDOM_TRACE_TOKENS   16 /* a block */

struct random_trace {
        struct sim_trace trace;
        struct sim_request requests[RANDOM_TRACE_REQUESTS];
        uint32_t blocks[RANDOM_TRACE_BLOCKS];
        uint32_t parents[RANDOM_TRACE_UNIQUE];
};

/* The path to `end` (NODE_NONE: empty), at the end of the blocks. */
static inline void random_trace_path(struct random_trace *t, struct sim_request *r, uint32_t end)
{
        for (uint32_t at = end; at != NODE_NONE; at = t->parents[at])
                r->n_blocks++;
        for (uint32_t i = r->n_blocks; i-- > 0; end = t->parents[end])
                t->blocks[r->first + i] = end;
}

static inline void random_trace_request(
        struct random_trace *t, struct sim_request *r, uint32_t max_depth)
{
        /* Rather what came lately: conversations go on soon or not at all. */
        uint32_t recent = 1 + random_below(random_below(t->trace.n_unique + 1) + 1);
        uint32_t end = random_below(8) == 0 || t->trace.n_unique < recent
                               ? NODE_NONE
                               : t->trace.n_unique - recent;
        uint32_t more = random_below(4);

        r->first = t->trace.n_blocks;
        random_trace_path(t, r, end);
        for (; more > 0 && r->n_blocks < max_depth && t->trace.n_unique < RANDOM_TRACE_UNIQUE;
                more--) {
                t->parents[t->trace.n_unique] = end;
                end = t->trace.n_unique++;
                t->blocks[r->first + r->n_blocks++] = end;
        }
        t->trace.n_blocks += r->n_blocks;
        if (r->n_blocks > 0)
                r->input_tokens = (r->n_blocks - 1) * RANDOM_TRACE_TOKENS + 1 +
                                  random_below(RANDOM_TRACE_TOKENS);
}

/*
 * Up to n_requests of at most max_depth blocks, each; no more than fit, with at most max_unique
 * different ones. Tenants, 0 or 1, have different texts only if the user looks at one.
 */
static inline void random_trace_make(
        struct random_trace *t, uint32_t n_requests, uint32_t max_depth, uint32_t max_unique)
{
        *t = (struct random_trace){.trace = {.requests = t->requests,
                                           .blocks = t->blocks,
                                           .parents = t->parents,
                                           .n_tenants = 2,
                                           .block_tokens = RANDOM_TRACE_TOKENS}};
        while (t->trace.n_requests < n_requests && t->trace.n_unique + 3 <= max_unique &&
                t->trace.n_blocks + max_depth <= RANDOM_TRACE_BLOCKS) {
                struct sim_request *r = &t->requests[t->trace.n_requests];

                r->time_nsec = (uint64_t)t->trace.n_requests++ * 1000000000;
                r->tenant = random_below(2);
                random_trace_request(t, r, max_depth);
        }
}

#endif
