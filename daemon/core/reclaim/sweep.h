/*
 * Frees pages that became unfindable all at once (ns_invalidate()), some at a time. Loop thread
 * only.
 */
#ifndef KVL_CORE_SWEEP_H
#define KVL_CORE_SWEEP_H

#include "daemon/core/state/ns.h"

/* Looks at up to `budget` page records of the namespace, and frees or detaches the stale ones.
 * Returns true while there are more. */
bool ns_sweep(struct ns *ns, uint32_t budget);

#endif
