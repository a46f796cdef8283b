/*
 * Requests with a duration, in the simulator: running ones, the pages they hold, and their ends.
 * PURE. docs/measure/POLICY.md, "Requests that run", has the model.
 *
 * Requests begin in the order of the trace. One begins when its time has come, fewer than
 * max_running run, and there is room for the pages that it must lease: for missing blocks of its
 * path, and for its output. Room is all pages that running requests don't hold or lease. Without
 * room it waits, and all requests after it wait, too. A request that is alone always begins, and
 * the part without room isn't cached.
 *
 * After prefill, the blocks of its path can be found; a block that another request computed
 * meanwhile is given back. After decoding, its path is released and the pages of the output are
 * free.
 */
#ifndef KVL_POLICY_SIM_FLIGHT_H
#define KVL_POLICY_SIM_FLIGHT_H

#include <stdbool.h>
#include <stdint.h>

struct sim;
struct sim_request;

/* A request that runs. */
struct running {
        uint64_t at_nsec;  /* of its next event: end of prefill, or its end */
        uint64_t order;    /* of those of the same time */
        uint32_t request;  /* of the trace */
        uint32_t n_held;   /* blocks of its path, from the start */
        uint32_t n_path;   /* of these after prefill: it has leases for the rest */
        uint32_t n_output; /* leased pages that can never be found */
        bool is_prefilled;
};

struct flight {
        struct running *running; /* owned: a heap by time; NULL: requests take no time */
        uint32_t n_running;
        uint32_t *holds; /* owned; of each slot, requests that hold it */
        uint32_t n_held; /* slots */
        uint32_t n_leased;
        uint64_t now_nsec, n_begun;
};

/* Called when the simulator's options are set, and its slots are made. Returns 0 or -ENOMEM.
 * flight_deinit() is safe on a zeroed struct. */
int flight_init(struct sim *s);
void flight_deinit(struct flight *f);

/* Advances to the time when the request can begin, and begins it. */
void flight_run(struct sim *s, const struct sim_request *r);

/* Advances until no request runs. */
void flight_finish(struct sim *s);

/* Debug: NULL, or a static sentence naming an inconsistency. */
const char *flight_check(const struct sim *s);

#endif
