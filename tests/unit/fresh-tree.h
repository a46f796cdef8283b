/* A prefix tree (policy/tree.h) is emptied as the daemon empties a namespace's: a new tree with as
 * much room and the same tiers takes its place. */
#ifndef KVL_TESTS_FRESH_TREE_H
#define KVL_TESTS_FRESH_TREE_H

#include "policy/tree.h"

/* 0, or -ENOMEM: the tree is as it was. */
static inline int fresh_tree(struct tree *tree)
{
        struct tree fresh;
        int r;

        tree_init(&fresh);
        tree_set_tiers(&fresh, tree->first, tree->n_tiers);
        r = tree_reserve(&fresh, tree->n_nodes);
        if (r < 0) {
                tree_deinit(&fresh);
                return r;
        }
        tree_deinit(tree);
        *tree = fresh;
        return 0;
}

#endif
