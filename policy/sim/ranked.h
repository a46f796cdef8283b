/*
 * Base of policies that rank: each cached node has a rank, and the idle leaf with the lowest rank
 * is evicted. A heap holds these, so an event costs O(log idle leaves), which is more than the
 * daemon would accept; arbitrary ranks allow no ordered list. Only ranks of leaves are compared, so
 * eviction is leaf-first.
 *
 * Ranks are compared by `major`, then by `recency`: a clock of events at the node's last touch or
 * release. No two are equal. The deepest block of a request is its oldest, as it is released first.
 *
 * A policy embeds a struct ranked at its start and has the functions below (of policy/evict.h) in
 * its table, or calls them from its own.
 */
#ifndef KVL_POLICY_SIM_RANKED_H
#define KVL_POLICY_SIM_RANKED_H

#include "policy/evict.h"

struct ranked_node {
        uint64_t major;   /* the policy's; change it by ranked_set() */
        uint64_t recency; /* from 1 */
        uint64_t id;
        uint32_t depth; /* 0: begins a text */
        uint32_t uses;  /* the policy's */
        uint32_t place; /* in the heap, plus one; or one of the two below */
};

#define PLACE_HELD  0          /* or not cached */
#define PLACE_INNER UINT32_MAX /* idle, and has children */

struct ranked {
        const struct tree *tree;   /* borrowed */
        struct ranked_node *nodes; /* owned, n_nodes */
        uint32_t *heap;            /* owned, heap_size; nodes, n_heap */
        uint32_t n_nodes, heap_size, n_heap;
        uint64_t clock;
};

/* Makes a policy of `size` bytes, zeroed except its ranked. NULL: no memory. */
void *ranked_new(const struct evict_params *params, size_t size);
void ranked_free(void *policy);
int ranked_reserve(void *policy, uint32_t n);
int ranked_reset(void *policy);

/* Called by insert() of the table: held, `uses` 1, recency now. */
void ranked_insert(void *policy, uint32_t node, uint64_t id, uint64_t major);

/* Changes the rank of a cached node, and sets its recency to now. */
void ranked_set(void *policy, uint32_t node, uint64_t major);

void ranked_hold(void *policy, uint32_t node);
void ranked_idle(void *policy, uint32_t node, uint64_t now_nsec);
void ranked_remove(void *policy, uint32_t node, enum evict_reason why);
void ranked_move(void *policy, uint32_t node, uint32_t to);
void ranked_request_end(void *policy, uint64_t request, uint64_t now_nsec);
uint32_t ranked_victim(void *policy, uint32_t tier, enum evict_how how, uint64_t now_nsec);
uint64_t ranked_memory_bytes(const void *policy); /* of the ranked, without the policy's own */
const char *ranked_check(const void *policy);

#endif
