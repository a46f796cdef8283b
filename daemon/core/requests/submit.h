/*
 * One submission of a client's ring: checked and executed. Pure of rings and loops, so that the
 * fuzzer and the tests drive it. Loop thread only.
 */
#ifndef KVL_CORE_SUBMIT_H
#define KVL_CORE_SUBMIT_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/core/clients/submit-chain.h"
#include "daemon/core/objects/group.h"
#include "daemon/core/tiers/fetch.h"
#include "proto/shm.h"

struct submit_result {
        const char *violation; /* not NULL: the rule that the client broke; static text */
        bool completes;
        uint32_t status; /* for the wire */
        uint32_t page;
        /* Not NULL: a FETCH, of which only the form was looked at; it is to be begun, or completed,
         * by the caller. */
        struct attach *fetching;
        struct fetch_request fetch;
        /* Pages that had to be gone through, which is what it costs: TOUCH, EXPECT. */
        uint32_t n_walked;
};

/* *s is the daemon's own copy. now_nsec: CLOCK_MONOTONIC. */
void submit_one(struct member *m, struct submit_chain *chain, const struct shm_submission *s,
        uint64_t now_nsec, struct submit_result *ret);

/* These are executed soon, in this order: what they will look at is asked for. Copies, too. */
void submit_prefetch(struct member *m, const struct shm_submission *s, uint32_t n);

#endif
