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

static inline bool chore_is_queued(const struct chore *c)
{
        return !list_is_empty(&c->link);
}

#endif
