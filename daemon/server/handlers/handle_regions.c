/* ADMIN_REGIONS, ADMIN_EVICTIONS. */
#include <errno.h>
#include <stdlib.h>

#include "base/clock.h"
#include "daemon/core/life/sizing.h"
#include "daemon/core/state/pool.h"
#include "daemon/core/state/tenant.h"
#include "daemon/core/memory/region.h"
#include "daemon/server/handlers/list-page.h"
#include "daemon/server/peers/server.h"
#include "daemon/server/peers/tier-name.h"
#include "proto/arena.h"

/* ---- regions --------------------------------------------------------------------------------- */

/* Ids of rows: those of a device's are its own and the tenant's, or 0 for its dynamic pool. */
#define REGION_ID_SHIFT 48

struct region {
        struct pool *pool;
        struct tenancy *tenancy;        /* NULL: the dynamic pool */
        const struct pool_share *share; /* NULL likewise */
};

/* Excess of all shares: bound memory of the dynamic pool, with lent memory. */
static uint64_t pool_borrowed(const struct pool *pool)
{
        uint64_t sum = 0;

        list_for_each (share, &pool->shares, struct pool_share, pool_link)
                sum += pool_share_borrowed(share);
        return sum;
}

/*
 * Bytes of idle reservations that others hold by permission. A set isn't tied to one lender, so
 * they are attributed to lenders in order. `of`: one lender; NULL: all.
 */
static uint64_t lent_bytes(const struct pool *pool, const struct pool_share *of)
{
        uint64_t left = region_missing(pool), sum = 0;

        list_for_each (share, &pool->shares, struct pool_share, pool_link) {
                bool lends = share->tenant->attrs.lend_idle_reserve;
                uint64_t lent = lends ? MIN(left, pool_share_idle(share)) : 0;

                left -= lent;
                if (!of || of == share)
                        sum += lent;
        }
        return sum;
}

static void fill_dynamic(struct figures_region *row, const struct pool *pool)
{
        row->size_bytes = row->target_bytes = region_dynamic_bytes(pool);
        row->excess_bytes = pool_borrowed(pool);
        row->used_bytes = MIN(row->excess_bytes, row->size_bytes);
        row->lent_bytes = lent_bytes(pool, NULL);
        row->missing_bytes = region_missing(pool) - row->lent_bytes;
        row->fair_bytes = row->demand_bytes = row->p99_bytes = FIGURE_NONE; /* it has no sizer */
}

/* Fills in the sizing of the tenant's reservation, the same in each of its rows. */
static void fill_sizing(struct figures_region *row, const struct tenant *t)
{
        const struct sizing *z = &t->sizing;

        row->sizer = config_sizer_names[z->attrs.mode];
        row->min_bytes = z->min_bytes;
        row->max_bytes = z->max_bytes;
        row->changes = z->n_changes;
        row->target_bytes = sizing_reserved(t);
        row->decision = sizer_why_name(z->last.why);
        if (z->decided_nsec == 0)
                return;
        row->why = sizing_why(t);
        row->target_bytes = z->last.target_bytes;
        row->p99_bytes = z->last.p99_bytes;
        row->decided_sec_ago = (t->store->now_nsec - z->decided_nsec) / NSEC_PER_SEC;
        if (z->sizer)
                row->demand_bytes = sizer_demand(z->sizer);
}

static void fill_share(struct figures_region *row, const struct region *region)
{
        const struct pool_share *share = region->share;
        uint64_t fair = region_fair(share);
        uint64_t missing = region_missing(region->pool) - lent_bytes(region->pool, NULL);

        row->tenant = region->tenancy->config.name;
        row->size_bytes = share->reserve_bytes;
        row->used_bytes = MIN(share->charged_bytes, share->reserve_bytes);
        row->excess_bytes = pool_share_borrowed(share);
        row->fair_bytes = MIN(fair, region->pool->account.limit_bytes);
        row->lent_bytes = lent_bytes(region->pool, share);
        if (!share->tenant->attrs.lend_idle_reserve)
                row->missing_bytes = MIN(share->unbacked_bytes, missing);
        row->taken_back_msec = (share->taken_back_nsec + NSEC_PER_MSEC - 1) / NSEC_PER_MSEC;
        fill_sizing(row, share->tenant);
}

static int make_region(struct request *rq, void *object, void *ret)
{
        const struct region *region = object;
        struct figures_region *row = ret;

        row->device = region->pool->props->name;
        row->tier = tier_name(region->pool->tier);
        row->of_device = pool_device_name(region->pool);
        if (region->share)
                fill_share(row, region);
        else
                fill_dynamic(row, region->pool);
        return 0;
}

int handle_ADMIN_REGIONS(struct request *rq)
{
        struct rows rows = rows_begin_of_tenant(rq);
        uint64_t id = 0;

        list_for_each (pool, &rq->server->store.pools, struct pool, link) {
                struct region region = {.pool = pool};

                id += UINT64_C(1) << REGION_ID_SHIFT;
                if (rows_want(&rows, ""))
                        rows_add_copy(&rows, id, &region, sizeof(region));
                list_for_each (share, &pool->shares, struct pool_share, pool_link) {
                        region.tenancy = share->tenant->server_data;
                        region.share = share;
                        if (rows_want(&rows, share->tenant->name))
                                rows_add_copy(
                                        &rows, id + region.tenancy->id, &region, sizeof(region));
                }
        }
        return rows_fill_page(&rows, make_region, &figures_table_region);
}

/* ---- evictions ------------------------------------------------------------------------------- */

/* Ids of rows: those of a tenant's are its own, and the number of the name. */
#define EVICTION_ID_SHIFT 8
_Static_assert(BLAME_MAX + 2 < 1 << EVICTION_ID_SHIFT, "all names of a victim have a number");

struct eviction {
        const struct tenancy *victim;
        const struct blame *blame;
};

static int make_eviction(struct request *rq, void *object, void *ret)
{
        const struct eviction *e = object;
        struct figures_eviction *row = ret;

        row->victim = e->victim->config.name;
        row->by = e->blame->by;
        row->pages = e->blame->pages;
        row->sets = e->blame->sets;
        return 0;
}

int handle_ADMIN_EVICTIONS(struct request *rq)
{
        struct rows rows = rows_begin_of_tenant(rq);

        list_for_each (t, &rq->server->tenancies.list, struct tenancy, link) {
                uint64_t id = t->id << EVICTION_ID_SHIFT;

                if (!rows_want(&rows, t->config.name))
                        continue;
                list_for_each (b, &t->tenant->blames, struct blame, link)
                        rows_add_copy(
                                &rows, ++id, &(struct eviction){t, b}, sizeof(struct eviction));
        }
        return rows_fill_page(&rows, make_eviction, &figures_table_eviction);
}
