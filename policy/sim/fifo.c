/*
 * First in, first out. If the oldest node has children, a leaf below it is evicted: extending an
 * old text doesn't save it.
 */
#include <errno.h>

#include "policy/sim/ordered.h"
#include "policy/sim/policies.h"

static int fifo_new(const struct evict_params *params, void **ret_policy)
{
        struct ordered *fifo = ordered_new(params, sizeof(*fifo));

        if (!fifo)
                return -ENOMEM;
        *ret_policy = fifo;
        return 0;
}

static void fifo_insert(
        void *policy, uint32_t node, const struct evict_insert *what, uint64_t now_nsec)
{
        ordered_insert(policy, node, what->id, 0);
}

static void fifo_touch(void *policy, uint32_t node, uint64_t request, uint64_t now_nsec)
{
}

static uint32_t leaf_below(const struct ordered *fifo, uint32_t top)
{
        uint32_t node = top;

        while (node != NODE_NONE && !ordered_may_go(fifo, node))
                node = tree_next_below(fifo->tree, top, node);
        return node;
}

static uint32_t fifo_victim(void *policy, uint32_t tier, enum evict_how how, uint64_t now_nsec)
{
        const struct ordered *fifo = policy;
        uint32_t found = NODE_NONE, node = queue_oldest(&fifo->queues[0]);

        for (; node != NODE_NONE && found == NODE_NONE; node = queue_newer(fifo->links, node))
                if (!fifo->nodes[node].is_held)
                        found = leaf_below(fifo, node);
        return found;
}

static uint64_t fifo_memory_bytes(const void *policy)
{
        return sizeof(struct ordered) + ordered_memory_bytes(policy);
}

const struct evict_ops evict_fifo = {
        .name = "fifo",
        .new = fifo_new,
        .free = ordered_free,
        .reserve = ordered_reserve,
        .reset = ordered_reset,
        .insert = fifo_insert,
        .touch = fifo_touch,
        .hold = ordered_hold,
        .idle = ordered_idle,
        .remove = ordered_remove,
        .move = ordered_move,
        .request_end = ordered_request_end,
        .victim = fifo_victim,
        .memory_bytes = fifo_memory_bytes,
        .check = ordered_check,
};
