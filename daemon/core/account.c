#include "daemon/core/account.h"

#include <assert.h>
#include <stddef.h>

#include "proto/status.h"

bool account_fits(const struct account *a, uint64_t bytes)
{
        return a->charged_bytes <= a->limit_bytes && bytes <= a->limit_bytes - a->charged_bytes;
}

int charge_take(struct charge *c, struct account *tenant, struct account *pool, uint64_t bytes)
{
        assert(!c->tenant && !c->pool);

        if (!account_fits(tenant, bytes))
                return KVL_STATUS_QUOTA;
        if (!account_fits(pool, bytes))
                return KVL_STATUS_FULL;
        tenant->charged_bytes += bytes;
        pool->charged_bytes += bytes;
        *c = (struct charge){.tenant = tenant, .pool = pool, .bytes = bytes};
        return 0;
}

void charge_leave_tenant(struct charge *c)
{
        if (!c->tenant)
                return;
        assert(c->tenant->charged_bytes >= c->bytes);
        c->tenant->charged_bytes -= c->bytes;
        c->tenant = NULL;
}

void charge_drop(struct charge *c)
{
        charge_leave_tenant(c);
        if (!c->pool)
                return;
        assert(c->pool->charged_bytes >= c->bytes);
        c->pool->charged_bytes -= c->bytes;
        *c = (struct charge){0};
}
