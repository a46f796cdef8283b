/*
 * LRU-2 (O'Neil, O'Neil, Weikum: The LRU-K page replacement algorithm for database disk buffering,
 * SIGMOD 1993), without a correlated reference period. Evicts the leaf whose last use but one is
 * longest ago. Uses before an eviction count while the ghost is remembered; with a single use, the
 * last use decides.
 */
#include <errno.h>

#include "policy/sim/ghosts.h"
#include "policy/sim/policies.h"
#include "policy/sim/ranked.h"

struct lru2 {
        struct ranked ranked; /* major: recency of the last use but one; 0: none known */
        struct ghosts ghosts; /* value: recency of the last use */
};

static int lru2_new(const struct evict_params *params, void **ret_policy)
{
        struct lru2 *l = ranked_new(params, sizeof(*l));

        if (!l)
                return -ENOMEM;
        ghosts_init(&l->ghosts, params->max_ghosts ? params->max_ghosts : EVICT_MAX_GHOSTS);
        *ret_policy = l;
        return 0;
}

static void lru2_free(void *policy)
{
        struct lru2 *l = policy;

        if (l)
                ghosts_deinit(&l->ghosts);
        ranked_free(l);
}

static void lru2_insert(
        void *policy, uint32_t node, const struct evict_insert *what, uint64_t now_nsec)
{
        struct lru2 *l = policy;
        struct ghost ghost = {0};

        ghosts_take(&l->ghosts, what->id, &ghost);
        ranked_insert(l, node, what->id, ghost.value);
}

static void lru2_touch(void *policy, uint32_t node, uint64_t request, uint64_t now_nsec)
{
        struct lru2 *l = policy;

        for (; node != NODE_NONE; node = tree_parent(l->ranked.tree, node))
                ranked_set(l, node, l->ranked.nodes[node].recency);
}

static void lru2_remove(void *policy, uint32_t node, enum evict_reason why)
{
        struct lru2 *l = policy;
        const struct ranked_node *n = &l->ranked.nodes[node];

        if (why == EVICT_PRESSURE)
                ghosts_add(&l->ghosts, 0, n->id, n->recency);
        ranked_remove(l, node, why);
}

static uint64_t lru2_memory_bytes(const void *policy)
{
        const struct lru2 *l = policy;

        return sizeof(*l) + ranked_memory_bytes(l) + ghosts_memory_bytes(&l->ghosts);
}

const struct evict_ops evict_lru2 = {
        .name = "lru2",
        .new = lru2_new,
        .free = lru2_free,
        .reserve = ranked_reserve,
        .reset = ranked_reset,
        .insert = lru2_insert,
        .touch = lru2_touch,
        .hold = ranked_hold,
        .idle = ranked_idle,
        .remove = lru2_remove,
        .move = ranked_move,
        .request_end = ranked_request_end,
        .victim = ranked_victim,
        .memory_bytes = lru2_memory_bytes,
        .check = ranked_check,
};
