/*
 * Drops cached pages: one leaf (evicted, expired), or many: a page with all below it, pages with a
 * tag, the end of a text that a session leaves. Many pages are dropped in *slices*, so that the
 * event loop isn't blocked while a million pages are dropped.
 *
 * A drop takes only leaves, the deepest first, as evictions do. So evictions could have made each
 * state between two slices, and no other code needs to know of the drop. Lookups through its top
 * find fewer and fewer of the pages below. When it ends, none of them can be found by any key.
 * Pages published below it meanwhile are dropped, too.
 *
 * A drop names two pages: its top and its position (at or below the top). If either page is dropped
 * or moved meanwhile by other code (eviction, expiry, compaction, tiers, invalidation, another
 * drop), that code has drops_page_goes() or drops_page_moved() called. If the position is dropped,
 * the drop continues at its parent.
 *
 * Drops don't survive a restart. The remaining pages are cached again, and the client, which had no
 * answer yet, repeats its request. Loop thread only.
 */
#ifndef KVL_CORE_DROP_H
#define KVL_CORE_DROP_H

#include <stdbool.h>
#include <stdint.h>

#include "base/list.h"
#include "daemon/core/state/ns.h"
#include "daemon/core/state/task.h"
#include "daemon/core/state/detail.h"
#include "daemon/core/state/page.h"
#include "daemon/core/state/drop-reason.h"

struct attach;
struct ns;
struct session;
struct store;
struct tenant;

/* Looks at pages that a drop takes before it is queued: most drops end in that time. Some 0.2 ms,
 * or 1.5 ms if 64 clients have pin segments. Not tuned. */
#define DROP_SLICE_PAGES 256

/* Unfinished drops of a namespace: each page that is dropped or moved is compared with all. Not
 * tuned. */
#define DROPS_MAX 64

enum drop_kind { DROP_SUBTREE, DROP_TAG, DROP_TEXT };

/* Is the page still in use? */
typedef bool (*drop_wanted_fn)(const struct ns *ns, uint32_t page);

struct drop {
        struct list_link link; /* ns.catalog.drops; empty: it is over */
        struct task task;      /* while it is queued */
        struct ns *ns;         /* borrowed */
        enum drop_kind kind;
        struct drop_reason reason; /* without a lease: a drop may outlive the lease's tenant */
        uint32_t top;              /* PAGE_NONE: none */
        uint32_t at;               /* position, at or below the top; PAGE_NONE: none left */
        uint64_t tag;              /* DROP_TAG: of the next tops */
        uint32_t stop_depth;       /* DROP_TEXT: it ends at this depth, */
        drop_wanted_fn is_wanted;  /* or at a page for which this is true */
        uint64_t n_pages;          /* dropped so far, by this drop */
        /* The queued drop is over and in no list: its owner may free it. */
        void (*done)(struct drop *d);
};

/* Initializes a drop as one that is over. */
void drop_init(struct drop *d);

static inline bool drop_is_over(const struct drop *d)
{
        return list_is_empty(&d->link);
}

/* Moves a drop that isn't queued to `to`; `d` is over then. */
void drop_move(struct drop *d, struct drop *to);

/* Ends a drop that isn't queued; dropped pages stay dropped. */
void drop_cancel(struct drop *d);

/* Queues a drop that isn't over: it has its turns in tasks_work() (task.h), and `done` is called
 * when it ends. */
void drop_queue(struct drop *d, void (*done)(struct drop *d));

/* Drops a page and all below it: a slice now, the rest in tasks_work(). Drops all of it now if
 * there is no memory, or if DROPS_MAX are under way. */
void drop_below(struct ns *ns, uint32_t page, struct drop_reason reason);

/* Drops a page and all below it: at most `budget` looks now, the rest in tasks_work(). Retry while
 * the page exists: it does nothing if a drop has begun at the page or DROPS_MAX are under way, and
 * stops without memory. Returns the number of looks. */
uint64_t drop_below_soon(struct ns *ns, uint32_t page, struct drop_reason reason, uint64_t budget);

/* Drops a page and all below it (DROP_SUBTREE, at `page`), or all pages with `tag` and all below
 * them (DROP_TAG, PAGE_NONE), in tasks_work() alone. Returns 0; -EAGAIN: DROPS_MAX are under way;
 * -ENOMEM. */
int drop_later(
        struct ns *ns, enum drop_kind kind, uint32_t page, uint64_t tag, struct drop_reason reason);

/* Drops the pages of the tree from `page` (PAGE_NONE: none) up, until the text has `stop_depth`
 * pages or a page is in use (is_wanted). Drops a slice now, the rest in tasks_work(). Without
 * memory or space for a drop, the rest stays cached. Returns the number of looks. */
uint64_t drop_text(struct ns *ns, uint32_t page, uint32_t stop_depth, drop_wanted_fn is_wanted);

/* ---- for the rest of the core ---------------------------------------------------------------- */

/* The first is called before a page leaves the tree; the second after a page moved to `to`, which
 * has its place there. */
void drops_page_goes(struct ns *ns, uint32_t page);
void drops_page_moved(struct ns *ns, uint32_t page, uint32_t to);

/* All pages of the namespace became unfindable: ends all drops. */
void drops_reset(struct ns *ns);

/* The namespace is being freed: ends its drops and calls `done` for each. */
void drops_end(struct ns *ns);

/* Does the namespace have fewer than DROPS_MAX drops? */
bool drop_has_room(const struct ns *ns);

/* Begins a drop whose kind, reason and start are set, with a slice of at most `budget` looks.
 * Returns their number. */
uint64_t drop_begin(struct drop *d, struct ns *ns, uint64_t budget);

/* For the checker: returns a static sentence about an error, or NULL. */
const char *drops_check(const struct ns *ns);

/* Evicts an idle leaf for a lease of `by` (NULL: no lease). If a client's segment pins the page, it
 * is treated as held and watched instead. Returns true if it was evicted. */
bool ns_evict_leaf(struct ns *ns, uint32_t page, const struct tenant *by);

/* Expires a leaf that is too old, as ns_evict_leaf() evicts one. */
bool ns_expire_leaf(struct ns *ns, uint32_t page);

/* Drops a findable page and all below it at once; pinned pages become DETACHED. Returns the number
 * of pages. */
uint64_t ns_drop_subtree(struct ns *ns, uint32_t page, struct drop_reason reason);

/* Drops leaves of the subtree, at most `most` (> 0). The page is still findable if that limit was
 * reached. Returns the number of pages. */
uint64_t ns_drop_leaves(struct ns *ns, uint32_t page, uint64_t most, struct drop_reason reason);

/* Calls evict_ops.victim(): the eviction policy's choice, without expected pages (policy/expect.h).
 * All code that evicts by the policy uses it. NODE_NONE: no page can be evicted, or only expected
 * ones: see ns_yield_expected(). */
uint32_t ns_victim(struct ns *ns, enum tier_kind kind, enum evict_how how);

/* A caller needs the space, and ns_victim() returned none. Returns true if an expected text may
 * lose pages from now on: call ns_victim() again. Repeated calls return false in the end. */
bool ns_yield_expected(struct ns *ns, enum tier_kind kind, enum evict_how how);

#endif
