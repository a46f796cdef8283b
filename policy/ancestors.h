/*
 * Finds the ancestor of a node of the prefix tree (tree.h) at a given depth, without a walk through
 * all nodes in between: the level ancestor problem. A root has depth 1.
 *
 * Each node whose depth is a multiple of ANCESTORS_STEP has a *mark*, which refers to the mark of
 * its ancestor ANCESTORS_STEP levels up. So an ancestor n levels up is found in at most 2 *
 * ANCESTORS_STEP + n / ANCESTORS_STEP steps (n = 16,384: 384; 2 M: 32,896). An insertion costs one
 * step on average, and ANCESTORS_STEP if the node gets a mark.
 *
 * Marks have numbers of their own, so a node that moves costs no walk. Only leaves are removed, so
 * no mark refers to a missing one. 12 bytes a mark, 16 with its bucket.
 *
 * Without memory for a mark, walks past its place take longer, with the same results. PURE: no I/O,
 * no clock. Not thread-safe.
 */
#ifndef KVL_POLICY_ANCESTORS_H
#define KVL_POLICY_ANCESTORS_H

#include <stdbool.h>
#include <stdint.h>

#include "policy/tree.h"

/* Levels from mark to mark. Texts of a few thousand pages cost least if this is about the root of
 * their number. Not tuned. */
#define ANCESTORS_STEP UINT32_C(64)

struct ancestors_mark;

/* All zero: no marks. */
struct ancestors {
        struct ancestors_mark *marks; /* owned */
        uint32_t n_marks;             /* size of the array; 0, or a power of two */
        uint32_t n_used;              /* the first of them, in use or spare */
        uint32_t spare;               /* the first spare one plus 1; 0: none */
        uint32_t *buckets;  /* owned; by node: its first mark plus 1; 0: none. As many as marks */
        bool is_incomplete; /* memory for a mark was missing */
};

/* Frees its memory: no marks. */
void ancestors_deinit(struct ancestors *a);

/* Adds a node of this depth that was inserted into the tree (tree_insert()). */
void ancestors_insert(struct ancestors *a, const struct tree *t, uint32_t node, uint32_t depth);

/* Does a node of this depth have a mark? */
static inline bool ancestors_has_mark(uint32_t depth)
{
        return depth % ANCESTORS_STEP == 0;
}

/* Like ancestors_insert(), without a look-up in the tree. above: the nearest ancestor with a mark;
 * NODE_NONE: none. */
void ancestors_insert_below(struct ancestors *a, uint32_t node, uint32_t depth, uint32_t above);

/* Removes a node of this depth that was removed from the tree, or is about to be. */
void ancestors_remove(struct ancestors *a, uint32_t node, uint32_t depth);

/* Moves a node of this depth, whose place `to` took or is about to take (tree_move()). */
void ancestors_move(struct ancestors *a, uint32_t node, uint32_t to, uint32_t depth);

/* The ancestor, at depth `wanted` (1..depth), of a node of this depth; the node itself for its own
 * depth. */
uint32_t ancestors_find(const struct ancestors *a, const struct tree *t, uint32_t node,
        uint32_t depth, uint32_t wanted);

/*
 * The deepest of a node and its ancestors for which is() returns true; NODE_NONE: none. If is() is
 * true for a node, it must be true for all its ancestors. *depth: in: the node's; out: that of the
 * result. As many steps as ancestors_find().
 */
uint32_t ancestors_find_deepest(const struct ancestors *a, const struct tree *t, uint32_t node,
        uint32_t *depth, bool (*is)(const void *data, uint32_t node), const void *data);

/* Debug: NULL, or a static sentence naming an inconsistency. O(nodes and marks), and ANCESTORS_STEP
 * for each mark. */
const char *ancestors_check(const struct ancestors *a, const struct tree *t);

/* Debug: the same for one node of this depth, and for one mark (< n_used), so that marks that
 * change can be checked in parts. needs_mark() returns true for a node of the tree that is to have
 * a mark. Takes ANCESTORS_STEP steps at most. */
const char *ancestors_check_node(
        const struct ancestors *a, const struct tree *t, uint32_t node, uint32_t depth);
const char *ancestors_check_mark(const struct ancestors *a, uint32_t mark,
        bool (*needs_mark)(const void *data, uint32_t node), const void *data);

#endif
