#include "daemon/core/memory/account.h"

#include <assert.h>
#include <stddef.h>

#include "daemon/core/state/pool.h"
#include "daemon/core/memory/region.h"
#include "proto/status.h"

bool account_fits(const struct account *a, uint64_t bytes)
{
        return a->charged_bytes <= a->limit_bytes && bytes <= a->limit_bytes - a->charged_bytes;
}

/* The idle part of the reservation changes with the charge. */
static void charge_share(struct pool_share *s, uint64_t charged_bytes)
{
        s->pool->idle_reserve_bytes -= pool_share_idle(s);
        s->charged_bytes = charged_bytes;
        s->pool->idle_reserve_bytes += pool_share_idle(s);
        region_changed(s->pool);
}

void charge_adopt(struct charge *c, struct pool_share *share, uint64_t bytes)
{
        struct account *tenant = share->account, *pool = &share->pool->account;

        assert(!c->tenant && !c->pool);

        tenant->charged_bytes += bytes;
        pool->charged_bytes += bytes;
        charge_share(share, share->charged_bytes + bytes);
        *c = (struct charge){.tenant = tenant, .pool = pool, .share = share, .bytes = bytes};
}

int charge_take(struct charge *c, struct pool_share *share, uint64_t bytes)
{
        if (!account_fits(share->account, bytes))
                return KVL_STATUS_QUOTA;
        if (!account_fits(&share->pool->account, bytes))
                return KVL_STATUS_FULL;
        charge_adopt(c, share, bytes);
        return 0;
}

void charge_leave_tenant(struct charge *c)
{
        if (!c->tenant)
                return;
        assert(c->tenant->charged_bytes >= c->bytes);
        c->tenant->charged_bytes -= c->bytes;
        charge_share(c->share, c->share->charged_bytes - c->bytes);
        c->tenant = NULL;
        c->share = NULL;
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
