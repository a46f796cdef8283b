/*
 * What will be asked for soon. An engine knows the requests that wait in its queue, and says which
 * cached text each of them continues: an *expectation*. While it stands, the text's deepest cached
 * page is locked in the eviction policy (evict_ops.lock()), and what comes before that page is kept
 * with it, because every policy evicts leaf-first. PURE: time is a parameter. One instance for each
 * namespace that anything was ever expected of. Not thread-safe.
 *
 *   standing  its page is locked
 *   yielded   nothing else could go: its page may be the next victim. What is left of the text then
 *             stands again, from the page before it on
 *   over      a request touched the text or a continuation of it (fulfilled), its time has passed
 *             (expired), or it gave way (dropped)
 *
 * An expectation says which pages of a namespace go first, and never how many go. So that it costs
 * little where it is wrong:
 *   - the pages of expected texts are at most one in EXPECT_SHARE of those in each tier. Where they
 *     are more, an expectation gives up pages, the deepest first: the oldest where it is overdue,
 *     and else the one that was said last, as what has waited longest is served next. Overdue:
 *     since it was said, as many requests were fulfilled as waited then. That ends what never comes
 *     where nothing expires for long (docs/POLICY.md, "Expectations", has what all this is worth)
 *   - there are EXPECT_MOST expectations of a namespace; one more takes the place of the oldest
 *     where that is overdue, and else is dropped
 *   - where no other page can go they yield, in the same order (expect_yield())
 *
 * Requests that continue the same page are one expectation with a count. Of what is expected
 * nothing is kept over a restart, and no policy learns from it.
 */
#ifndef KVL_POLICY_EXPECT_H
#define KVL_POLICY_EXPECT_H

#include <stdbool.h>
#include <stdint.h>

#include "policy/ancestors.h"
#include "policy/evict.h"
#include "policy/queue.h"

/* Texts that are expected of a namespace at a time: more than the queues of some engines that share
 * it. Each takes 32 bytes. Not tuned. */
#define EXPECT_MOST 256

/* One in so many pages of a tier may belong to expected texts. Measured: docs/POLICY.md,
 * "Expectations". */
#define EXPECT_SHARE 4

/* How long an expectation stands where nobody says so, and at most: a queue that isn't served
 * within ten minutes isn't waited in. Not tuned. */
#define EXPECT_TTL_MSEC      UINT32_C(30000)
#define EXPECT_TTL_MOST_MSEC UINT32_C(600000)

/* Of a node. All zero: it is in no expected text. */
struct expect_mark {
        uint16_t n_paths; /* children that have a mark, and 1 where an expectation ends here */
        uint16_t entry_1; /* the expectation that ends here, plus one; 0: none */
};

/* One expectation, or a free entry. */
struct expect_entry {
        uint64_t until_nsec;
        uint64_t overdue_at; /* requests fulfilled by when those said before it would have been */
        uint32_t node;       /* deepest page of its text that is cached */
        uint32_t depth;      /* pages of that text, this one included */
        uint32_t n_requests; /* that are expected to continue it; 0: the entry is free */
        bool has_yielded;    /* its page isn't locked */
};

struct expect_counters {
        uint64_t received;  /* expectations of cached texts, one for each request */
        uint64_t fulfilled; /* requests that came in time */
        uint64_t expired;   /* requests that didn't */
        uint64_t dropped;   /* requests whose text was given up: other texts, or leases, took it */
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
        struct queue order, unused;   /* of entries, by when they were said */
        uint64_t n_fulfilled;         /* requests, since the start */
        uint64_t n_waiting;           /* requests of all entries */
        uint64_t next_expiry_nsec;    /* no entry expires before */
        uint32_t n_pages[TREE_TIERS]; /* that have a mark, by tier */
        uint32_t most[TREE_TIERS];    /* share of each tier */
};

/*
 * Owned by the caller, who gives it to expect_free(); NULL: no memory. All of `ops`, `policy`,
 * `tree`, `ancestors` and `counters` are borrowed and outlive it. `ancestors` are those of the
 * tree, by which a touch is found without a walk up its text; NULL: it walks. n_nodes: nodes of the
 * tree that there will ever be; each takes 4 bytes once it is in an expected text.
 */
struct expect *expect_new(const struct evict_ops *ops, void *policy, const struct tree *tree,
        const struct ancestors *ancestors, uint32_t n_nodes, struct expect_counters *counters);

/* NULL is ignored. The policy keeps the locks: it is to be reset, or freed, too. */
void expect_free(struct expect *e);

/*
 * A request is expected to continue the text that ends at `node`, which is in the tree, until then.
 * depth: pages of that text, the node included.
 * n_pages: cached pages of each tier. Returns how many pages it went through, which is what it
 * costs: EVICT_WALK_PAGES at most, and as many again that were given up. A text with more pages
 * than that isn't expected.
 */
uint32_t expect_add(struct expect *e, uint32_t node, uint32_t depth, uint64_t until_nsec,
        const uint64_t n_pages[TREE_TIERS], uint64_t now_nsec);

/* ---- what the policy is told, too; all of them do nothing where `e` is NULL -------------------
 */

/*
 * After its touch(): fulfils the deepest expectation on the way from the node, which has this
 * depth, up. Returns how many pages it may have gone through, which is what it costs: some hundred,
 * whatever the length of the text; EVICT_WALK_PAGES at most where there are no ancestors, or where
 * more than EXPECT_PREFIXES expected texts begin others and may begin this one.
 */
#define EXPECT_PREFIXES 8 /* not tuned */
uint32_t expect_touched(struct expect *e, uint32_t node, uint32_t depth);

/* Before its remove(): what comes before the node stays expected. */
void expect_leaves(struct expect *e, uint32_t node);

/* After its move(). */
void expect_moved(struct expect *e, uint32_t node, uint32_t to);

/* Before its victim(): ends what has expired, one expectation at a time, and what is beyond the
 * share, some pages at a time. */
void expect_settle(struct expect *e, uint64_t now_nsec);

/*
 * No page of the tier could go: may one of an expected text go now? True: the page's lock was taken
 * back, and victim() is to be asked again. It may still name none, where somebody reads that page;
 * called again, others yield, and false comes in the end. how: as in victim().
 */
bool expect_yield(struct expect *e, uint32_t tier, enum evict_how how);

/* Pages of all tiers that belong to expected texts. 0 where `e` is NULL. */
uint32_t expect_count_pages(const struct expect *e);

/* Debug: NULL, or a static sentence naming what is inconsistent. O(nodes). */
const char *expect_verify(const struct expect *e);

#endif
