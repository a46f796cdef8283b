/*
 * Runs chores (state/chore.h): tenants take turns, and so do the chores of one tenant. Loop thread
 * only.
 */
#ifndef KVL_CORE_CHORES_H
#define KVL_CORE_CHORES_H

#include <stdbool.h>

#include "daemon/core/state/chore.h"

struct store;
struct tenant;

/* Queues a chore behind the tenant's other chores and calls store.owner.on_work(). It must not be
 * queued already. */
void chore_queue(struct chore *c, struct tenant *t);

/* Takes a chore out of the queue. Must not be called from its work(). Idempotent. */
void chore_remove(struct chore *c, struct tenant *t);

/* Runs one slice (store.drop_slice_pages) of the next chore of the next tenant. Returns that
 * tenant; NULL: there is no chore. Call it again when there is time. */
struct tenant *chores_work(struct store *s);

/* Is any chore queued? */
bool chores_are_left(const struct store *s);

#endif
