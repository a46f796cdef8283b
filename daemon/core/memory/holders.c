/* Describes the owners of reservations (region.h). */
#include <stdio.h>

#include "base/parse.h"
#include "daemon/core/state/pool.h"
#include "daemon/core/state/store.h"
#include "daemon/core/state/tenant.h"
#include "daemon/core/memory/region.h"

static uint64_t reserved_for(const struct tenant *t, const struct pool *pool)
{
        uint64_t bytes = 0;

        list_for_each (s, &t->shares, struct pool_share, tenant_link)
                bytes += !pool || s->pool == pool ? s->reserve_bytes : 0;
        return bytes;
}

/* Returns the holder after `last` in order of size; equal ones are in the store's order. */
static const struct tenant *next_holder(
        const struct tenant *but, const struct pool *pool, const struct tenant *last)
{
        uint64_t most = last ? reserved_for(last, pool) : UINT64_MAX;
        const struct tenant *found = NULL;
        bool is_after = !last;

        list_for_each (t, &but->store->tenants, struct tenant, link) {
                uint64_t bytes = reserved_for(t, pool);

                if (t != but && t != last && bytes > 0 &&
                        (bytes < most || (bytes == most && is_after)) &&
                        (!found || bytes > reserved_for(found, pool)))
                        found = t;
                is_after |= t == last;
        }
        return found;
}

char *region_holders(const struct tenant *but, const struct pool *pool, char *buf, size_t size)
{
        const struct tenant *t = next_holder(but, pool, NULL);
        char held[FORMAT_BYTES_MAX];
        size_t n = 0, n_more = 0;

        snprintf(buf, size, "no tenant");
        for (unsigned i = 0; t && i < 3 && n < size; i++) {
                n += (size_t)snprintf(buf + n, size - n, "%s%s (%s)", i > 0 ? ", " : "", t->name,
                        format_bytes(reserved_for(t, pool), held));
                t = next_holder(but, pool, t);
        }
        for (; t; t = next_holder(but, pool, t))
                n_more++;
        if (n_more > 0 && n < size)
                snprintf(buf + n, size - n, " and %zu more", n_more);
        return buf;
}
