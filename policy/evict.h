/*
 * Eviction policies: they choose the cached page to evict next. PURE: no I/O, no clock, time is a
 * parameter. The daemon and the trace simulator (policy/sim/) run the same code with the same
 * events. One instance serves a namespace, in all its tiers. Nodes are page indices; in the
 * simulator, slots of its cache. The prefix tree is borrowed; the caller keeps it up to date. Not
 * thread-safe.
 *
 *   insert (published, held) -> held <-> idle -> remove
 *
 * A node is *held* while a client has it pinned, else *idle*. Only idle leaves can be dropped, and
 * only idle tips demoted. Nothing but new/reserve/reset/load may fail.
 *
 * An index has no meaning after its page is removed. A policy remembers removed pages (ghosts) by
 * *id*: 64 bits of a hash of the key, and so of the content and all that comes before it.
 * evict_params.max_ghosts bounds ghosts.
 *
 * Tiers are those of the tree (policy/tree.h), and a node's number gives its tier. A page is in one
 * tier. Events are the same in each: a page that is read in a lower tier is held, touched and
 * released there. A page that changes tier is move()d, with all that is known of it. Uses are
 * learnt once, for all tiers together. Each tier has its own order: victim() returns its next page
 * to drop or demote. Moving a page takes time:
 *
 *   lock(node), copy, tree_move(), move(node, to)     or, if the move fails: unlock(node)
 *
 * A request is three steps: touch() of the deepest page that its lookup found, insert() of its
 * computed pages in order of the text, and request_end(). Each may be missing: a client that dies
 * ends nothing, and a client without requests passes 0. Requests overlap.
 */
#ifndef KVL_POLICY_EVICT_H
#define KVL_POLICY_EVICT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "policy/tree.h"

/* A client's hint about the text that ends at a page. */
enum evict_hint {
        EVICT_HINT_UNKNOWN,
        EVICT_HINT_CONTINUES, /* another turn will come */
        EVICT_HINT_DONE,      /* none will */
        EVICT_HINT_RETURNS,   /* one will, in about the time that is given (a tool call) */
};

/* Properties of a published page. */
struct evict_insert {
        uint64_t id;      /* of the key */
        uint32_t tokens;  /* 1..page_tokens; fewer than page_tokens: a partial tail page */
        uint32_t depth;   /* pages of its text, up to and with this one: 1.. */
        uint64_t request; /* unique among the running ones of the namespace; 0: none */
        /* The page's layers attend to a window, and its text goes on beyond that window. Only a
         * text that begins at the page's end needs it: it is evicted before all others, until a
         * touch(). */
        bool window_passed;
};

struct evict_params {
        /* Borrowed for the life of the instance; its tiers are set before new(). */
        const struct tree *tree;
        uint32_t page_tokens;
        uint32_t max_ghosts; /* 0: EVICT_MAX_GHOSTS */
        /* Cost of a miss. 0: the same for each page. Else the crossover, in tokens, for the cost of
         * computing a page again, which grows with its position (policy/recompute.h). Policies
         * without goes_by_cost ignore it. */
        uint32_t crossover_tokens;
        /* Returns when the text with this id is requested next (UINT64_MAX: never). Only the
         * simulator knows, and only "optimum" calls it. May be NULL for other policies. */
        uint64_t (*next_use)(void *data, uint64_t id);
        void *next_use_data;
};

/*
 * Most pages of a text that an event walks up. Clients choose the depth, and about 175 ns a page
 * (kvlease-bench policy) make this 2.9 ms. In pages of 64 it is a context of 1 M tokens. Pages
 * further up count as used when the pages below were. Not tuned.
 */
#define EVICT_WALK_PAGES UINT32_C(16384)

/* Default of max_ghosts: 67 M tokens of text in a namespace with pages of 64 tokens. Policies
 * allocate only for the ghosts that they have met. Not tuned. */
#define EVICT_MAX_GHOSTS (UINT32_C(1) << 20)

