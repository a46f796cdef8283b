#include "policy/sim/ranked.h"

#include <assert.h>
#include <stdbool.h>
#include <stdlib.h>

#include "base/array.h"

static struct ranked_node *node_of(const struct ranked *r, uint32_t node)
{
        assert(node < r->n_nodes);
        return &r->nodes[node];
}

static bool is_in_heap(const struct ranked_node *n)
{
        return n->place != PLACE_HELD && n->place != PLACE_INNER;
}

static bool is_lower(const struct ranked *r, uint32_t a, uint32_t b)
{
        const struct ranked_node *x = &r->nodes[a], *y = &r->nodes[b];

        if (x->major != y->major)
                return x->major < y->major;
        return x->recency < y->recency;
}

static void put_node(struct ranked *r, uint32_t at, uint32_t node)
{
        r->heap[at] = node;
        r->nodes[node].place = at + 1;
}

/* Finds the place of a node which may be anywhere in the heap, from `at` on. */
static void sift_node(struct ranked *r, uint32_t at, uint32_t node)
{
        while (at > 0 && is_lower(r, node, r->heap[(at - 1) / 2])) {
                put_node(r, at, r->heap[(at - 1) / 2]);
                at = (at - 1) / 2;
        }
        for (uint32_t child; (child = 2 * at + 1) < r->n_heap; at = child) {
                if (child + 1 < r->n_heap && is_lower(r, r->heap[child + 1], r->heap[child]))
                        child++;
                if (!is_lower(r, r->heap[child], node))
                        break;
                put_node(r, at, r->heap[child]);
        }
        put_node(r, at, node);
}

static void heap_add(struct ranked *r, uint32_t node)
{
        sift_node(r, r->n_heap++, node);
}

static void heap_take(struct ranked *r, uint32_t node, uint32_t place)
{
        uint32_t at = r->nodes[node].place - 1, last = r->heap[--r->n_heap];

        if (at < r->n_heap)
                sift_node(r, at, last);
        r->nodes[node].place = place;
}

int ranked_reserve(void *policy, uint32_t n)
{
        struct ranked *r = policy;
        void *nodes = r->nodes, *heap = r->heap;
        int ret;

        assert(n < NODE_NONE);

        ret = array_reserve(&nodes, &r->n_nodes, n, NODE_NONE - 1, sizeof(*r->nodes));
        r->nodes = nodes;
        if (ret < 0)
                return ret;
        ret = array_reserve(&heap, &r->heap_size, n, NODE_NONE - 1, sizeof(*r->heap));
        r->heap = heap;
        return ret;
}

void *ranked_new(const struct evict_params *params, size_t size)
{
        struct ranked *r = calloc(1, size);

        if (r)
                r->tree = params->tree;
        return r;
}

void ranked_free(void *policy)
{
        struct ranked *r = policy;

        if (!r)
                return;
        array_free(r->nodes, r->n_nodes, sizeof(*r->nodes));
        array_free(r->heap, r->heap_size, sizeof(*r->heap));
        free(r);
}

int ranked_reset(void *policy)
{
        struct ranked *r = policy;
        void *nodes = r->nodes;
        int ret;

        ret = array_reset(&nodes, r->n_nodes, sizeof(*r->nodes));
        if (ret < 0)
                return ret;
        r->nodes = nodes;
        r->n_heap = 0;
        return 0;
}

void ranked_insert(void *policy, uint32_t node, uint64_t id, uint64_t major)
{
        struct ranked *r = policy;
        uint32_t parent = tree_parent(r->tree, node);
        struct ranked_node *n = node_of(r, node);

        assert(tree_has(r->tree, node));
        assert(n->place == PLACE_HELD);

        *n = (struct ranked_node){.major = major, .recency = ++r->clock, .id = id, .uses = 1};
        if (parent == NODE_NONE)
                return;
        n->depth = node_of(r, parent)->depth + 1;
        if (is_in_heap(node_of(r, parent)))
                heap_take(r, parent, PLACE_INNER);
}

