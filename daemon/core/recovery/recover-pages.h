/* The part of recovery that goes through a namespace's pages. See recover.h. */
#ifndef KVL_CORE_RECOVER_PAGES_H
#define KVL_CORE_RECOVER_PAGES_H

#include <stdbool.h>

#include "daemon/core/recovery/recover.h"

/* The sets are bound, nothing else is there: counts, lists of FREE pages, index segment, tree,
 * policy, tags, namespace set. Adds to *r. *ret_sessions: there were some. 0 or -ENOMEM (the
 * namespace is to be freed). */
int recover_pages(struct ns *ns, struct recovery *r, bool *ret_sessions);

/* Clients are there: see store_recover_end(). 0 or -ENOMEM: nothing was done. */
int recover_claims(struct ns *ns, struct recovery *r);

#endif
