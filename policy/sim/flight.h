/*
 * Requests that take time, in the simulator: which ones run, what they hold, and when they end.
 * PURE. docs/POLICY.md, "Requests that run", has the model.
 *
 * Requests begin in the order of the trace. One begins when it has come, fewer than max_running
 * run, and there is room for what it lacks: pages that it leases at once, for the blocks of its
 * path that it didn't find and for its output. Room is what isn't held or leased by those that run.
 * Where there is none it waits, and so do all after it; one that is alone begins in any case, and
 * what it has no room for isn't cached. When its input is prefilled the blocks of its path can be
 * found (one that another request has computed meanwhile is given back), when its output is decoded
 * its path is let go and the pages of the output are free.
 */
#ifndef KVL_POLICY_SIM_FLIGHT_H
#define KVL_POLICY_SIM_FLIGHT_H

#include <stdbool.h>
#include <stdint.h>

struct sim;
struct sim_request;

/* A request that runs. */
struct running {
        uint64_t at_nsec;  /* of its next event: prefilled, or over */
        uint64_t order;    /* of those of the same time */
        uint32_t request;  /* of the trace */
        uint32_t n_held;   /* blocks of its path, from the start */
        uint32_t n_path;   /* of these once it is prefilled: it has leases for the rest */
        uint32_t n_output; /* leased pages that never can be found */
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

/* The simulator's options are set, and its slots are made. 0 or -ENOMEM. Then flight_deinit(),
 * which is safe on a zeroed struct. */
int flight_init(struct sim *s);
void flight_deinit(struct flight *f);

/* Goes on to the moment in which the request can begin, and begins it. */
void flight_run(struct sim *s, const struct sim_request *r);

/* Goes on until nothing runs. */
void flight_finish(struct sim *s);

/* Debug: NULL, or a static sentence naming what is not. */
const char *flight_check(const struct sim *s);

#endif
