#include "daemon/core/reclaim/take-back.h"

#include <errno.h>

#include "base/clock.h"
#include "base/parse.h"
#include "daemon/core/memory/idle-sets.h"
#include "daemon/core/state/pool.h"
#include "daemon/core/state/store.h"
#include "daemon/core/state/tenant.h"
#include "daemon/core/memory/region.h"
#include "daemon/core/reclaim/recall.h"
#include "daemon/core/reclaim/reclaim.h"

/* A soft recall may take so long before memory of others is taken instead. Not tuned. */
#define PATIENCE_NSEC NSEC_PER_SEC

static void skip_none(const struct pool *pool)
{
        list_for_each (s, &pool->shares, struct pool_share, pool_link)
                s->is_skipped = false;
}

/* Returns the bytes of recalls that may end soon. */
static uint64_t coming_bytes(const struct pool *pool, const struct store *store)
{
        uint64_t bytes = 0;

        list_for_each (set, &store->recalls.sets, struct extent_set, recall.link) {
                const struct set_recall *r = &set->recall;

                if (set->pool == pool && !r->quarantined &&
                        (r->kind == RECALL_FORCED || r->state == RECALL_IDLE ||
                                store->now_nsec - r->begun_nsec < PATIENCE_NSEC))
                        bytes += set->charge.bytes;
        }
        return bytes;
}

/* Recalls one set. Returns false if the victim has none. */
static bool recall_from(struct pool_share *victim, enum recall_kind kind, struct tenant *by)
{
        const struct recall_request rq = {
                .tenant = victim->tenant,
                .pool = victim->pool,
                .bytes = 1,
                .kind = kind,
                .by = by,
        };

        return recall_ask(&rq) > 0;
}

static void evict_for(struct pool_share *s, const struct ns *spare, uint64_t bytes)
{
        bool far = !region_deserves(s, bytes);

        skip_none(s->pool);
        while (!region_has_room(s, bytes)) {
                struct pool_share *victim = region_furthest_over(s->pool, true, far);

                if (!victim || victim == s)
                        return;
                if (!reclaim_set_of_share(victim, spare, s->tenant))
                        victim->is_skipped = true;
        }
}

static void recall_for(struct pool_share *s)
{
        struct store *store = s->tenant->store;
        struct pool *pool = s->pool;
        uint64_t coming = coming_bytes(pool, store);
        bool far = !region_any_deserves(pool);

        skip_none(pool);
        while (coming < region_wanted(pool, far)) {
                struct pool_share *victim = region_furthest_over(pool, true, far);

                if (!victim)
                        return;
                if (!pool_share_is_safe(victim) || !recall_from(victim, RECALL_SOFT, s->tenant))
                        victim->is_skipped = true;
                else
                        coming = coming_bytes(pool, store);
        }
}

/* Gives overdue soft recalls a deadline. */
static void press_soft_recalls(struct pool *pool, struct store *store)
{
        list_for_each (set, &store->recalls.sets, struct extent_set, recall.link)
                if (set->pool == pool && set->recall.kind != RECALL_FORCED &&
                        set->recall.state == RECALL_ASKED &&
                        store->now_nsec - set->recall.begun_nsec >= PATIENCE_NSEC)
                        recall_press(set);
}

/* Takes memory back for reservations. by: the tenant whose lease caused it, in the namespace
 * `spare`; NULL: no lease. */
static void take_back(struct pool *pool, const struct ns *spare, struct tenant *by)
{
        struct pool_share *victim = list_first(&pool->shares, struct pool_share, pool_link);
        struct store *store = victim ? victim->tenant->store : NULL;

        if (!store || region_due(pool) == 0)
                return;
        skip_none(pool);
        while (region_due(pool) > 0 && (victim = region_furthest_over(pool, false, false)))
                if (!reclaim_set_of_share(victim, spare, by))
                        victim->is_skipped = true;
        if (region_due(pool) == 0)
                return;
        press_soft_recalls(pool, store);
        skip_none(pool);
        while (coming_bytes(pool, store) < region_due(pool) &&
                (victim = region_furthest_over(pool, true, false)))
                if (!recall_from(
                            victim, pool_share_is_safe(victim) ? RECALL_SOFT : RECALL_FORCED, by))
                        victim->is_skipped = true;
}

void region_work(struct pool *pool)
{
        region_back(pool);
        if (region_missing(pool) > 0)
                take_back(pool, NULL, NULL);
}

bool region_make_room(
        struct pool_share *s, const struct ns *spare, uint64_t bytes, const struct claim *claim)
{
        if (region_is_reserved(s, bytes)) {
                take_back(s->pool, spare, s->tenant);
                if (!region_has_room(s, bytes) && s->owed_since_nsec == 0)
                        s->owed_since_nsec = s->tenant->store->now_nsec;
        } else if (!pool_share_keeps_to_reserve(s) &&
                   (region_deserves(s, bytes) || region_may_have(s, bytes))) {
                evict_for(s, spare, bytes);
                if (!region_has_room(s, bytes))
                        recall_for(s);
        }
        idle_sets_drain_except(s->tenant->store, spare); /* recalled sets without pages in use */
        return region_admits(s, bytes, claim) == LEASE_REASON_NONE;
}

static int refuse_reserve(
        const struct pool_share *s, uint64_t bytes, uint64_t left, struct detail *d)
{
        char wanted[FORMAT_BYTES_MAX], rest[FORMAT_BYTES_MAX], budget[FORMAT_BYTES_MAX];
        char holders[REGION_HOLDERS_MAX];

        return detail_set(d, -ENOSPC,
                "%s can't be reserved for tenant %s on device %s: of its budget of %s %s is left, "
                "the rest is reserved for %s; reserve less, lower one of these with: kvleasectl "
                "tenants set NAME reserve=..., or give the device a larger budget",
                format_bytes(bytes, wanted), s->tenant->name, s->pool->props->name,
                format_bytes(s->pool->account.limit_bytes, budget), format_bytes(left, rest),
                region_holders(s->tenant, s->pool, holders, sizeof(holders)));
}

int region_reserve(struct pool_share *s, uint64_t bytes, struct detail *d)
{
        struct pool *pool = s->pool;
        uint64_t others = pool->reserved_bytes - s->reserve_bytes;
        uint64_t left = pool->account.limit_bytes - others, over = bytes % pool->extent_bytes;
        uint64_t idle;

        if (bytes > left || (over > 0 && pool->extent_bytes - over > left - bytes))
                return refuse_reserve(s, bytes, left, d);
        bytes += over > 0 ? pool->extent_bytes - over : 0;
        idle = pool_share_idle(s);
        pool->idle_reserve_bytes -= idle;
        pool->reserved_bytes = others + bytes;
        s->reserve_bytes = bytes;
        pool->idle_reserve_bytes += pool_share_idle(s);
        if (pool_share_idle(s) > idle)
                s->unbacked_bytes += pool_share_idle(s) - idle;
        region_back(pool);
        region_changed(pool);
        region_work(pool);
        return 0;
}
