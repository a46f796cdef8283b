/* Observations of a worker while the daemon was killed (worker-witness.c), in a file shared with
 * the test. They are the oracle of acknowledged pages, and the longest pauses. */
#ifndef KVL_TEST_WITNESS_H
#define KVL_TEST_WITNESS_H

#include <stdatomic.h>
#include <stdint.h>

/* Texts are numbered from 0. Those from n_dropped up to n_acked were acknowledged and not dropped
 * since: each of their pages must be there. */
struct witness {
        _Atomic uint64_t n_acked;   /* W */
        _Atomic uint64_t n_dropped; /* W; before it drops them */
        _Atomic uint64_t n_lookups; /* W */
        _Atomic uint64_t n_lost;    /* W; pages that were missing */
        _Atomic uint64_t n_bad;     /* W; pages with other bytes than theirs */
        /* The longest call since the test stored 0, ns. WT */
        _Atomic uint64_t hit_nsec, lease_nsec, publish_nsec;
        _Atomic uint32_t stop; /* T: look once more at everything, and end */
};

#endif
