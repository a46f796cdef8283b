/*
 * Tenants that make the daemon work with as little as a store into shared memory each time: for
 * tests and benchmarks that see what a neighbour notices of it. Each keeps to the protocol: nothing
 * here is a violation.
 */
#ifndef KVL_TEST_NEIGHBOUR_H
#define KVL_TEST_NEIGHBOUR_H

#include "tests/fault/raw-shm.h"

enum neighbour {
        NEIGHBOUR_REFILLS, /* rings full of REFILL; all it has is pinned or granted */
        NEIGHBOUR_PINS,    /* the same, while all its pins go and come back all the time */
        NEIGHBOUR_ASKS,    /* REFILLs that are for another tenant to give room for, which has all of
                              the device and reads all of it */
        NEIGHBOUR_CHURN,   /* REFILLs that evict; what they grant is freed by the ring */
        NEIGHBOUR_TOUCHES, /* rings full of TOUCHes of the end of a deep text */
        NEIGHBOUR_LEASES,  /* LEASEs over sockets that find nothing but pinned pages */
        NEIGHBOUR_WAITS,   /* many WAITs for a key, while others' announcements end */
        N_NEIGHBOURS
};

/* "refills"; static. */
const char *neighbour_name(enum neighbour kind);

/* Connections it opens at most. */
#define NEIGHBOUR_CONNECTIONS 38

struct neighbour_run {
        enum neighbour kind;
        char socket[PRIVATE_PATH_MAX]; /* of its tenant */
        char other[PRIVATE_PATH_MAX];  /* of the tenant that has all of the device (ASKS) */
        uint32_t n_pages;              /* published first at most: what its limit holds */
        _Atomic uint32_t *ready;       /* 1 when it has begun */
};

/* Never returns. Asserts by cmocka, with CMOCKA_TEST_ABORT set. */
_Noreturn void neighbour_run(const struct neighbour_run *run);

#endif