void ranked_set(void *policy, uint32_t node, uint64_t major)
{
        struct ranked *r = policy;
        struct ranked_node *n = node_of(r, node);

        n->major = major;
        n->recency = ++r->clock;
        if (is_in_heap(n))
                sift_node(r, n->place - 1, node);
}

void ranked_hold(void *policy, uint32_t node)
{
        struct ranked *r = policy;
        struct ranked_node *n = node_of(r, node);

        assert(n->place != PLACE_HELD);

        if (is_in_heap(n))
                heap_take(r, node, PLACE_HELD);
        n->place = PLACE_HELD;
}

void ranked_idle(void *policy, uint32_t node, uint64_t now_nsec)
{
        struct ranked *r = policy;
        struct ranked_node *n = node_of(r, node);

        assert(tree_has(r->tree, node));
        assert(n->place == PLACE_HELD);

        n->recency = ++r->clock;
        if (tree_is_leaf(r->tree, node))
                heap_add(r, node);
        else
                n->place = PLACE_INNER;
}

void ranked_remove(void *policy, uint32_t node, enum evict_reason why)
{
        struct ranked *r = policy;
        struct ranked_node *n = node_of(r, node);
        uint32_t parent = tree_parent(r->tree, node);

        assert(tree_has(r->tree, node) && tree_is_leaf(r->tree, node));

        if (is_in_heap(n))
                heap_take(r, node, PLACE_HELD);
        if (tree_is_only_child(r->tree, node) && node_of(r, parent)->place == PLACE_INNER)
                heap_add(r, parent);
}

void ranked_move(void *policy, uint32_t node, uint32_t to)
{
        struct ranked *r = policy;

        assert(tree_has(r->tree, to) && !tree_has(r->tree, node));
        assert(node_of(r, to)->place == PLACE_HELD);

        *node_of(r, to) = *node_of(r, node);
        if (is_in_heap(&r->nodes[to]))
                r->heap[r->nodes[to].place - 1] = to;
        r->nodes[node].place = PLACE_HELD;
}

void ranked_request_end(void *policy, uint64_t request, uint64_t now_nsec)
{
}

uint32_t ranked_victim(void *policy, uint32_t tier, enum evict_how how, uint64_t now_nsec)
{
        const struct ranked *r = policy;

        return r->n_heap > 0 ? r->heap[0] : NODE_NONE;
}

uint64_t ranked_memory_bytes(const void *policy)
{
        const struct ranked *r = policy;

        return (uint64_t)r->n_nodes * sizeof(*r->nodes) + (uint64_t)r->heap_size * sizeof(*r->heap);
}

static const char *check_node(const struct ranked *r, uint32_t node)
{
        const struct ranked_node *n = &r->nodes[node];
        uint32_t parent;

        if (!tree_has(r->tree, node))
                return n->place == PLACE_HELD ? NULL : "an idle node is not in the tree";
        parent = tree_parent(r->tree, node);
        if (n->depth != (parent == NODE_NONE ? 0 : r->nodes[parent].depth + 1))
                return "a node is not one deeper than its parent";
        if (n->place == PLACE_HELD)
                return NULL;
        if (tree_is_leaf(r->tree, node) != is_in_heap(n))
                return "the heap has not the idle leaves";
        if (is_in_heap(n) && (n->place > r->n_heap || r->heap[n->place - 1] != node))
                return "a node is not where it is in the heap";
        return NULL;
}

const char *ranked_check(const void *policy)
{
        const struct ranked *r = policy;
        uint32_t n_in_heap = 0;

        for (uint32_t i = 0; i < r->n_nodes; i++) {
                const char *wrong = check_node(r, i);

                if (wrong)
                        return wrong;
                n_in_heap += is_in_heap(&r->nodes[i]);
        }
        if (n_in_heap != r->n_heap)
                return "the heap has more nodes than are idle leaves";
        for (uint32_t i = 1; i < r->n_heap; i++)
                if (is_lower(r, r->heap[i], r->heap[(i - 1) / 2]))
                        return "a node of the heap is lower than the one above it";
        return NULL;
}
