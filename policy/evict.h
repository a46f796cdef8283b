/*
 * Eviction policies: which cached page goes next. PURE: no I/O, no clock, time is a parameter. The
 * daemon and the trace simulator (policy/sim/) feed the same events, and each policy is the same
 * code in both. One instance per namespace, for all its tiers. Nodes are page indices (the
 * simulator's: slots of its cache), the prefix tree is borrowed and kept up to date by the caller.
 * Not thread-safe.
 *
 *   insert (published, held) -> held <-> idle -> remove
 *
 * A node is *held* while somebody has it pinned, *idle* otherwise; only idle leaves are victims, so
 * eviction is leaf-first by construction. Nothing but new/reserve/reset/load may fail.
 *
 * An index means nothing once its page is gone. What a policy remembers of pages that aren't cached
 * (ghosts) it knows by their *id*: 64 bits of a hash of the key, and so of the content and of all
 * that comes before it. Ghosts are bounded by evict_params.max_ghosts.
 *
 * Tiers are those of the tree (policy/tree.h), told apart by a node's number; a page is in one of
 * them. All events are the same in each: a page that is read where it lies below the device is
 * held, touched and let go there. What goes down or up is move()d, with all that is known of it;
 * what is used, by whom and how often is learnt once, for all tiers together. Each tier has an
 * order of its own: victim() names the next one of a tier to be dropped, or to go down. To move a
 * page that takes time:
 *
 *   lock(node), copy, tree_move(), move(node, to)     or, where that is given up: unlock(node)
 *
 * One request: touch() of the deepest page that its lookup found, insert() of what it computed, in
 * order of the text, request_end(). Any of these may be missing (a client that dies ends nothing;
 * who says no requests passes 0), and requests overlap.
 */
#ifndef KVL_POLICY_EVICT_H
#define KVL_POLICY_EVICT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "policy/tree.h"

/* What a client says of the text that ends at a page. */
enum evict_hint {
        EVICT_HINT_UNKNOWN,
        EVICT_HINT_CONTINUES, /* another turn will come */
        EVICT_HINT_DONE,      /* none will */
        EVICT_HINT_RETURNS,   /* one will, in about the time that is given (a tool call) */
};

/* What a policy is told of a page that is published. */
struct evict_insert {
        uint64_t id;      /* of the key */
        uint32_t tokens;  /* 1..page_tokens; fewer than that: a partial tail page */
        uint32_t depth;   /* pages of its text up to its end, itself included: 1.. */
        uint64_t request; /* unique among the running ones of the namespace; 0: none */
        /* Of layers with a window of attention, and the text goes on beyond that window. Only a
         * text that begins where this page ends needs the page: it is a victim before all others,
         * until a touch(). */
        bool window_passed;
};

struct evict_params {
        /* Borrowed for the life of the instance; its tiers are set before new(). */
        const struct tree *tree;
        uint32_t page_tokens;
        uint32_t max_ghosts; /* 0: EVICT_MAX_GHOSTS */
        /* What a miss costs: 0, as much for each page; else what it takes to compute the page
         * again, which grows with its position (policy/recompute.h has what this means, in tokens).
         * Policies without goes_by_cost ignore it. */
        uint32_t crossover_tokens;
        /* When the text with this id is asked for next (UINT64_MAX: never). Only the simulator
         * knows, only "optimum" asks. May be NULL elsewhere. */
        uint64_t (*next_use)(void *data, uint64_t id);
        void *next_use_data;
};

/*
 * An event goes up so many pages of a text at most: clients choose how deep it is, and some 175 ns
 * a page (kvlease-bench policy) make this 2.9 ms. It is a context of 1 M tokens in pages of 64;
 * what lies further up counts as used when what is below was. Not tuned.
 */
#define EVICT_WALK_PAGES UINT32_C(16384)

/* How many pages that went an instance remembers, where params don't say: 67 M tokens of text in a
 * namespace with pages of 64 tokens. Policies allocate for as many as they have met, no more. Not
 * tuned. */
#define EVICT_MAX_GHOSTS (UINT32_C(1) << 20)

/* What the metadata of an instance takes, the pages that went which it remembers, and what it goes
 * by. */
struct evict_usage {
        uint64_t page_bytes;        /* of cached pages, and of room for more */
        uint64_t ghost_bytes;       /* of ghosts, and of room for more */
        uint64_t table_bytes;       /* the rest: what was learnt, orders */
        uint64_t ghosts;            /* of ghost_bytes: in use */
        uint64_t ghost_limit_bytes; /* ghost_bytes is never more */
        uint32_t crossover_tokens;  /* evict_params; 0 where the policy ignores it */
};

enum evict_reason {
        EVICT_PRESSURE,   /* chosen as victim */
        EVICT_INVALIDATE, /* dropped for another reason: not the policy's doing */
};

/* Of one page at a time: lock(). */
#define EVICT_MAX_LOCKS 2

enum evict_how {
        EVICT_DROP,   /* a leaf: nothing depends on it, in any tier */
        EVICT_DEMOTE, /* a tip: what continues it is further down already */
};

struct evict_ops {
        const char *name;  /* as in the configuration: "lru" */
        bool goes_by_cost; /* evict_params.crossover_tokens makes a difference */

        /* params are copied. 0 or -ENOMEM; -EINVAL: it needs next_use. */
        int (*new)(const struct evict_params *params, void **ret_policy);
        void (*free)(void *policy);

        /* Nodes 0..n-1 may be used from now on. 0 or -ENOMEM (unchanged). */
        int (*reserve)(void *policy, uint32_t n);

        /* Forgets every node; what was learnt of the traffic may stay. 0 or -ENOMEM (unchanged).
         * Cost independent of what was in it. */
        int (*reset)(void *policy);

