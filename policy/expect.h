/*
 * Expectations: texts that will be asked for soon. An engine knows the requests in its queue, and
 * reports the cached text that each of them continues: an *expectation*. While it stands, the
 * text's deepest cached page is locked in the eviction policy (evict_ops.lock()). The pages before
 * it are kept, too, because every policy evicts leaf-first. PURE: time is a parameter. One instance
 * for each namespace with expectations. Not thread-safe.
 *
 *   standing  its page is locked;
 *   yielded   no other page could be evicted: its page may be the next victim. The rest of the text
 *             then stands again, from the page before it on;
 *   ended     fulfilled (a request touched the text or a continuation), expired, or dropped (its
 *             pages were given up).
 *
 * Expectations change the order of eviction in a namespace, never the number of evicted pages.
 * Three rules limit the cost of wrong ones:
 *
 * - Pages of expected texts are at most one in EXPECT_SHARE of each tier's. Beyond that, an
 *   expectation gives up pages, the deepest first: the oldest expectation if it is overdue, else
 *   the newest, as the longest waiting request is served next. Overdue: since it was reported, as
 *   many requests were fulfilled as waited then. This ends expectations that never come true while
 *   none expires (docs/measure/POLICY.md, "Expectations", has measurements).
 * - A namespace has at most EXPECT_MOST expectations. One more replaces the oldest if that is
 *   overdue, and else is dropped.
 * - If no other page can be evicted they yield, in the same order (expect_yield()).
 *
 * Requests that continue the same page are one expectation with a count. Expectations are lost at a
 * restart, and no policy learns from them.
 */
#ifndef KVL_POLICY_EXPECT_H
#define KVL_POLICY_EXPECT_H

#include <stdbool.h>
#include <stdint.h>

#include "policy/ancestors.h"
#include "policy/evict.h"
#include "policy/queue.h"

/* Expectations of a namespace: more than the queues of some engines that share it. Each takes 32
 * bytes. Not tuned. */
#define EXPECT_MOST 256

/* One in so many pages of a tier may belong to expected texts. Measured: docs/measure/POLICY.md,
 * "Expectations". */
#define EXPECT_SHARE 4

/* Default and longest time of an expectation: no engine waits ten minutes for its queue. Not
 * tuned. */
#define EXPECT_TTL_MSEC      UINT32_C(30000)
#define EXPECT_TTL_MOST_MSEC UINT32_C(600000)

/* Mark of a node. All zero: it is in no expected text. */
struct expect_mark {
        uint16_t n_paths; /* children that have a mark, and 1 where an expectation ends here */
        uint16_t entry_1; /* the expectation that ends here, plus one; 0: none */
};

/* One expectation, or a free entry. */
struct expect_entry {
        uint64_t until_nsec;
        uint64_t overdue_at; /* n_fulfilled at which it is overdue */
        uint32_t node;       /* deepest page of its text that is cached */
        uint32_t depth;      /* pages of that text, this one included */
        uint32_t n_requests; /* that are expected to continue it; 0: the entry is free */
        bool has_yielded;    /* its page isn't locked */
};

struct expect_counters {
        uint64_t received;  /* expectations of cached texts, one for each request */
        uint64_t fulfilled; /* requests that came in time */
        uint64_t expired;   /* requests that didn't */
        uint64_t dropped;   /* requests whose text was given up for other texts or leases */
};

struct expect {
        const struct evict_ops *ops; /* borrowed, as the next two; it has lock() */
        void *policy;
        const struct tree *tree;
        const struct ancestors *ancestors; /* borrowed; may be NULL */
        struct expect_counters *counters;  /* borrowed; several instances may share them */
        struct expect_mark *marks;         /* owned: of each node, n_marks */
        uint32_t n_marks;
        struct expect_entry entries[EXPECT_MOST];
        struct queue_link links[EXPECT_MOST];
        struct queue order, unused;   /* of entries, oldest first */
        uint64_t n_fulfilled;         /* requests, since the start */
        uint64_t n_waiting;           /* requests of all entries */
        uint64_t next_expiry_nsec;    /* no entry expires before */
        uint32_t n_pages[TREE_TIERS]; /* that have a mark, by tier */
        uint32_t most[TREE_TIERS];    /* share of each tier */
};

/*
 * Returns an instance, owned by the caller and freed with expect_free(); NULL: no memory. `ops`,
 * `policy`, `tree`, `ancestors` and `counters` are borrowed and outlive it. `ancestors` (the
 * tree's) let a touch be found without a walk up its text; NULL: it walks. n_nodes: largest number
 * of nodes of the tree; each takes 4 bytes once it is in an expected text.
 */
struct expect *expect_new(const struct evict_ops *ops, void *policy, const struct tree *tree,
        const struct ancestors *ancestors, uint32_t n_nodes, struct expect_counters *counters);

/* Nothing for NULL. The policy keeps the locks: reset or free it, too. */
void expect_free(struct expect *e);

/*
 * Adds a request that is expected until then to continue the text that ends at `node`, which is in
 * the tree. depth: pages of that text, the node included. n_pages: cached pages of each tier.
 * Returns the pages that it visited, its cost: at most EVICT_WALK_PAGES, and as many again that
 * were given up. A longer text isn't expected.
 */
uint32_t expect_add(struct expect *e, uint32_t node, uint32_t depth, uint64_t until_nsec,
        const uint64_t n_pages[TREE_TIERS], uint64_t now_nsec);

/* ---- calls that follow the policy's; all do nothing if `e` is NULL --------------------------- */

/*
 * Called after touch(): fulfils the deepest expectation on the way up from the node, which has this
 * depth. Returns the pages that it may have visited, its cost: some hundred for a text of any
 * length. It is at most EVICT_WALK_PAGES without ancestors, or if more than EXPECT_PREFIXES
 * expected texts begin others and may begin this one.
 */
#define EXPECT_PREFIXES 8 /* not tuned */
uint32_t expect_touched(struct expect *e, uint32_t node, uint32_t depth);

/* Called before remove(): the text before the node stays expected. */
void expect_leaves(struct expect *e, uint32_t node);

/* Called after move(). */
void expect_moved(struct expect *e, uint32_t node, uint32_t to);

/* Called before victim(): ends an expired expectation, and gives up some pages beyond the share. */
void expect_prune(struct expect *e, uint64_t now_nsec);

/*
 * Called if no page of the tier can be evicted. Returns true if a page of an expected text was
 * unlocked: call victim() again. It may still return none, if a client reads that page; further
 * calls unlock others, until false. how: see victim().
 */
bool expect_yield(struct expect *e, uint32_t tier, enum evict_how how);

/* Pages of all tiers in expected texts. 0 if `e` is NULL. */
uint32_t expect_count_pages(const struct expect *e);

/* Debug: NULL, or a static sentence naming an inconsistency. O(nodes). */
const char *expect_verify(const struct expect *e);

#endif
