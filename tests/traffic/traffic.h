/*
 * Synthetic traffic for eviction policies: kinds of texts, and of the times of their requests. Some
 * are known to be hard for learning policies. A kind and a seed make the same trace on every
 * machine. A trace belongs to one thread until it is made, and is only read then.
 */
#ifndef KVL_TESTS_TRAFFIC_H
#define KVL_TESTS_TRAFFIC_H

#include <stddef.h>
#include <stdint.h>

#include "policy/sim/sim.h"

#define TRAFFIC_BLOCK_TOKENS 512

struct traffic {
        struct sim_trace trace; /* borrows the arrays below */
        struct sim_request *requests;
        uint32_t *blocks, *parents;
        size_t max_requests, max_blocks, max_unique; /* elements there is room for */
        uint64_t random;
};

struct traffic_kind {
        const char *name; /* of letters, digits and hyphens */
        const char *what; /* a phrase for people */
        void (*make)(struct traffic *t);
        double time_scale; /* times are multiplied with it when all requests are made; 0: they are
                              all the same */
};

extern const struct traffic_kind traffic_kinds[];
extern const size_t n_traffic_kinds;

/* Makes a trace of this kind: some 2,000 to 20,000 requests, 10,000 to 300,000 different blocks.
 * Ends the process where there is no memory. Then traffic_free(). */
void traffic_make(struct traffic *t, const struct traffic_kind *kind, uint64_t seed);
void traffic_free(struct traffic *t);

/* Token hits of a policy in percent. The cache holds `percent` (> 0) of the different blocks; page
 * ids are made of `seed`. Ends the process if the simulator fails or its check finds an error. */
double traffic_hit_percent(
        const struct traffic *t, const struct evict_ops *policy, double percent, uint64_t seed);

/*
 * traffic_hit_percent() with the next `expect` requests known, of which `wrong_percent` are wrong.
 */
double traffic_hit_percent_expecting(const struct traffic *t, const struct evict_ops *policy,
        double percent, uint64_t seed, uint32_t expect, uint32_t wrong_percent);

#endif
