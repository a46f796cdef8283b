/*
 * The life of a published page: it enters index and prefix tree, is pinned and watched, leaves
 * them, and becomes FREE. Loop thread only.
 */
#ifndef KVL_CORE_PAGES_H
#define KVL_CORE_PAGES_H

#include "daemon/core/state/ns.h"

/* Returns the findable page with this key, or PAGE_NONE. */
uint32_t ns_find_page(const struct ns *ns, const uint8_t key[KEY_BYTES]);

/* Is the page pinned in any segment, the daemon's or a client's? Its set must be bound. Clients may
 * change the answer at once. */
bool ns_is_pinned(const struct ns *ns, uint32_t page);

/* Makes a page FREE; all code uses this function. The page isn't pinned, and is out of the index.
 * Drain the idle list afterwards (memory/idle-sets.h). */
void ns_free_page(struct ns *ns, uint32_t page);

/* Puts a page into the prefix tree behind `parent` (PAGE_NONE: the page begins a text).
 * page_note.depth must be set. */
void ns_enter_tree(struct ns *ns, uint32_t page, uint32_t parent);

/* Takes a leaf out of the prefix tree. */
void ns_leave_tree(struct ns *ns, uint32_t page);

/* Returns the page at `depth` (1..the page's own) of the text that ends with this page. Takes
 * hardly longer for long texts (policy/ancestors.h). */
uint32_t ns_page_of_text(const struct ns *ns, uint32_t page, uint32_t depth);

/* Another page replaces a SEALED page, which is out of index, tree and policy: makes it DETACHED
 * while a client reads it, else FREE. */
void ns_leave_page(struct ns *ns, uint32_t page);

/* Releases a page that can't be found and isn't pinned over the socket (is_retired: nor in a
 * segment). It becomes DETACHED while a segment pins it or a window holds it, else FREE. */
void ns_let_go(struct ns *ns, uint32_t page, bool is_retired);

/* Add and remove pins of any member. The first pin makes the page held, the last release lets it
 * go. */
void ns_pin_page(struct ns *ns, uint32_t page, uint32_t n);
void ns_unpin_page(struct ns *ns, uint32_t page, uint32_t n);

/* Adds the first pin of a page that was just published: the policy treats it as held from the
 * start. */
void ns_pin_published(struct ns *ns, uint32_t page);

/* Add and remove a hold of a session's window, apart from index and tree (session.h). A page that
 * leaves these becomes DETACHED. It becomes FREE once no window holds it and no client pins it. */
void ns_keep_page(struct ns *ns, uint32_t page);
void ns_unkeep_page(struct ns *ns, uint32_t page);

/* Decides on a DETACHED page that isn't watched, and whose holds were never counted: frees it, or
 * watches it if a segment pins it. */
void ns_let_go_unheld(struct ns *ns, uint32_t page);

/* The page has pins in segments and none over the socket. Makes the policy treat it as held, unless
 * it is DETACHED. ns_look_again() checks it from now on. */
void ns_watch(struct ns *ns, uint32_t page);

/* Watched pages to check before an action that can't wait for all of them: takes less than a
 * millisecond with 64 clients. Not tuned. */
#define NS_LOOK_PAGES 4096

/* Checks watched pages, because no event reports the end of a pin in a segment: at most `budget`
 * pages, the least recently checked first. Idle pages become evictable again, DETACHED ones are
 * freed. O(budget * clients). */
void ns_look_again(struct ns *ns, uint32_t budget);

/* Returns the number of pages that are pinned, in segments or over the socket. Calls fn (may be
 * NULL) for each. O(bound pages * clients). */
uint64_t ns_find_pinned(const struct ns *ns, void (*fn)(uint32_t page, void *data), void *data);

/* Counts pinned pages for a message. Looks at `*budget` pages at most, and lowers it by that
 * number. 0 left: there may be more. */
uint64_t ns_count_pinned(const struct ns *ns, uint32_t *budget);

/* Frees a bound page that is stale; it becomes DETACHED while it is pinned. */
void ns_sweep_page(struct ns *ns, uint32_t page);

/* All cached pages became unfindable: each is to be swept. */
void ns_note_stale(struct ns *ns);

#endif
