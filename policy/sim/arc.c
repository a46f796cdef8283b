/*
 * ARC (Megiddo, Modha: ARC, a self-tuning, low overhead replacement cache, FAST 2003), leaf-first.
 * It has a recency list of nodes used once and one of nodes used again, and ghosts of both. A
 * target for the size of the first list follows ghosts that return. The cache's size is its current
 * contents.
 *
 * The vtable asks for a victim before it names the new node. So the target follows a ghost after
 * the eviction that made room for it. The paper's rule in REPLACE for a tie with a ghost of the
 * second list is left out.
 */
#include <errno.h>

#include "base/macros.h"
#include "policy/sim/ghosts.h"
#include "policy/sim/ordered.h"
#include "policy/sim/policies.h"

enum { ONCE, AGAIN }; /* the paper's T1 and T2; of the ghosts, B1 and B2 */

struct arc {
        struct ordered ordered;
        struct ghosts ghosts;
        double target; /* the paper's p: nodes ONCE */
};

static int arc_new(const struct evict_params *params, void **ret_policy)
{
        struct arc *a = ordered_new(params, sizeof(*a));

        if (!a)
                return -ENOMEM;
        ghosts_init(&a->ghosts, params->max_ghosts ? params->max_ghosts : EVICT_MAX_GHOSTS);
        *ret_policy = a;
        return 0;
}

static void arc_free(void *policy)
{
        struct arc *a = policy;

        if (a)
                ghosts_deinit(&a->ghosts);
        ordered_free(a);
}

/* The paper's bounds: ONCE with its ghosts is as many as are cached, all ghosts are, too. */
static void trim_ghosts(struct arc *a)
{
        const uint32_t *n_of = a->ordered.n_of;
        struct ghosts *g = &a->ghosts;

        while (ghosts_count(g, ONCE) > n_of[AGAIN])
                ghosts_drop_oldest(g, ONCE);
        while (ghosts_count(g, ONCE) + ghosts_count(g, AGAIN) > n_of[ONCE] + n_of[AGAIN])
                ghosts_drop_oldest(g, AGAIN);
}

/* Whether it was remembered; the target has followed then. */
static bool follow_ghost(struct arc *a, uint64_t id)
{
        double once = ghosts_count(&a->ghosts, ONCE), again = ghosts_count(&a->ghosts, AGAIN);
        double n_cached = (double)a->ordered.n_of[ONCE] + a->ordered.n_of[AGAIN];
        struct ghost ghost;
        double step;

        if (!ghosts_take(&a->ghosts, id, &ghost))
                return false;
        step = ghost.queue == ONCE ? MAX(1.0, again / once) : -MAX(1.0, once / again);
        a->target = MAX(0.0, a->target + step);
        a->target = MIN(n_cached, a->target);
        return true;
}

static void arc_insert(
        void *policy, uint32_t node, const struct evict_insert *what, uint64_t now_nsec)
{
        struct arc *a = policy;

        ordered_insert(a, node, what->id, follow_ghost(a, what->id) ? AGAIN : ONCE);
        trim_ghosts(a);
}

static void arc_touch(void *policy, uint32_t node, uint64_t request, uint64_t now_nsec)
{
        struct arc *a = policy;

        for (; node != NODE_NONE; node = tree_parent(a->ordered.tree, node))
                ordered_requeue(a, node, AGAIN);
}

static void arc_idle(void *policy, uint32_t node, uint64_t now_nsec)
{
        struct arc *a = policy;

        ordered_idle(a, node, now_nsec);
        ordered_requeue(a, node, a->ordered.nodes[node].queue);
}

static void arc_remove(void *policy, uint32_t node, enum evict_reason why)
{
        struct arc *a = policy;
        const struct ordered_node *n = &a->ordered.nodes[node];

        if (why == EVICT_PRESSURE)
                ghosts_add(&a->ghosts, n->queue, n->id, 0);
        ordered_remove(a, node, why);
}

static uint32_t oldest_leaf(const struct ordered *o, unsigned queue)
{
        uint32_t node = queue_oldest(&o->queues[queue]);

        while (node != NODE_NONE && !ordered_may_go(o, node))
                node = queue_newer(o->links, node);
        return node;
}

static uint32_t arc_victim(void *policy, uint32_t tier, enum evict_how how, uint64_t now_nsec)
{
        const struct arc *a = policy;
        unsigned queue = a->ordered.n_of[ONCE] > a->target ? ONCE : AGAIN;
        uint32_t node = oldest_leaf(&a->ordered, queue);

        return node != NODE_NONE ? node : oldest_leaf(&a->ordered, 1 - queue);
}

static uint64_t arc_memory_bytes(const void *policy)
{
        const struct arc *a = policy;

        return sizeof(*a) + ordered_memory_bytes(a) + ghosts_memory_bytes(&a->ghosts);
}

const struct evict_ops evict_arc = {
        .name = "arc",
        .new = arc_new,
        .free = arc_free,
        .reserve = ordered_reserve,
        .reset = ordered_reset,
        .insert = arc_insert,
        .touch = arc_touch,
        .hold = ordered_hold,
        .idle = arc_idle,
        .remove = arc_remove,
        .move = ordered_move,
        .request_end = ordered_request_end,
        .victim = arc_victim,
        .memory_bytes = arc_memory_bytes,
        .check = ordered_check,
};
