#include "policy/sim/ordered.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"

static struct ordered_node *node_of(const struct ordered *o, uint32_t node)
{
        assert(node < o->n_nodes);
        return &o->nodes[node];
}

int ordered_reserve(void *policy, uint32_t n)
{
        struct ordered *o = policy;
        void *nodes = o->nodes, *links = o->links;
        int r;

        assert(n < NODE_NONE);

        r = array_reserve(&nodes, &o->n_nodes, n, NODE_NONE - 1, sizeof(*o->nodes));
        o->nodes = nodes;
        if (r < 0)
                return r;
        r = array_reserve(&links, &o->n_links, n, NODE_NONE - 1, sizeof(*o->links));
        o->links = links;
        return r;
}

void *ordered_new(const struct evict_params *params, size_t size)
{
        struct ordered *o = calloc(1, size);

        if (o)
                o->tree = params->tree;
        return o;
}

void ordered_free(void *policy)
{
        struct ordered *o = policy;

        if (!o)
                return;
        array_free(o->nodes, o->n_nodes, sizeof(*o->nodes));
        array_free(o->links, o->n_links, sizeof(*o->links));
        free(o);
}

int ordered_reset(void *policy)
{
        struct ordered *o = policy;
        void *nodes = o->nodes;
        int r;

        r = array_reset(&nodes, o->n_nodes, sizeof(*o->nodes));
        if (r < 0)
                return r;
        o->nodes = nodes;
        memset(o->queues, 0, sizeof(o->queues));
        memset(o->n_of, 0, sizeof(o->n_of));
        return 0;
}

void ordered_insert(void *policy, uint32_t node, uint64_t id, unsigned queue)
{
        struct ordered *o = policy;

        assert(tree_has(o->tree, node));
        assert(!node_of(o, node)->is_cached);

        *node_of(o, node) = (struct ordered_node){
                .id = id, .queue = (uint8_t)queue, .is_cached = true, .is_held = true};
        o->n_of[queue]++;
}

static void enter_queue(struct ordered *o, uint32_t node)
{
        queue_add_newest(&o->queues[o->nodes[node].queue], o->links, node);
        o->nodes[node].is_queued = true;
}

static void leave_queue(struct ordered *o, uint32_t node)
{
        queue_unlink(&o->queues[o->nodes[node].queue], o->links, node);
        o->nodes[node].is_queued = false;
}

void ordered_requeue(void *policy, uint32_t node, unsigned queue)
{
        struct ordered *o = policy;
        struct ordered_node *n = node_of(o, node);
        bool was_queued = n->is_queued;

        assert(n->is_cached);

        if (was_queued)
                leave_queue(o, node);
        o->n_of[n->queue]--;
        n->queue = (uint8_t)queue;
        o->n_of[queue]++;
        if (was_queued)
                enter_queue(o, node);
}

bool ordered_may_go(const struct ordered *o, uint32_t node)
{
        return !node_of(o, node)->is_held && tree_is_leaf(o->tree, node);
}

void ordered_hold(void *policy, uint32_t node)
{
        struct ordered *o = policy;
        struct ordered_node *n = node_of(o, node);

        assert(n->is_cached && !n->is_held);
        n->is_held = true;
}

void ordered_idle(void *policy, uint32_t node, uint64_t now_nsec)
{
        struct ordered *o = policy;
        struct ordered_node *n = node_of(o, node);

        assert(n->is_cached && n->is_held);

        n->is_held = false;
        if (!n->is_queued)
                enter_queue(o, node);
}

void ordered_remove(void *policy, uint32_t node, enum evict_reason why)
{
        struct ordered *o = policy;
        struct ordered_node *n = node_of(o, node);

        assert(n->is_cached && tree_is_leaf(o->tree, node));

        if (n->is_queued)
                leave_queue(o, node);
        o->n_of[n->queue]--;
        *n = (struct ordered_node){0};
}

void ordered_move(void *policy, uint32_t node, uint32_t to)
{
        struct ordered *o = policy;
        struct ordered_node *n = node_of(o, node);

        assert(tree_has(o->tree, to) && !tree_has(o->tree, node));
        assert(n->is_cached && !node_of(o, to)->is_cached);

        if (n->is_queued)
                queue_move(&o->queues[n->queue], o->links, node, to);
        o->nodes[to] = *n;
        *n = (struct ordered_node){0};
}

void ordered_request_end(void *policy, uint64_t request, uint64_t now_nsec)
{
}

uint64_t ordered_memory_bytes(const void *policy)
{
        const struct ordered *o = policy;

        return (uint64_t)o->n_nodes * sizeof(*o->nodes) + (uint64_t)o->n_links * sizeof(*o->links);
}

const char *ordered_check(const void *policy)
{
        const struct ordered *o = policy;
        uint32_t n_of[ORDERED_QUEUES] = {0}, n_queued[ORDERED_QUEUES] = {0};

        for (uint32_t i = 0; i < o->n_nodes; i++) {
                const struct ordered_node *n = &o->nodes[i];

                if (n->is_cached != tree_has(o->tree, i))
                        return "what is cached is not what is in the tree";
                if (n->is_queued ? !n->is_cached : n->is_cached && !n->is_held)
                        return "a queue has not all that is idle, or more than is cached";
                n_of[n->queue] += n->is_cached;
                n_queued[n->queue] += n->is_queued;
        }
        for (unsigned i = 0; i < ORDERED_QUEUES; i++) {
                if (n_of[i] != o->n_of[i])
                        return "a queue counts other nodes than belong to it";
                if (n_queued[i] != o->queues[i].n ||
                        !queue_is_sound(&o->queues[i], o->links, o->n_links))
                        return "a queue has not the nodes that say so";
        }
        return NULL;
}
