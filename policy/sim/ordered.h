/*
 * Base of policies that keep nodes in order of insertion or use, in up to two queues. A node enters
 * one when it is first released, deepest first, and keeps its place while it is held again. A
 * search for a victim passes held nodes and parents each time, O(their number), which is more than
 * the daemon would accept.
 *
 * A policy embeds a struct ordered at its start and has the functions below (of policy/evict.h) in
 * its table, or calls them from its own.
 */
#ifndef KVL_POLICY_SIM_ORDERED_H
#define KVL_POLICY_SIM_ORDERED_H

#include <stdbool.h>

#include "policy/evict.h"
#include "policy/queue.h"

#define ORDERED_QUEUES 2

struct ordered_node {
        uint64_t id;
        uint8_t queue; /* its queue now, or when it enters one; change it by ordered_requeue() */
        bool is_cached, is_held, is_queued;
        bool is_marked; /* the policy's */
};

struct ordered {
        const struct tree *tree;    /* borrowed */
        struct ordered_node *nodes; /* owned, n_nodes */
        struct queue_link *links;   /* owned, n_links */
        uint32_t n_nodes, n_links;
        uint32_t n_of[ORDERED_QUEUES]; /* nodes that are in one, or will be */
        struct queue queues[ORDERED_QUEUES];
};

/* Makes a policy of `size` bytes, zeroed except its ordered. NULL: no memory. */
void *ordered_new(const struct evict_params *params, size_t size);
void ordered_free(void *policy);
int ordered_reserve(void *policy, uint32_t n);
int ordered_reset(void *policy);

/* In the table's insert(): held. */
void ordered_insert(void *policy, uint32_t node, uint64_t id, unsigned queue);

/* Makes it the newest of a queue; if it is in none yet, it will enter that one. */
void ordered_requeue(void *policy, uint32_t node, unsigned queue);

/* True for an idle leaf: only these may be evicted. */
bool ordered_may_go(const struct ordered *o, uint32_t node);

void ordered_hold(void *policy, uint32_t node);
void ordered_idle(void *policy, uint32_t node, uint64_t now_nsec);
void ordered_remove(void *policy, uint32_t node, enum evict_reason why);
void ordered_move(void *policy, uint32_t node, uint32_t to);
void ordered_request_end(void *policy, uint64_t request, uint64_t now_nsec);
uint64_t ordered_memory_bytes(const void *policy); /* of the ordered, without the policy's own */
const char *ordered_check(const void *policy);

#endif
