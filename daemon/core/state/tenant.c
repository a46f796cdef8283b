#include "daemon/core/state/tenant.h"

#include <string.h>

#include "daemon/core/state/store.h"

struct tenant *tenant_find(struct store *s, const char *name)
{
        list_for_each (t, &s->tenants, struct tenant, link)
                if (strcmp(t->name, name) == 0)
                        return t;
        return NULL;
}

uint64_t tenant_limit(const struct tenant_attrs *attrs, enum tier_kind tier)
{
        const uint64_t limits[TIER_COUNT] = {
                [TIER_DEVICE] = attrs->limit_bytes,
                [TIER_HOST] = attrs->host_limit_bytes,
                [TIER_DISK] = attrs->disk_limit_bytes,
        };

        return limits[tier];
}

struct pool_share *pool_share_find(const struct tenant *t, const struct pool *pool)
{
        list_for_each (s, &t->shares, struct pool_share, tenant_link)
                if (s->pool == pool)
                        return s;
        return NULL;
}
