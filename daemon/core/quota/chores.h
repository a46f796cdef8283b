/*
 * Chores (ground/chore.h) have their turns: tenants take turns, and of one tenant its chores do.
 * Loop thread only.
 */
#ifndef KVL_CORE_CHORES_H
#define KVL_CORE_CHORES_H

#include <stdbool.h>

#include "daemon/core/ground/chore.h"

struct store;
struct tenant;

/* The chore, which isn't queued, has its turn after the tenant's other chores. Says
 * store.owner.on_work(). */
void chore_queue(struct chore *c, struct tenant *t);

/* The chore won't be worked at any more. Not to be called from within its work(). Safe to repeat.
 */
void chore_remove(struct chore *c, struct tenant *t);

/* Works at the chore whose turn it is, of the tenant whose turn it is, for a slice
 * (store.drop_slice_pages). Returns that tenant; NULL: there is no chore. Call again when there is
 * time. */
struct tenant *chores_work(struct store *s);

/* Is anything left to do? */
bool chores_are_left(const struct store *s);

#endif
