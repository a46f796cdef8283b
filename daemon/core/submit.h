/*
 * One submission of a client's ring: checked and executed. Pure of rings and loops, so that the
 * fuzzer and the tests drive it. Loop thread only.
 */
#ifndef KVL_CORE_SUBMIT_H
#define KVL_CORE_SUBMIT_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/core/group.h"
#include "proto/shm.h"

/* What the last entry left for a PUBLISH with CHAIN. Zero at first. */
struct submit_chain {
        uint32_t ns_id; /* 0: nothing */
        int status;     /* 0, or why it failed: what is chained to it fails, too */
        uint32_t page;
        uint64_t generation;
};

struct submit_result {
        const char *violation; /* not NULL: the rule that the client broke; static text */
        bool completes;
        uint32_t status; /* for the wire */
        uint32_t page;
};

/* *s is the daemon's own copy. now_nsec: CLOCK_MONOTONIC. */
void submit_one(struct member *m, struct submit_chain *chain, const struct shm_submission *s,
        uint64_t now_nsec, struct submit_result *ret);

#endif
