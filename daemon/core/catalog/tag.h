/*
 * Tags: pages published from the same document, to be invalidated as a group when it changes. A
 * list of pages per tag and namespace, through page_extra.tag_prev/next. Loop thread only.
 */
#ifndef KVL_CORE_TAG_H
#define KVL_CORE_TAG_H

#include <stdint.h>

#include "daemon/core/objects/ns.h"

/* Makes room so that the next tag_add() can't fail. 0 or -ENOMEM. */
int tag_reserve(struct ns *ns);

/* A page that is findable gets `tag` (> 0), unless it has one. */
void tag_add(struct ns *ns, uint32_t page, uint64_t tag);

/* What the page is to have, before it is published, or 0: where it can't be found. In no list. */
void tag_store(struct ns *ns, uint32_t page, uint64_t tag);

/* The same as tag_add() for a page that has its tag since before it was published (tag_store()),
 * but is in no list. */
void tag_enter(struct ns *ns, uint32_t page);

/* The page can be found no more: it has no tag. */
void tag_remove(struct ns *ns, uint32_t page);

/* A page with a tag has another number, `to`. */
void tag_moved(struct ns *ns, uint32_t page, uint32_t to);

/* Some page with the tag; PAGE_NONE: there is none. */
uint32_t tag_first(const struct ns *ns, uint64_t tag);

/* Everything in the namespace is unfindable, or the namespace goes: no page has a tag. */
void tags_reset(struct ns *ns);

/* For the checker: what is wrong with the tags of the namespace, a static sentence, or NULL. */
const char *tags_check(const struct ns *ns);

#endif
