/*
 * Changes of a page's state. The record is changed first, because the state that clients see is
 * rebuilt from it after a restart. Loop thread only.
 */
#ifndef KVL_CORE_PAGE_STATE_H
#define KVL_CORE_PAGE_STATE_H

#include "daemon/core/state/ns.h"

/* Changes the page's state. Every change uses this function, so that ns_tier.n_pages is right and
 * clients see the state. */
void ns_set_state(struct ns *ns, uint32_t page, enum page_state s);

/* Changes the state of a page that leaves FREE, and advances its generation. The fields that the
 * new state uses must be stored before. */
void ns_set_granted(struct ns *ns, uint32_t page, enum page_state s);

#endif
