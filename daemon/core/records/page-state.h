/*
 * How the state of a page changes. The page's own record is changed first, because what clients see
 * is made again from it after a restart. Loop thread only.
 */
#ifndef KVL_CORE_PAGE_STATE_H
#define KVL_CORE_PAGE_STATE_H

#include "daemon/core/objects/ns.h"

/* The page is in another state. Every change goes through here, so that the counts of the namespace
 * (ns_tier.n_pages) are right and clients see it. */
void ns_set_state(struct ns *ns, uint32_t page, enum page_state s);

/* The same for a page that leaves FREE, as its next generation. What the new state gives a meaning
 * to was stored before. */
void ns_set_granted(struct ns *ns, uint32_t page, enum page_state s);

#endif
