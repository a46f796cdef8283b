/*
 * SIEVE, leaf-first (Zhang, Yang, Yue, Vigfusson, Rashmi: SIEVE is simpler than LRU, NSDI 2024). A
 * hand moves from the oldest node to the newest, and around again. It spares a node once if it was
 * used since the last pass, and takes the first idle leaf that wasn't. It skips held nodes and
 * parents.
 *
 * A text's blocks are deepest first, so the hand takes all of an unused text before it moves on.
 * Then it stays near the newest, and nodes that it spared once are practically pinned. On traces
 * whose texts return late this is LFU.
 */
#include <errno.h>

#include "policy/sim/ordered.h"
#include "policy/sim/policies.h"

struct sieve {
        struct ordered ordered; /* marked: used since the hand passed */
        uint32_t hand_1;        /* plus one; 0: at the oldest */
};

static int sieve_new(const struct evict_params *params, void **ret_policy)
{
        struct sieve *s = ordered_new(params, sizeof(*s));

        if (!s)
                return -ENOMEM;
        *ret_policy = s;
        return 0;
}

static int sieve_reset(void *policy)
{
        struct sieve *s = policy;
        int r = ordered_reset(s);

        if (r == 0)
                s->hand_1 = 0;
        return r;
}

static void sieve_insert(
        void *policy, uint32_t node, const struct evict_insert *what, uint64_t now_nsec)
{
        ordered_insert(policy, node, what->id, 0);
}

static void sieve_touch(void *policy, uint32_t node, uint64_t request, uint64_t now_nsec)
{
        struct sieve *s = policy;

        for (; node != NODE_NONE; node = tree_parent(s->ordered.tree, node))
                s->ordered.nodes[node].is_marked = true;
}

static void sieve_remove(void *policy, uint32_t node, enum evict_reason why)
{
        struct sieve *s = policy;

        if (s->hand_1 == node + 1)
                s->hand_1 = queue_newer(s->ordered.links, node) + 1;
        ordered_remove(s, node, why);
}

static void sieve_move(void *policy, uint32_t node, uint32_t to)
{
        struct sieve *s = policy;

        if (s->hand_1 == node + 1)
                s->hand_1 = to + 1;
        ordered_move(s, node, to);
}

/* Whether the hand stops there. */
static bool takes(struct ordered *o, uint32_t node)
{
        if (!ordered_may_go(o, node))
                return false;
        if (!o->nodes[node].is_marked)
                return true;
        o->nodes[node].is_marked = false;
        return false;
}

/* Two rounds at most: the first clears the marks of all idle leaves. */
static uint32_t sieve_victim(void *policy, uint32_t tier, enum evict_how how, uint64_t now_nsec)
{
        struct sieve *s = policy;
        struct ordered *o = &s->ordered;

        for (uint64_t left = 2 * (uint64_t)o->queues[0].n + 1; left > 0; left--) {
                uint32_t node = s->hand_1 ? s->hand_1 - 1 : queue_oldest(&o->queues[0]);

                if (node == NODE_NONE)
                        return NODE_NONE;
                s->hand_1 = node + 1;
                if (takes(o, node))
                        return node;
                s->hand_1 = queue_newer(o->links, node) + 1;
        }
        return NODE_NONE;
}

static uint64_t sieve_memory_bytes(const void *policy)
{
        return sizeof(struct sieve) + ordered_memory_bytes(policy);
}

static const char *sieve_check(const void *policy)
{
        const struct sieve *s = policy;

        if (s->hand_1 != 0 &&
                (s->hand_1 > s->ordered.n_nodes || !s->ordered.nodes[s->hand_1 - 1].is_queued))
                return "the hand is outside the queue";
        return ordered_check(s);
}

const struct evict_ops evict_sieve = {
        .name = "sieve",
        .new = sieve_new,
        .free = ordered_free,
        .reserve = ordered_reserve,
        .reset = sieve_reset,
        .insert = sieve_insert,
        .touch = sieve_touch,
        .hold = ordered_hold,
        .idle = ordered_idle,
        .remove = sieve_remove,
        .move = sieve_move,
        .request_end = ordered_request_end,
        .victim = sieve_victim,
        .memory_bytes = sieve_memory_bytes,
        .check = sieve_check,
};
