#include "daemon/server/services/tenant-room.h"

#include <string.h>

#include "base/macros.h"
#include "daemon/core/state/pool.h"
#include "daemon/core/state/store.h"
#include "daemon/core/state/tenant.h"
#include "daemon/core/memory/region.h"
#include "daemon/server/peers/server.h"
#include "daemon/server/peers/tenancy.h"
#include "daemon/server/config/tenant-check.h"

/* Returns true if the share can't hold an extent set, with the cause and its most bytes. */
static bool is_small(const struct tenancy *t, const struct pool_share *s, enum small_cause *ret,
        uint64_t *ret_most)
{
        const struct pool *pool = s->pool;
        uint64_t others = pool->reserved_bytes - s->reserve_bytes;

        *ret = SMALL_LIMIT;
        *ret_most = s->account->limit_bytes;
        if (*ret_most < pool->extent_bytes)
                return true;
        *ret = SMALL_RESERVE;
        *ret_most = s->reserve_bytes;
        if (pool_share_keeps_to_reserve(s))
                return *ret_most < pool->extent_bytes && !tenant_reserve_is_moved(&t->config);
        *ret = SMALL_OTHERS;
        /* Lent memory is only counted if it matters. */
        if (others + pool->extent_bytes <= pool->account.limit_bytes)
                return false;
        *ret_most = region_reach(s);
        return *ret_most < pool->extent_bytes;
}

int tenant_room_check(const struct tenancy *t, struct detail *d)
{
        const struct tenant_attrs *attrs = &t->tenant->attrs;
        const struct pool *nearest = NULL;
        enum small_cause cause = SMALL_LIMIT;
        uint64_t most = 0;

        list_for_each (s, &t->tenant->shares, struct pool_share, tenant_link) {
                enum small_cause why;
                uint64_t bytes;

                if (s->pool->tier != TIER_DEVICE ||
                        (attrs->placement == PLACE_DEVICE &&
                                strcmp(s->pool->props->name, attrs->device) != 0))
                        continue;
                if (!is_small(t, s, &why, &bytes))
                        return 0;
                if (!nearest || s->pool->extent_bytes < nearest->extent_bytes) {
                        nearest = s->pool;
                        cause = why;
                        most = bytes;
                }
        }
        /* The tenant's device doesn't exist: that was reported, and clients may name others. */
        if (!nearest)
                return 0;
        return tenant_refuse_small(
                &t->config, cause, most, nearest->props->name, nearest->extent_bytes, d);
}

uint32_t tenant_room_count_small(const struct server *s, struct detail *d)
{
        uint32_t n = 0;

        list_for_each (t, &s->tenancies.list, struct tenancy, link)
                n += tenant_room_check(t, n == 0 ? d : NULL) < 0;
        return n;
}

void tenant_room_each_small(
        const struct server *s, void (*say)(void *data, const char *sentence), void *data)
{
        struct detail d;

        list_for_each (t, &s->tenancies.list, struct tenancy, link)
                if (tenant_room_check(t, &d) < 0)
                        say(data, d.text);
}
