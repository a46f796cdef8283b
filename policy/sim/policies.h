/*
 * Policies of the simulator alone, over the same vtable: published algorithms, for comparison. They
 * needn't be fast in every event; all are correct with holds, moves and reuse of nodes. Leaf-first,
 * like those of the daemon: if a policy's victim has cached children, a descendant leaf is evicted.
 * Each file names the source of its algorithm.
 */
#ifndef KVL_POLICY_SIM_POLICIES_H
#define KVL_POLICY_SIM_POLICIES_H

#include "policy/evict.h"

extern const struct evict_ops evict_s3fifo;
extern const struct evict_ops evict_fifo;
extern const struct evict_ops evict_lfu; /* in-cache counts */
extern const struct evict_ops evict_sieve;
extern const struct evict_ops evict_arc;
extern const struct evict_ops evict_lru2; /* the last two accesses, of evicted nodes too */
extern const struct evict_ops
        evict_gdsf; /* cost: recomputing a block, which grows with its depth */
extern const struct evict_ops evict_optimum; /* offline: furthest next use; needs next_use */

/* All policies, the daemon's first; NULL-terminated. */
extern const struct evict_ops *const sim_policies[];
const struct evict_ops *sim_policy_find(const char *name);

#endif
