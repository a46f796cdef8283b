/*
 * The life of a page that was published: it is in index and prefix tree, it is pinned and watched,
 * it leaves them, and it is free again. Loop thread only.
 */
#ifndef KVL_CORE_PAGES_H
#define KVL_CORE_PAGES_H

#include "daemon/core/objects/ns.h"

/* The page with this key that can be found, or PAGE_NONE. */
uint32_t ns_find_page(const struct ns *ns, const uint8_t key[KEY_BYTES]);

/* Does anybody read the page, which is bound: is it pinned in any segment, the daemon's or a
 * client's? What clients do may change it at once. */
bool ns_is_pinned(const struct ns *ns, uint32_t page);

/* The one way a page becomes FREE: it isn't pinned, and out of the index. Its set is to be settled
 * (memory/settle.h). */
void ns_free_page(struct ns *ns, uint32_t page);

/* The page, whose place in its text is noted (page_note.depth), continues `parent` in the prefix
 * tree (PAGE_NONE: begins a text). */
void ns_enter_tree(struct ns *ns, uint32_t page, uint32_t parent);

/* The page, a leaf, isn't in the prefix tree any more. */
void ns_leave_tree(struct ns *ns, uint32_t page);

/* The page of the prefix tree that lies `depth` pages deep in the text that ends with this one:
 * 1..the page's own depth. Hardly longer for long texts (policy/ancestors.h). */
uint32_t ns_page_of_text(const struct ns *ns, uint32_t page, uint32_t depth);

/* A SEALED page is out of index, tree and policy, because another one has its place: it is DETACHED
 * while somebody reads it, else FREE. */
void ns_leave_page(struct ns *ns, uint32_t page);

/* A page can't be found any more, and nobody pins it over the socket (is_retired: nor in a
 * segment). It is DETACHED while a segment pins it or a window holds it, else FREE. */
void ns_let_go(struct ns *ns, uint32_t page, bool is_retired);

/* Pins of one member or another, counted per page. The first holds it, the last lets it go. */
void ns_pin_page(struct ns *ns, uint32_t page, uint32_t n);
void ns_unpin_page(struct ns *ns, uint32_t page, uint32_t n);

/* The first pin of a page that was published just now: the policy has it as held from the start. */
void ns_pin_published(struct ns *ns, uint32_t page);

/* A session's window holds the page beside index and tree (session.h): where it leaves these it is
 * DETACHED, and free once no window holds it and nobody pins it. */
void ns_keep_page(struct ns *ns, uint32_t page);
void ns_unkeep_page(struct ns *ns, uint32_t page);

/* A page is DETACHED and not watched, and who holds it was never counted: it is freed where nobody
 * does, and watched where a segment pins it. */
void ns_settle_page(struct ns *ns, uint32_t page);

/* The page is met with pins in segments and none of its own: the policy has it as held, or it is
 * DETACHED. From now on ns_look_again() looks after it. */
void ns_watch(struct ns *ns, uint32_t page);

/* Watched pages looked at by what can't wait for all: below a millisecond with 64 clients. Not
 * tuned. */
#define NS_LOOK_PAGES 4096

/*
 * Nobody tells the daemon when a pin in a segment goes: looks at what is watched, at most `budget`
 * pages, those first that it hasn't looked at for longest. Pages that are idle now can be evicted
 * again, DETACHED ones are freed. O(budget * clients).
 */
void ns_look_again(struct ns *ns, uint32_t budget);

/* The number of pages that are pinned by whomever, in segments or over the socket. fn (may be NULL)
 * gets each. O(bound pages * clients). */
uint64_t ns_find_pinned(const struct ns *ns, void (*fn)(uint32_t page, void *data), void *data);

/* The same for a sentence: looks at `*budget` pages at most, and takes what it looked at from that.
 * 0 left: there may be more. */
uint64_t ns_count_pinned(const struct ns *ns, uint32_t *budget);

/* A page that is bound is freed where it is stale, or DETACHED while somebody pins it. */
void ns_sweep_page(struct ns *ns, uint32_t page);

/* All pages that are cached have become unfindable: each is swept. */
void ns_note_stale(struct ns *ns);

#endif
