/* Tenants that cause the daemon work by single stores into shared memory, for tests and benchmarks
 * of the effect on neighbours. Each keeps to the protocol: nothing here is a violation. */
#ifndef KVL_TEST_NEIGHBOUR_H
#define KVL_TEST_NEIGHBOUR_H

#include "tests/fault/raw-shm.h"

enum neighbour {
        NEIGHBOUR_REFILLS, /* rings full of REFILL; all it has is pinned or granted */
        NEIGHBOUR_PINS,    /* also pins and releases all its pages all the time */
        NEIGHBOUR_ASKS,  /* REFILLs for which another tenant is to free memory; that tenant uses and
                            reads all of the device */
        NEIGHBOUR_CHURN, /* REFILLs that evict; the granted pages are freed by the ring */
        NEIGHBOUR_TOUCHES, /* rings full of TOUCHes of a deep text's last page */
        NEIGHBOUR_LEASES,  /* LEASEs over sockets that find nothing but pinned pages */
        NEIGHBOUR_WAITS,   /* many WAITs for a key, while others' announcements end */
        N_NEIGHBOURS
};

/* Name of the kind ("refills"); static. */
const char *neighbour_name(enum neighbour kind);

/* The most connections that it opens. */
#define NEIGHBOUR_CONNECTIONS 38

struct neighbour_run {
        enum neighbour kind;
        char socket[PRIVATE_PATH_MAX]; /* of its tenant */
        char other[PRIVATE_PATH_MAX];  /* of the tenant that has all of the device (ASKS) */
        uint32_t n_pages;              /* published first at most: as many as its limit allows */
        _Atomic uint32_t *ready;       /* 1 when it has begun */
};

/* Never returns. Asserts by cmocka, with CMOCKA_TEST_ABORT set. */
_Noreturn void neighbour_run(const struct neighbour_run *run);

#endif
