/*
 * Least frequently used, counts of cached nodes only: a node that was evicted begins anew. Ties go
 * by recency. (Textbook; "in-cache LFU" of Podlipnig, Böszörményi: A Survey of Web Cache
 * Replacement Strategies, 2003.)
 */
#include <errno.h>

#include "policy/sim/policies.h"
#include "policy/sim/ranked.h"

static int lfu_new(const struct evict_params *params, void **ret_policy)
{
        struct ranked *lfu = ranked_new(params, sizeof(*lfu));

        if (!lfu)
                return -ENOMEM;
        *ret_policy = lfu;
        return 0;
}

static void lfu_insert(
        void *policy, uint32_t node, const struct evict_insert *what, uint64_t now_nsec)
{
        ranked_insert(policy, node, what->id, 1);
}

static void lfu_touch(void *policy, uint32_t node, uint64_t request, uint64_t now_nsec)
{
        struct ranked *lfu = policy;

        for (; node != NODE_NONE; node = tree_parent(lfu->tree, node))
                ranked_set(lfu, node, lfu->nodes[node].major + 1);
}

static uint64_t lfu_memory_bytes(const void *policy)
{
        return sizeof(struct ranked) + ranked_memory_bytes(policy);
}

const struct evict_ops evict_lfu = {
        .name = "lfu",
        .new = lfu_new,
        .free = ranked_free,
        .reserve = ranked_reserve,
        .reset = ranked_reset,
        .insert = lfu_insert,
        .touch = lfu_touch,
        .hold = ranked_hold,
        .idle = ranked_idle,
        .remove = ranked_remove,
        .move = ranked_move,
        .request_end = ranked_request_end,
        .victim = ranked_victim,
        .memory_bytes = lfu_memory_bytes,
        .check = ranked_check,
};
