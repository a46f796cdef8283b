/*
 * A chore is long work that is done in *slices*, so that the event loop isn't blocked for all of
 * it. Chores drop pages (drop.h), release a closed attachment (leave.h), withdraw announcements
 * (announce.h), and purge or truncate sessions (session.h). Tenants take turns, and so do the
 * chores of one tenant.
 *
 * A chore is embedded in the object that it works on. All other code must be able to handle the
 * state between two slices. A daemon that starts after a kill there must be able to recover it.
 * Loop thread only.
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
        /* Does a slice of about `budget` looks at pages. Returns true if there is more. False: the
         * chore is finished and isn't touched again, as the function may have freed it. */
        bool (*work)(struct chore *c, uint64_t budget);
};

void chore_init(struct chore *c);

static inline bool chore_is_queued(const struct chore *c)
{
        return !list_is_empty(&c->link);
}

#endif