/* Metadata of an instance: its memory, its ghosts, and the crossover that it uses. */
struct evict_usage {
        uint64_t page_bytes;        /* of cached pages, with spare capacity */
        uint64_t ghost_bytes;       /* of ghosts, with spare capacity */
        uint64_t table_bytes;       /* the rest: what was learnt, orders */
        uint64_t ghosts;            /* ghosts in use */
        uint64_t ghost_limit_bytes; /* upper bound of ghost_bytes */
        uint32_t crossover_tokens;  /* evict_params; 0 where the policy ignores it */
};

enum evict_reason {
        EVICT_PRESSURE,   /* chosen as victim */
        EVICT_INVALIDATE, /* dropped for another reason: not the policy's doing */
};

/* Most locks of a page at a time: lock(). */
#define EVICT_MAX_LOCKS 2

enum evict_how {
        EVICT_DROP,   /* a leaf: no page of any tier continues it */
        EVICT_DEMOTE, /* a tip: all pages that continue it are in lower tiers */
};

struct evict_ops {
        const char *name;  /* as in the configuration: "lru" */
        bool goes_by_cost; /* evict_params.crossover_tokens makes a difference */

        /* Copies params. Returns 0, -ENOMEM, or -EINVAL (next_use is missing). */
        int (*new)(const struct evict_params *params, void **ret_policy);
        void (*free)(void *policy);

        /* Lets nodes 0..n-1 be used. Returns 0, or -ENOMEM (nothing changed). */
        int (*reserve)(void *policy, uint32_t n);

        /* Forgets every node; learnt statistics may stay. Returns 0, or -ENOMEM (nothing changed).
         * The cost doesn't depend on the number of nodes. */
        int (*reset)(void *policy);

        /* Adds a published page, which its publisher holds. The tree has it already, as a child of
         * its parent. */
        void (*insert)(
                void *policy, uint32_t node, const struct evict_insert *what, uint64_t now_nsec);

        /* Announces insert(), idle() or remove() of the node, or insert() of a child: fetches its
         * memory. NULL: not used. */
        void (*prefetch)(const void *policy, uint32_t node);

        /* Announces insert() or remove() of a page with this id. NULL: not used. */
        void (*prefetch_id)(const void *policy, uint64_t id);

        /* A lookup found this page, held or idle, as its request's deepest: it and all its
         * ancestors were used. A policy that needs the ancestors walks up at most EVICT_WALK_PAGES.
         * With a request, the walk may wait for request_end(), or until another request replaces
         * it. */
        void (*touch)(void *policy, uint32_t node, uint64_t request, uint64_t now_nsec);

        /* A client's hint about the text that ends at the page. after_nsec: for RETURNS only. NULL:
         * the policy ignores hints. */
        void (*hint)(void *policy, uint32_t node, enum evict_hint hint, uint64_t after_nsec,
                uint64_t now_nsec);

        /* hold(): the first pin was taken. idle(): the last one was dropped. Callers drop the
         * deepest page of a chain first. */
        void (*hold)(void *policy, uint32_t node);
        void (*idle)(void *policy, uint32_t node, uint64_t now_nsec);

        /*
         * The page is no victim until unlock(), remove(), or move() to another tier. It is being
         * copied to another tier, or it was brought up ahead of its use. A lock doesn't count as a
         * use: unlock() restores the page's place in the order. A policy that keeps only an order
         * puts a page whose turn came meanwhile among the next victims. The page may be held or
         * idle, and change between both. It has two locks at most: of the copy, and as an expected
         * page (policy/expect.h). Each unlock() removes one. NULL (both): only simulator policies
         * that know one tier.
         */
        void (*lock)(void *policy, uint32_t node);
        void (*unlock)(void *policy, uint32_t node);

        /* Removes a page from the cache, in any tier. It is a leaf, and still in the tree. */
        void (*remove)(void *policy, uint32_t node, enum evict_reason why);

