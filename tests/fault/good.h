/* A client that keeps the rules while others don't, and must not be affected. It makes all of a
 * client's calls and checks all results. */
#ifndef KVL_TEST_GOOD_H
#define KVL_TEST_GOOD_H

#include "tests/integration/harness.h"

struct good {
        struct worker *worker;
        uint32_t pages[4]; /* published as text 1, pinned throughout */
        uint32_t granted;  /* leased and filled throughout */
        unsigned n_rounds;
};

/* Namespace "good" of one plane. */
void good_start(struct good *g, struct harness *h, const char *tenant);

/* Looks up, compares, leases, publishes, releases. Fails the test on any error. */
void good_round(struct good *g);

/* Runs one more round and frees everything. */
void good_stop(struct good *g);

#endif