        /* Published: in the tree already, a child more of its parent there; held by the publisher.
         */
        void (*insert)(
                void *policy, uint32_t node, const struct evict_insert *what, uint64_t now_nsec);

        /* insert(), idle() or remove() of the node, or insert() of one that continues it, comes
         * soon: its memory may be fetched. NULL: no use. */
        void (*prefetch)(const void *policy, uint32_t node);

        /* insert() of a page with this id comes soon, or remove() of one. NULL: no use. */
        void (*prefetch_id)(const void *policy, uint64_t id);

        /* A lookup found it, held or idle, as the deepest of its request: it and all its ancestors
         * were used. Whoever needs these walks up, EVICT_WALK_PAGES at most; where there is a
         * request that can wait for request_end(), or until another request takes its place. */
        void (*touch)(void *policy, uint32_t node, uint64_t request, uint64_t now_nsec);

        /* Somebody says what becomes of the text that ends at the page. after_nsec counts for
         * RETURNS alone. NULL: the policy has no use for hints. */
        void (*hint)(void *policy, uint32_t node, enum evict_hint hint, uint64_t after_nsec,
                uint64_t now_nsec);

        /* First pin taken; last pin dropped. Callers drop the deepest page of a chain first. */
        void (*hold)(void *policy, uint32_t node);
        void (*idle)(void *policy, uint32_t node, uint64_t now_nsec);

        /*
         * It is no victim until unlock(), or until remove() or move() to another tier: its bytes
         * are on their way there, or it was brought up ahead of its use. That is no use of it, and
         * unlock() gives it its place in the order back (where a policy keeps no more than an
         * order: among the next victims, where its turn came meanwhile). Held or idle; both may
         * change meanwhile. Twice at most: by who moves it, and because it is expected
         * (policy/expect.h); each unlock() takes one of the two back.
         * NULL, both, in the simulator alone: it knows one tier, and no tree with more may be given
         * to it.
         */
        void (*lock)(void *policy, uint32_t node);
        void (*unlock)(void *policy, uint32_t node);

        /* Leaves the cache, whatever tier it is in; it is a leaf and still in the tree. */
        void (*remove)(void *policy, uint32_t node, enum evict_reason why);

        /*
         * The page's bytes are at another index from now on: `to`, unknown until now, is what
         * `node` was, held or idle; `node` is unknown. The tree was changed already (tree_move()).
         * Within a tier it keeps its place in the order, and its lock. In another one it isn't
         * locked, and has the place that its age and what else is known of it give it, or, where a
         * policy keeps no more than an order, that of the last to go.
         */
        void (*move)(void *policy, uint32_t node, uint32_t to);

        /* The request is over: lookups and publishes with this id come no more. Goes up
         * EVICT_WALK_PAGES at most. */
        void (*request_end)(void *policy, uint64_t request, uint64_t now_nsec);

        /*
         * Next victim of a tier: an idle leaf or tip that isn't locked, NODE_NONE where there is
         * none. A tier can have tips and no leaf: then something goes down, or what continues a tip
         * is dropped first, from the tier that it is in. Changes nothing a caller could see:
         * without a remove(), lock() or move() the next call may name the same node. Amortised
         * O(1), or O(classes of pages).
         */
        uint32_t (*victim)(void *policy, uint32_t tier, enum evict_how how, uint64_t now_nsec);

        /*
         * What keeping a page is worth from now on: the chance that it is used, for each second of
         * keeping it. For comparing pages of this instance, in whatever tiers, and with those of
         * other instances of the same policy; from 0 up. NULL: it knows an order only; then what
         * goes down is worth more than what the tier below would drop.
         */
        double (*worth)(void *policy, uint32_t node, uint64_t now_nsec);

        /*
         * The chance, 0..1, that a page is used within so long from now, as the text that it ends
         * continues: by its hint, its turn and what else it is classed by. 0 where nothing is
         * learnt yet. NULL: it learns nothing of that.
         */
        double (*chance)(void *policy, uint32_t node, uint64_t within_nsec, uint64_t now_nsec);

        /* Housekeeping that is too slow for the events (tables are rebuilt), a few microseconds of
         * it. True: there is more to do, so it is to be called again soon; false: once something
         * has happened. The daemon calls it when it has nothing else to do, the simulator after
         * each request until it returns false. NULL: none.
         */
        bool (*work)(void *policy, uint64_t now_nsec);

        /*
         * What was learnt of the traffic, to be kept over a restart: bytes that are the same on
         * every machine, with a version. save() returns how many there are, and writes them where
         * they fit `size`. load() takes what save() gave: 0; -EINVAL: not that, or of another
         * version (what it had learnt is unchanged); -ENOMEM. NULL, both: it learns nothing.
         */
        size_t (*save)(const void *policy, void *buf, size_t size);
        int (*load)(void *policy, const void *buf, size_t size);

        /* Bytes of metadata held. */
        uint64_t (*memory_bytes)(const void *policy);

        /* Of what: evict_usage() asks. NULL: all is of pages, and there are no ghosts. */
        void (*usage)(const void *policy, struct evict_usage *ret);

        /* Debug: consistent with the tree? NULL, or a static sentence naming what is not. */
        const char *(*check)(const void *policy);
};

extern const struct evict_ops evict_lru;
extern const struct evict_ops evict_pgi;

/* Those the daemon offers, NULL-terminated, the default first; found by name. The simulator has
 * more (policy/sim/policies.h). */
extern const struct evict_ops *const evict_policies[];
const struct evict_ops *evict_find(const char *name);

/* What an instance of the daemon's policies holds. The three sums of bytes are memory_bytes(). */
void evict_usage(const struct evict_ops *ops, const void *policy, struct evict_usage *ret);

#endif
