/*
 * Work that takes long and is done a *slice* at a time, so that the loop is never kept for as long
 * as all of it takes: pages that are dropped (drop.h), what an attachment leaves (leave.h) or has
 * announced (announce.h), sessions that are purged or truncated (session.h). Tenants take turns,
 * and of one tenant its chores do.
 *
 * A chore lies in what it works on. Whoever queues one sees to it that each state between two
 * slices is one that everything else can live with, and that a daemon that is killed there leaves
 * one that the next can take over. Loop thread only.
 */
#ifndef KVL_CORE_CHORE_H
#define KVL_CORE_CHORE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/list.h"

struct store;
struct tenant;

struct chore {
        struct list_link link; /* tenant.chores, while it is queued */
        /* Takes a slice of at most so many looks at pages, more or less. True: there is more.
         * False: it is over, and isn't touched any more: the function may have freed it. */
        bool (*work)(struct chore *c, uint64_t budget);
};

void chore_init(struct chore *c);

/* Behind the tenant's other chores; it isn't queued yet. Says store.on_work(). */
void chore_queue(struct chore *c, struct tenant *t);

/* It won't be worked at any more. Not from within its work(). Safe to repeat. */
void chore_remove(struct chore *c, struct tenant *t);

static inline bool chore_is_queued(const struct chore *c)
{
        return !list_is_empty(&c->link);
}

/* A slice (store.drop_slice_pages) of the chore whose turn it is, of the tenant whose turn it is.
 * NULL: there is none. Else the tenant; ask again, when there is time. */
struct tenant *chores_work(struct store *s);

/* Is anything left to do? */
bool chores_are_left(const struct store *s);

#endif
