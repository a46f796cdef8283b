/*
 * The prefix tree of one namespace: a page's parent is the page that it continues. Nodes are page
 * indices in arrays, without pointers: 16 bytes a node, and 4 more if there are several tiers.
 * PURE: no I/O, no clock. Not thread-safe.
 *
 * A node is in the tree from tree_insert() to tree_remove(); only leaves can be removed. The daemon
 * and the trace simulator share this code.
 *
 * Tiers (tree_set_tiers()) are ranges of numbers: 0 is the device, the others are lower tiers. A
 * page that changes its tier gets another number (tree_move()); parents and children may be in
 * different tiers. A *leaf* has no children, in any tier: it may be dropped. A *tip* has none in
 * its own tier or a higher one: it may be demoted, as its continuations are lower already.
 */
#ifndef KVL_POLICY_TREE_H
#define KVL_POLICY_TREE_H

#include <assert.h>
#include <stdbool.h>
#include <stdint.h>

#define NODE_NONE UINT32_MAX

/* Device, host memory, disk, and a spare one. */
#define TREE_TIERS UINT32_C(4)

/*
 * Every link holds an index plus one, modulo 2^32: NODE_NONE is stored as 0. So memory fresh from
 * calloc is an empty tree, and clearing costs no walk. Read links through the functions below.
 */
struct tree_node {
        uint32_t parent_1;      /* NODE_NONE: a root, or not in the tree */
        uint32_t first_child_1; /* NODE_NONE: a leaf */
        uint32_t prev_1; /* sibling; a root or first child: itself; NODE_NONE: not in the tree */
        uint32_t next_1; /* sibling; NODE_NONE: the last one, or a root */
};
static_assert(
        sizeof(struct tree_node) == 16, "docs/measure/PERFORMANCE.md has the bytes of a page");

struct tree {
        struct tree_node *nodes;    /* owned */
        uint32_t n_nodes;           /* size of the array */
        uint32_t *near;             /* owned; of each node the children in its tier or above */
        uint32_t near_len;          /* size of that; 0: there is one tier, where all are */
        uint32_t n_tiers;           /* 1..TREE_TIERS */
        uint32_t first[TREE_TIERS]; /* first node of each tier; first[0] = 0 */
};

/* Empty, with one tier. */
void tree_init(struct tree *t);
void tree_deinit(struct tree *t);

/* Divides the nodes of a tree without reserved nodes. Tier i gets nodes first[i] .. first[i + 1] -
 * 1, the last tier all from its first on. `first` ascends, first[0] is 0. */
void tree_set_tiers(struct tree *t, const uint32_t *first, uint32_t n_tiers);

/* Makes nodes 0..n-1 usable (n < NODE_NONE). Never shrinks. Returns 0, or -ENOMEM (nothing
 * changed). */
int tree_reserve(struct tree *t, uint32_t n);

/* Inserts `node`, which isn't in the tree, below `parent`, which is, or NODE_NONE. */
void tree_insert(struct tree *t, uint32_t node, uint32_t parent);

/* Removes `node`, a leaf of the tree. */
void tree_remove(struct tree *t, uint32_t node);

/* Puts `to`, which isn't in the tree, in the place of `node`, which is: it gets the parent,
 * siblings and children, in any tier. O(children). */
void tree_move(struct tree *t, uint32_t node, uint32_t to);

static inline bool tree_has(const struct tree *t, uint32_t node)
{
        return node < t->n_nodes && t->nodes[node].prev_1 != 0;
}

/* Prefetches the memory of a node that is used soon. Any number. */
static inline void tree_prefetch(const struct tree *t, uint32_t node)
{
        if (node < t->n_nodes)
                __builtin_prefetch(&t->nodes[node], 1);
        if (node < t->near_len)
                __builtin_prefetch(&t->near[node], 1);
}

static inline uint32_t tree_tier(const struct tree *t, uint32_t node)
{
        uint32_t tier = t->n_tiers - 1;

        while (node < t->first[tier])
                tier--;
        return tier;
}

static inline uint32_t tree_parent(const struct tree *t, uint32_t node)
{
        return t->nodes[node].parent_1 - 1;
}

/* Children in no particular order: first, then next until NODE_NONE. */
static inline uint32_t tree_first_child(const struct tree *t, uint32_t node)
{
        return t->nodes[node].first_child_1 - 1;
}

static inline uint32_t tree_next_sibling(const struct tree *t, uint32_t node)
{
        return t->nodes[node].next_1 - 1;
}

static inline bool tree_is_leaf(const struct tree *t, uint32_t node)
{
        return tree_first_child(t, node) == NODE_NONE;
}

static inline bool tree_is_tip(const struct tree *t, uint32_t node)
{
        return t->n_tiers == 1 ? tree_is_leaf(t, node) : t->near[node] == 0;
}

/* True if the node is the only child of a parent. False for a root. */
static inline bool tree_is_only_child(const struct tree *t, uint32_t node)
{
        uint32_t parent = tree_parent(t, node);

        return parent != NODE_NONE && tree_first_child(t, parent) == node &&
               tree_next_sibling(t, node) == NODE_NONE;
}

/* True if the node's parent (if any) is no tip, and would be one without the node. */
static inline bool tree_hides_tip(const struct tree *t, uint32_t node)
{
        uint32_t parent = tree_parent(t, node);

        if (t->n_tiers == 1)
                return tree_is_only_child(t, node);
        return parent != NODE_NONE && t->near[parent] == 1 &&
               tree_tier(t, node) <= tree_tier(t, parent);
}

/* The next node after `node` in preorder, at or below `top`; NODE_NONE at the end. */
uint32_t tree_next_below(const struct tree *t, uint32_t top, uint32_t node);

/*
 * Some leaf at or below `node`. Takes a whole subtree away in O(its size), without recursion:
 *
 *   for (uint32_t up = top, leaf = NODE_NONE; leaf != top;) {
 *           leaf = tree_leaf_below(t, up);
 *           up = tree_parent(t, leaf);
 *           tree_remove(t, leaf);
 *   }
 *
 * Going on from the parent is what makes it linear: from the top each time, a chain of n nodes
 * costs n^2 / 2 steps.
 */
uint32_t tree_leaf_below(const struct tree *t, uint32_t node);

/* Debug: NULL, or a static sentence naming an inconsistency. O(n_nodes). */
const char *tree_check(const struct tree *t);

/*
 * Debug: the same for one node (< n_nodes) and its neighbours, so that a tree that changes can be
 * checked in parts. Doesn't see that nodes are below no root; the caller may know their depths. A
 * node's near children are counted if there are at most TREE_CHECK_CHILDREN.
 */
#define TREE_CHECK_CHILDREN 4096u
const char *tree_check_node(const struct tree *t, uint32_t node);

#endif