        /*
         * Moves a page: `to`, unknown until now, gets the state of `node`, held or idle, and `node`
         * becomes unknown. The tree was changed before (tree_move()). Within a tier the page keeps
         * its place in the order, and its lock. In another tier it isn't locked, and its age and
         * statistics give its place. A policy that keeps only an order makes it the last victim
         * there.
         */
        void (*move)(void *policy, uint32_t node, uint32_t to);

        /* Precedes request_end() of a running request: how its generation ended, a client's number
         * (kvl_request_end_as()); 0: unknown. NULL: the policy ignores it. */
        void (*ending)(void *policy, uint64_t request, uint32_t ending);

        /* Ends a request: no more lookups or publishes have this id. Walks up at most
         * EVICT_WALK_PAGES. */
        void (*request_end)(void *policy, uint64_t request, uint64_t now_nsec);

        /*
         * Returns a tier's next victim: an idle leaf or tip (`how`) that isn't locked; NODE_NONE:
         * none. A tier can have tips and no leaf. Then the caller demotes a tip, or first drops the
         * pages that continue it. Changes nothing visible: without a remove(), lock() or move() the
         * next call may return the same node. Amortised O(1), or O(classes of pages).
         */
        uint32_t (*victim)(void *policy, uint32_t tier, enum evict_how how, uint64_t now_nsec);

        /*
         * Value of keeping a page: the chance of a use for each second of keeping it, from 0 up.
         * Comparable between pages of all tiers, and of other instances of the same policy. NULL:
         * the policy knows only an order. Then a page to demote is worth more than the lower tier's
         * next victim.
         */
        double (*value)(void *policy, uint32_t node, uint64_t now_nsec);

        /*
         * Chance, 0..1, that a page is used within this time from now because the text that it ends
         * continues. Depends on its hint, its turn and the rest of its class. 0 until something is
         * learnt. NULL: the policy doesn't learn that.
         */
        double (*chance)(void *policy, uint32_t node, uint64_t within_nsec, uint64_t now_nsec);

        /* A few microseconds of housekeeping that is too slow for events, such as rebuilding
         * tables. Returns true if there is more to do soon; false: not before the next event. The
         * daemon calls it when it is idle, the simulator after each request until it returns false.
         * NULL: none. */
        bool (*work)(void *policy, uint64_t now_nsec);

        /*
         * Save and load statistics of the traffic, for a restart: bytes with a version, the same on
         * every machine. save() returns their number, and writes them if they fit `size`. load()
         * takes the bytes of save(). Returns 0, -ENOMEM, or -EINVAL for other bytes or another
         * version (nothing changed). NULL, both: the policy learns nothing.
         */
        size_t (*save)(const void *policy, void *buf, size_t size);
        int (*load)(void *policy, const void *buf, size_t size);

        /* Bytes of metadata held. */
        uint64_t (*memory_bytes)(const void *policy);

        /* Splits memory_bytes() for evict_usage(). NULL: all bytes are of pages, and there are no
         * ghosts. */
        void (*usage)(const void *policy, struct evict_usage *ret);

        /* Debug: consistent with the tree? NULL, or a static sentence naming what is not. */
        const char *(*check)(const void *policy);

        /* Debug: the same for one node (below the number that was reserved) and its neighbours in
         * its order, so that a policy in use can be checked in parts. NULL: simulator policies. */
        const char *(*check_node)(const void *policy, uint32_t node);
};

extern const struct evict_ops evict_lru;
extern const struct evict_ops evict_pgi;

/* The daemon's policies, NULL-terminated, the default first. evict_find() finds one by name; NULL:
 * none. The simulator has more (policy/sim/policies.h). */
extern const struct evict_ops *const evict_policies[];
const struct evict_ops *evict_find(const char *name);

/* Metadata of an instance of one of the daemon's policies. Its three sums of bytes add up to
 * memory_bytes(). */
void evict_usage(const struct evict_ops *ops, const void *policy, struct evict_usage *ret);

#endif
