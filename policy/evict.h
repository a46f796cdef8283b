/*
 * Eviction policies: which cached page goes next. PURE: no I/O, no clock, time is a parameter; the
 * daemon and the trace simulator feed the same events. One instance per namespace. Nodes are page
 * indices, the prefix tree is borrowed and kept up to date by the caller. Not thread-safe.
 *
 *   insert (published, held) -> held <-> idle -> remove
 *
 * A node is *held* while somebody has it pinned, *idle* otherwise; only idle leaves are victims, so
 * eviction is leaf-first by construction. Nothing but new/reserve/reset may fail.
 */
#ifndef KVL_POLICY_EVICT_H
#define KVL_POLICY_EVICT_H

#include <stdint.h>

#include "policy/tree.h"

enum evict_reason {
        EVICT_PRESSURE,   /* chosen as victim */
        EVICT_INVALIDATE, /* dropped for another reason: not the policy's doing */
};

struct evict_ops {
        const char *name; /* as in the configuration: "lru" */

        /* tree is borrowed for the life of the instance. 0 or -ENOMEM. */
        int (*new)(const struct tree *tree, void **ret_policy);
        void (*free)(void *policy);

        /* Nodes 0..n-1 may be used from now on. 0 or -ENOMEM (unchanged). */
        int (*reserve)(void *policy, uint32_t n);

        /* Forgets every node. 0 or -ENOMEM (unchanged). Cost independent of what was in it. */
        int (*reset)(void *policy);

        /* Published: in the tree already, with its tokens; held by the publisher. request 0: none.
         */
        void (*insert)(
                void *policy, uint32_t node, uint32_t tokens, uint64_t request, uint64_t now_nsec);

        /* A lookup returned it, held or idle. Within a request the caller touches the deepest page
         * first, or that alone: leaf-first eviction keeps its ancestors. */
        void (*touch)(void *policy, uint32_t node, uint64_t request, uint64_t now_nsec);

        /* First pin taken; last pin dropped. Callers drop the deepest page of a chain first. */
        void (*hold)(void *policy, uint32_t node);
        void (*idle)(void *policy, uint32_t node, uint64_t now_nsec);

        /* Leaves the cache; it is a leaf and still in the tree. */
        void (*remove)(void *policy, uint32_t node, enum evict_reason why);

        /*
         * The page's bytes are at another index from now on: `to`, unknown until now, is what
         * `node` was, held or idle, with its place in the order; `node` is unknown. The tree was
         * changed already (tree_move()).
         */
        void (*move)(void *policy, uint32_t node, uint32_t to);

        /* The request is over: lookups and publishes with this id come no more. */
        void (*request_end)(void *policy, uint64_t request, uint64_t now_nsec);

        /*
         * Next victim: an idle leaf, NODE_NONE where there is none. Changes nothing a caller could
         * see: without a remove() the next call may name the same node. Amortised O(1).
         */
        uint32_t (*victim)(void *policy, uint64_t now_nsec);

        /* Bytes of metadata held. */
        uint64_t (*memory_bytes)(const void *policy);

        /* Debug: consistent with the tree? NULL, or a static sentence naming what is not. */
        const char *(*check)(const void *policy);
};

extern const struct evict_ops evict_lru;

/* NULL-terminated; found by name. */
extern const struct evict_ops *const evict_policies[];
const struct evict_ops *evict_find(const char *name);

#endif
