/*
 * Order of waiting leases: by priority, then deadline, then weighted fairness, then arrival. PURE.
 *
 * No request starves: a waiting one gains a step of priority every ADMISSION_AGE_NSEC, without
 * bound. A request that arrives more than (its priority - mine + 1) steps after mine is served
 * after mine, with any deadlines and shares: at most 101 steps, 10.1 s.
 */
#ifndef KVL_POLICY_ADMISSION_H
#define KVL_POLICY_ADMISSION_H

#include <stdint.h>

/* Wait for a step of priority: from the lowest (0) to the highest (100) in 10 s. Not tuned. */
#define ADMISSION_AGE_NSEC UINT64_C(100000000)

struct admission_request {
        uint32_t priority;      /* 0..100, of the tenant */
        uint32_t weight;        /* 1..1000, of the tenant */
        uint64_t arrived_nsec;  /* <= now */
        uint64_t deadline_nsec; /* UINT64_MAX: none */
        uint64_t served_bytes;  /* its tenant's part of the dynamic pool: the less per weight, the
                                   sooner */
        uint64_t number;        /* of arrival, unique */
};

/* Returns < 0: a is served before b; > 0: after. Never 0 for different numbers. A strict order at
 * any one time. */
int admission_compare(
        const struct admission_request *a, const struct admission_request *b, uint64_t now_nsec);

#endif
