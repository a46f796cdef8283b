/*
 * The offline optimum: evicts the leaf whose next use is furthest (Belady: A study of replacement
 * algorithms for a virtual-storage computer, 1966). Every use of a block is one of its parent, so a
 * parent's next use is never later than its child's. Belady's choice is therefore closed under
 * prefixes, and leaf-first costs nothing. Optimal in hit blocks, if nothing is held and a just
 * inserted node may be evicted.
 */
#include <errno.h>

#include "policy/sim/policies.h"
#include "policy/sim/ranked.h"

struct optimum {
        struct ranked ranked;
        uint64_t (*next_use)(void *data, uint64_t id);
        void *next_use_data; /* borrowed */
};

static int optimum_new(const struct evict_params *params, void **ret_policy)
{
        struct optimum *o;

        if (!params->next_use)
                return -EINVAL;
        o = ranked_new(params, sizeof(*o));
        if (!o)
                return -ENOMEM;
        o->next_use = params->next_use;
        o->next_use_data = params->next_use_data;
        *ret_policy = o;
        return 0;
}

static uint64_t rank_of(const struct optimum *o, uint64_t id)
{
        return UINT64_MAX - o->next_use(o->next_use_data, id);
}

static void optimum_insert(
        void *policy, uint32_t node, const struct evict_insert *what, uint64_t now_nsec)
{
        struct optimum *o = policy;

        ranked_insert(&o->ranked, node, what->id, rank_of(o, what->id));
}

static void optimum_touch(void *policy, uint32_t node, uint64_t request, uint64_t now_nsec)
{
        struct optimum *o = policy;

        for (; node != NODE_NONE; node = tree_parent(o->ranked.tree, node))
                ranked_set(&o->ranked, node, rank_of(o, o->ranked.nodes[node].id));
}

static uint64_t optimum_memory_bytes(const void *policy)
{
        return sizeof(struct optimum) + ranked_memory_bytes(policy);
}

const struct evict_ops evict_optimum = {
        .name = "optimum",
        .new = optimum_new,
        .free = ranked_free,
        .reserve = ranked_reserve,
        .reset = ranked_reset,
        .insert = optimum_insert,
        .touch = optimum_touch,
        .hold = ranked_hold,
        .idle = ranked_idle,
        .remove = ranked_remove,
        .move = ranked_move,
        .request_end = ranked_request_end,
        .victim = ranked_victim,
        .memory_bytes = optimum_memory_bytes,
        .check = ranked_check,
};
