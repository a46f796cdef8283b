/*
 * How cached pages go: one leaf (evicted, expired), or many: all below a page, all with a tag, the
 * end of a text that a session leaves. Many pages go in *slices*, so that the loop is never kept
 * for as long as it takes to drop a million.
 *
 * A drop takes leaves alone, the deepest first, as evictions do. So each state between two slices
 * is one that evictions could have made: nothing else needs to know that a drop is under way.
 * Lookups through its top find less and less of what is below; once it is over nobody finds any of
 * it, by whatever key. What is published below it meanwhile goes, too.
 *
 * A drop names two pages, its top and where it goes on (at or below the top). Where one of them
 * goes or moves meanwhile, whoever does that (evictions, expiry, compaction, tiers, an
 * invalidation, another drop) has drops_page_goes() or drops_page_moved() called, as sessions have:
 * where the page goes, the drop goes on at its parent.
 *
 * None of this is kept over a restart: what isn't dropped then is cached again, and the client,
 * which was not answered, repeats its request. Loop thread only.
 */
#ifndef KVL_CORE_DROP_H
#define KVL_CORE_DROP_H

#include <stdbool.h>
#include <stdint.h>

#include "base/list.h"
#include "daemon/core/ground/chore.h"
#include "daemon/core/ground/detail.h"
#include "daemon/core/ground/page.h"
#include "daemon/core/objects/drop-reason.h"

struct attach;
struct ns;
struct session;
struct store;
struct tenant;

/*
 * Looks at pages that are taken at once, before a drop waits for its next turn: most drops are over
 * by then. Some 0.2 ms, and 1.5 ms where 64 clients have pin segments. Not tuned.
 */
#define DROP_SLICE_PAGES 256

/* In one namespace, unfinished: each page that goes or moves is compared with them all. Not tuned.
 */
#define DROPS_MAX 64

enum drop_kind { DROP_SUBTREE, DROP_TAG, DROP_TEXT };

/* Has anybody use for the page? */
typedef bool (*drop_wanted_fn)(const struct ns *ns, uint32_t page);

struct drop {
        struct list_link link; /* ns.catalog.drops, while it isn't over */
        struct chore chore;    /* once it is queued */
        struct ns *ns;         /* borrowed */
        enum drop_kind kind;
        struct drop_reason reason; /* for no lease: a drop may outlive the tenant that has it */
        uint32_t top;              /* PAGE_NONE: none */
        uint32_t at;         /* where it goes on, at or below the top; PAGE_NONE: top is gone */
        uint64_t tag;        /* DROP_TAG: the next top has it */
        uint32_t stop_depth; /* DROP_TEXT: as deep in the text it ends, */
        drop_wanted_fn is_wanted; /* or at a page for which this is true */
        uint64_t n_pages;         /* dropped until now, by itself */
        /* It was queued, and is over: it is in no list, the owner may free it. */
        void (*done)(struct drop *d);
};

/* All zero but for what a drop that is over has. */
void drop_init(struct drop *d);

static inline bool drop_is_over(const struct drop *d)
{
        return list_is_empty(&d->link);
}

/* One that isn't queued, and is over or not, is `to` from now on; `d` is over. */
void drop_move(struct drop *d, struct drop *to);

/* One that isn't queued is over, with what it has dropped. */
void drop_cancel(struct drop *d);

/* One that isn't over has its turns in chores_work() from now on (chore.h). done: it is over. */
void drop_queue(struct drop *d, void (*done)(struct drop *d));

/*
 * A page and everything below it, which nobody waits for: a slice now, the rest in chores_work().
 * All of it now where there is no memory, or DROPS_MAX.
 */
void drop_below(struct ns *ns, uint32_t page, struct drop_reason reason);

/* The same as drop_below() with a first slice of at most `budget` looks, where there is memory and
 * room for it, and no drop has begun at the page: else it is to be tried again while the page is
 * there. Returns how many looks it took. */
uint64_t drop_below_soon(struct ns *ns, uint32_t page, struct drop_reason reason, uint64_t budget);

/*
 * A page and everything below it (DROP_SUBTREE, at `page`); or all pages with `tag`, likewise
 * (DROP_TAG, PAGE_NONE): in chores_work() alone, for nobody. 0; -EAGAIN: DROPS_MAX; -ENOMEM.
 */
int drop_later(
        struct ns *ns, enum drop_kind kind, uint32_t page, uint64_t tag, struct drop_reason reason);

/*
 * The pages of the tree from `page` (PAGE_NONE: none) up to where its text is `stop_depth` pages
 * long, as far as nobody has use for them (is_wanted): a slice now, the rest in
 * chores_work(), or never: what stays is cached as anything else. Returns how many looks it took.
 */
uint64_t drop_text(struct ns *ns, uint32_t page, uint32_t stop_depth, drop_wanted_fn is_wanted);

/* ---- for the rest of the core ---------------------------------------------------------------- */

/* The page leaves the tree; moves to `to`, which has its place there. Before, and after that. */
void drops_page_goes(struct ns *ns, uint32_t page);
void drops_page_moved(struct ns *ns, uint32_t page, uint32_t to);

/* Everything in the namespace has become unfindable: all drops are over. */
void drops_reset(struct ns *ns);

/* The namespace goes: its drops are over, and their owners hear of it. */
void drops_end(struct ns *ns);

/* Another drop may begin in the namespace: it has fewer than DROPS_MAX. */
bool drop_has_room(const struct ns *ns);

/* The drop, of which kind, reason and where it begins are set, begins with a slice of at most
 * so many looks. Returns how many it took. */
uint64_t drop_begin(struct drop *d, struct ns *ns, uint64_t budget);

/* For the checker: what is wrong with the drops of the namespace, a static sentence, or NULL. */
const char *drops_check(const struct ns *ns);

/*
 * Evicts an idle leaf for a lease of `by` (NULL: nobody's), unless a client has pinned it in its
 * segment: then it counts as held, and is watched. True where it went.
 */
bool ns_evict_leaf(struct ns *ns, uint32_t page, const struct tenant *by);

/* The same as ns_evict_leaf(), for a leaf that is too old. */
bool ns_expire_leaf(struct ns *ns, uint32_t page);

/* Removes a findable page and everything below it, at once; pinned ones become DETACHED. Returns
 * their number. */
uint64_t ns_drop_subtree(struct ns *ns, uint32_t page, struct drop_reason reason);

/* The same as ns_drop_subtree(), leaves first, and at most `most` (> 0) of them: the page is still
 * findable where it took these. */
uint64_t ns_drop_leaves(struct ns *ns, uint32_t page, uint64_t most, struct drop_reason reason);

#endif
