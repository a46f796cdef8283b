/*
 * Tags: pages published from the same document, to be invalidated together when it changes. Each
 * tag of a namespace has a list of pages, through page_extra.tag_prev/next. Loop thread only.
 */
#ifndef KVL_CORE_TAG_H
#define KVL_CORE_TAG_H

#include <stdint.h>

#include "daemon/core/state/ns.h"

/* Reserves memory so that the next tag_add() can't fail. Returns 0 or -ENOMEM. */
int tag_reserve(struct ns *ns);

/* Gives a findable page `tag` (> 0), unless it has one. */
void tag_add(struct ns *ns, uint32_t page, uint64_t tag);

/* Stores the tag (or 0) of a page that can't be found, before it is published. Enters no list. */
void tag_store(struct ns *ns, uint32_t page, uint64_t tag);

/* Enters a page into the list of its tag from tag_store(). */
void tag_enter(struct ns *ns, uint32_t page);

/* Removes the tag of a page that can't be found any more. */
void tag_remove(struct ns *ns, uint32_t page);

/* Moves the tag of a page to its new number, `to`. */
void tag_moved(struct ns *ns, uint32_t page, uint32_t to);

/* Returns a page with the tag, or PAGE_NONE. */
uint32_t tag_first(const struct ns *ns, uint64_t tag);

/* All pages became unfindable, or the namespace is being freed: removes all tags. */
void tags_reset(struct ns *ns);

/* For the checker: returns a static sentence about an error, or NULL. */
const char *tags_check(const struct ns *ns);

#endif
