#include "policy/tree.h"

#include <assert.h>
#include <stdlib.h>

#include "base/array.h"

void tree_init(struct tree *t)
{
        *t = (struct tree){.n_tiers = 1};
}

void tree_set_tiers(struct tree *t, const uint32_t *first, uint32_t n_tiers)
{
        assert(n_tiers > 0 && n_tiers <= TREE_TIERS && first[0] == 0 && t->n_nodes == 0);

        for (uint32_t i = 0; i < n_tiers; i++) {
                assert(i == 0 || first[i] >= first[i - 1]);
                t->first[i] = first[i];
        }
        t->n_tiers = n_tiers;
}

void tree_deinit(struct tree *t)
{
        array_free(t->nodes, t->n_nodes, sizeof(*t->nodes));
        array_free(t->near, t->near_len, sizeof(*t->near));
        tree_init(t);
}

/* The counts first, so that there are as many as nodes, or more. */
int tree_reserve(struct tree *t, uint32_t n)
{
        void *nodes = t->nodes, *near = t->near;
        int r = 0;

        assert(n < NODE_NONE);

        if (t->n_tiers > 1)
                r = array_reserve(&near, &t->near_len, n, NODE_NONE - 1, sizeof(*t->near));
        t->near = near;
        if (r == 0)
                r = array_reserve(&nodes, &t->n_nodes, n, NODE_NONE - 1, sizeof(*t->nodes));
        t->nodes = nodes;
        return r;
}

static bool is_near(const struct tree *t, uint32_t child, uint32_t parent)
{
        return tree_tier(t, child) <= tree_tier(t, parent);
}

/* The parent has a child more (1), or one less (UINT32_MAX). */
static void count_child(struct tree *t, uint32_t child, uint32_t parent, uint32_t by)
{
        if (t->n_tiers > 1 && is_near(t, child, parent))
                t->near[parent] += by;
}

void tree_insert(struct tree *t, uint32_t node, uint32_t parent)
{
        struct tree_node *n = &t->nodes[node];

        assert(node < t->n_nodes && !tree_has(t, node));
        assert(parent == NODE_NONE || tree_has(t, parent));

        *n = (struct tree_node){.parent_1 = parent + 1, .prev_1 = node + 1};
        if (parent == NODE_NONE)
                return;
        n->next_1 = t->nodes[parent].first_child_1;
        if (n->next_1 != 0)
                t->nodes[n->next_1 - 1].prev_1 = node + 1;
        t->nodes[parent].first_child_1 = node + 1;
        count_child(t, node, parent, 1);
}

void tree_remove(struct tree *t, uint32_t node)
{
        struct tree_node *n = &t->nodes[node];
        bool first = n->prev_1 == node + 1;

        assert(tree_has(t, node) && tree_is_leaf(t, node));

        if (n->parent_1 != 0)
                count_child(t, node, n->parent_1 - 1, UINT32_MAX);
        if (n->next_1 != 0)
                t->nodes[n->next_1 - 1].prev_1 = first ? n->next_1 : n->prev_1;
        if (!first)
                t->nodes[n->prev_1 - 1].next_1 = n->next_1;
        else if (n->parent_1 != 0)
                t->nodes[n->parent_1 - 1].first_child_1 = n->next_1;
        *n = (struct tree_node){0};
}

void tree_move(struct tree *t, uint32_t node, uint32_t to)
{
        struct tree_node *n = &t->nodes[to];
        bool first = t->nodes[node].prev_1 == node + 1;

        assert(to < t->n_nodes && tree_has(t, node) && !tree_has(t, to));

        *n = t->nodes[node];
        t->nodes[node] = (struct tree_node){0};
        if (first)
                n->prev_1 = to + 1;
        else
                t->nodes[n->prev_1 - 1].next_1 = to + 1;
        if (first && n->parent_1 != 0)
                t->nodes[n->parent_1 - 1].first_child_1 = to + 1;
        if (n->next_1 != 0)
                t->nodes[n->next_1 - 1].prev_1 = to + 1;
        if (n->parent_1 != 0) {
                count_child(t, node, n->parent_1 - 1, UINT32_MAX);
                count_child(t, to, n->parent_1 - 1, 1);
        }
        if (t->n_tiers > 1)
                t->near[node] = 0;
        for (uint32_t child = tree_first_child(t, to); child != NODE_NONE;
                child = tree_next_sibling(t, child)) {
                t->nodes[child].parent_1 = to + 1;
                count_child(t, child, to, 1);
        }
}

