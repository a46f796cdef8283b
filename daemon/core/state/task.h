/*
 * A background task is long work that is done in *slices*, so that the event loop isn't blocked for
 * all of it. Tasks drop pages (drop.h), release a closed attachment (leave.h), withdraw
 * announcements (announce.h), and purge or truncate sessions (session.h). Tenants take turns, and
 * so do the tasks of one tenant.
 *
 * A task is embedded in the object that it works on. All other code must be able to handle the
 * state between two slices. A daemon that starts after a kill there must be able to recover it.
 * Loop thread only.
 */
#ifndef KVL_CORE_TASK_H
#define KVL_CORE_TASK_H

#include <stdbool.h>
#include <stdint.h>

#include "base/list.h"

struct store;
struct tenant;

struct task {
        struct list_link link; /* tenant.tasks, while it is queued */
        /* Does a slice of about `budget` looks at pages. Returns true if there is more. False: the
         * task is finished and isn't touched again, as the function may have freed it. */
        bool (*work)(struct task *c, uint64_t budget);
};

static inline void task_init(struct task *c)
{
        *c = (struct task){0};
        list_init(&c->link);
}

static inline bool task_is_queued(const struct task *c)
{
        return !list_is_empty(&c->link);
}

#endif
