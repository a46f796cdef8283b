/* Recovers a namespace's pages: a part of recover.h. */
#ifndef KVL_CORE_RECOVER_PAGES_H
#define KVL_CORE_RECOVER_PAGES_H

#include <stdbool.h>

#include "daemon/core/life/recover.h"

/* The sets are bound. Rebuilds counts, lists of FREE pages, index segment, tree, policy, tags and
 * namespace set. Adds to *r. *ret_sessions: there were sessions. Returns 0 or -ENOMEM (free the
 * namespace). */
int recover_pages(struct ns *ns, struct recovery *r, bool *ret_sessions);

/* Clients are recovered: see store_recover_end(). Returns 0 or -ENOMEM (nothing changed). */
int recover_claims(struct ns *ns, struct recovery *r);

#endif