uint32_t tree_next_below(const struct tree *t, uint32_t top, uint32_t node)
{
        if (!tree_is_leaf(t, node))
                return tree_first_child(t, node);
        while (node != top && tree_next_sibling(t, node) == NODE_NONE)
                node = tree_parent(t, node);
        return node == top ? NODE_NONE : tree_next_sibling(t, node);
}

uint32_t tree_leaf_below(const struct tree *t, uint32_t node)
{
        assert(tree_has(t, node));

        while (!tree_is_leaf(t, node))
                node = tree_first_child(t, node);
        return node;
}

/* Does the node count its near children right, of at most `most` children? */
static bool counts_near(const struct tree *t, uint32_t node, uint32_t most)
{
        uint32_t child = tree_first_child(t, node), n = 0, n_near = 0;

        for (; child != NODE_NONE && n < most; n++, child = tree_next_sibling(t, child))
                n_near += is_near(t, child, node);
        return child != NODE_NONE || n_near == t->near[node];
}

/* Does the node before it in its parent's list, or the parent, refer to it? */
static bool is_referred_to(const struct tree *t, uint32_t node)
{
        const struct tree_node *n = &t->nodes[node];
        uint32_t before = n->prev_1 - 1;

        if (n->parent_1 == 0)
                return true;
        if (before == node)
                return tree_first_child(t, n->parent_1 - 1) == node;
        return tree_has(t, before) && t->nodes[before].next_1 == node + 1 &&
               t->nodes[before].parent_1 == n->parent_1;
}

static const char *check_links(const struct tree *t, uint32_t node)
{
        const struct tree_node *n = &t->nodes[node];
        uint32_t child = tree_first_child(t, node);

        if (!tree_has(t, node))
                return n->parent_1 || n->first_child_1 || n->next_1
                               ? "a node outside the tree has links"
                               : NULL;
        if (n->parent_1 == 0 && (n->prev_1 != node + 1 || n->next_1 != 0))
                return "a root has siblings";
        if (n->parent_1 != 0 && !tree_has(t, tree_parent(t, node)))
                return "a parent is not in the tree";
        if (child != NODE_NONE && (!tree_has(t, child) || t->nodes[child].prev_1 != child + 1 ||
                                          tree_parent(t, child) != node))
                return "a first child is not the first child of its parent";
        if (n->next_1 != 0 &&
                (!tree_has(t, n->next_1 - 1) || t->nodes[n->next_1 - 1].prev_1 != node + 1 ||
                        t->nodes[n->next_1 - 1].parent_1 != n->parent_1))
                return "neighbouring siblings disagree";
        return is_referred_to(t, node) ? NULL : "a node is not among its parent's children";
}

const char *tree_check_node(const struct tree *t, uint32_t node)
{
        const char *wrong = check_links(t, node);

        if (wrong || t->n_tiers == 1 || counts_near(t, node, TREE_CHECK_CHILDREN))
                return wrong;
        return "a node counts other near children than it has";
}

const char *tree_check(const struct tree *t)
{
        uint32_t n_present = 0, n_reached = 0;
        const char *wrong;

        for (uint32_t i = 0; i < t->n_nodes; i++) {
                wrong = check_links(t, i);
                if (wrong)
                        return wrong;
                n_present += tree_has(t, i);
        }
        /* Cycles are in no root's subtree; links agree, so walking the subtrees ends. */
        for (uint32_t i = 0; i < t->n_nodes; i++)
                if (tree_has(t, i) && tree_parent(t, i) == NODE_NONE)
                        for (uint32_t n = i; n != NODE_NONE; n = tree_next_below(t, i, n))
                                n_reached++;
        if (n_reached != n_present)
                return "nodes are not below any root";
        for (uint32_t i = 0; t->n_tiers > 1 && i < t->n_nodes; i++)
                if (!counts_near(t, i, UINT32_MAX))
                        return "a node counts other near children than it has";
        return NULL;
}
