/*
 * Checks and executes one submission of a client's ring. Doesn't know rings or event loops, so that
 * the fuzzer and the tests can drive it. Loop thread only.
 */
#ifndef KVL_CORE_SUBMIT_H
#define KVL_CORE_SUBMIT_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/core/clients/client-record.h"
#include "daemon/core/state/group.h"
#include "daemon/core/reclaim/fetch.h"
#include "proto/shm.h"

struct submit_result {
        const char *violation; /* not NULL: the rule that the client broke; static */
        bool completes;
        uint32_t status; /* for the wire */
        uint32_t page;
        /* Not NULL: a FETCH, of which only the form was checked; the caller begins or completes it.
         */
        struct attach *fetching;
        struct fetch_request fetch;
        /* Cost in pages walked: TOUCH, EXPECT. */
        uint32_t n_walked;
};

/* Executes *s, the daemon's own copy. now_nsec: CLOCK_MONOTONIC. */
void submit_one(struct member *m, struct submit_chain *chain, const struct shm_submission *s,
        uint64_t now_nsec, struct submit_result *ret);

/* Prefetches memory for submissions (the daemon's copies) that are executed soon, in this order. */
void submit_prefetch(struct member *m, const struct shm_submission *s, uint32_t n);

#endif
