#include "daemon/core/state/store.h"

#include <string.h>

struct pool *store_next_pool(const struct store *s, const struct pool *pool)
{
        const struct list_link *next = pool ? pool->link.next : s->pools.next;

        if (next == &s->pools)
                next = s->lower_pools.next;
        return next == &s->lower_pools ? NULL : list_entry(next, struct pool, link);
}

struct pool *store_find_pool(struct store *s, const char *device)
{
        if (!device || !device[0])
                return list_first(&s->pools, struct pool, link);
        list_for_each (pool, &s->pools, struct pool, link)
                if (strcmp(pool->props->name, device) == 0)
                        return pool;
        return NULL;
}
