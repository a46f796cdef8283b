#include "daemon/core/memory/region.h"

#include <assert.h>
#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/macros.h"
#include "base/parse.h"
#include "daemon/core/memory/wait.h"
#include "daemon/core/state/group.h"
#include "daemon/core/state/ns.h"
#include "daemon/core/state/pool.h"
#include "daemon/core/state/store.h"
#include "daemon/core/state/tenant.h"
#include "policy/share.h"
#include "proto/status.h"

/* Longer than the time between two attempts of a client, shorter than people wait. Not tuned. */
#define WANTS_NSEC NSEC_PER_SEC

const char *lease_reason_name(enum lease_reason r)
{
        static const char *const names[] = {"none", "quota", "reservation full", "pool full",
                "deadline passed", "degraded by policy", "draining", "device", "no run"};

        return names[r];
}

int lease_reason_status(enum lease_reason r)
{
        switch (r) {
        case LEASE_REASON_QUOTA:
                return KVL_STATUS_QUOTA;
        case LEASE_REASON_RESERVATION_FULL:
                return KVL_STATUS_RESERVATION;
        default:
                return KVL_STATUS_FULL;
        }
}

/* ---- shares --------------------------------------------------------------------------------- */

static void free_scratch(struct fairness *r)
{
        free(r->shares);
        free(r->fair);
        free(r->order);
        *r = (struct fairness){0};
}

static int grow_scratch(struct fairness *r, size_t n)
{
        struct share_tenant *shares = calloc(n, sizeof(*shares));
        uint64_t *fair = calloc(n, sizeof(*fair));
        uint32_t *order = calloc(n, sizeof(*order));

        if (!shares || !fair || !order) {
                free(shares);
                free(fair);
                free(order);
                return -ENOMEM;
        }
        free_scratch(r);
        *r = (struct fairness){.shares = shares, .fair = fair, .order = order, .n_shares = n};
        return 0;
}

int pool_share_new(struct tenant *t, struct pool *pool)
{
        struct pool_share *s = calloc(1, sizeof(*s));
        size_t n = pool->fairness.n_shares;

        if (!s || grow_scratch(&pool->fairness, n + 1) < 0) {
                free(s);
                return -ENOMEM;
        }
        s->tenant = t;
        s->pool = pool;
        s->account = &t->accounts[pool->tier];
        list_append(&t->shares, &s->tenant_link);
        list_append(&pool->shares, &s->pool_link);
        return 0;
}

void pool_share_free(struct pool_share *s)
{
        struct pool *pool = s->pool;

        assert(s->charged_bytes == 0);

        pool->reserved_bytes -= s->reserve_bytes;
        pool->idle_reserve_bytes -= s->reserve_bytes;
        list_remove(&s->tenant_link);
        list_remove(&s->pool_link);
        free(s);
        region_changed(pool);
        if (--pool->fairness.n_shares == 0)
                free_scratch(&pool->fairness);
}

bool pool_share_is_safe(const struct pool_share *s)
{
        list_for_each (ns, &s->tenant->namespaces, struct ns, link) {
                if (!ns_tier_on(ns, s->pool))
                        continue;
                list_for_each (a, &ns->clients.attachments, struct attach, ns_link)
                        if (!a->member->metadata_only && !a->member->safepoints)
                                return false;
        }
        return true;
}

static uint64_t now_of(const struct pool_share *s)
{
        return s->tenant->store->now_nsec;
}

static bool wants(const struct pool_share *s)
{
        return s->wants_until_nsec > now_of(s);
}

/* Lower tiers have no reservations. */
bool pool_share_keeps_to_reserve(const struct pool_share *s)
{
        const struct tenant_attrs *attrs = &s->tenant->attrs;

        return s->pool->tier == TIER_DEVICE && attrs->class == TENANT_PINNED &&
               attrs->burst == BURST_NONE;
}

/* Returns the borrowed bytes with `bytes` more. */
static uint64_t borrowed_with(const struct pool_share *s, uint64_t bytes)
{
        uint64_t charged = s->charged_bytes + bytes;

        return charged > s->reserve_bytes ? charged - s->reserve_bytes : 0;
}

/* Returns what the tenant's limit still allows, in whole sets; other tenants get the rest. */
static uint64_t left_of_limit(const struct pool_share *s)
{
        const struct account *a = s->account;
        uint64_t left = a->limit_bytes - MIN(a->charged_bytes, a->limit_bytes);

        return left - left % s->wanted_set_bytes;
}

static uint64_t demand(const struct pool_share *s)
{
        if (!wants(s) || pool_share_keeps_to_reserve(s))
                return pool_share_borrowed(s);
        return borrowed_with(s, left_of_limit(s));
}

bool region_is_reserved(const struct pool_share *s, uint64_t bytes)
{
        return s->charged_bytes <= s->reserve_bytes && bytes <= s->reserve_bytes - s->charged_bytes;
}

/* ---- budgets --------------------------------------------------------------------------------- */

uint64_t region_dynamic_bytes(const struct pool *pool)
{
        return pool->account.limit_bytes - MIN(pool->reserved_bytes, pool->account.limit_bytes);
}

uint64_t region_missing(const struct pool *pool)
{
        uint64_t sum = pool->account.charged_bytes + pool->idle_reserve_bytes;

        return sum > pool->account.limit_bytes ? sum - pool->account.limit_bytes : 0;
}

/* Returns the part of the share's idle reserve that others may use: all but what it wants itself.
 */
static uint64_t lendable(const struct pool_share *s)
{
        uint64_t idle = pool_share_idle(s);

        if (!s->tenant->attrs.lend_idle_reserve)
                return 0;
        return wants(s) ? idle - MIN(idle, s->wanted_bytes) : idle;
}

static uint64_t all_lendable(const struct pool *pool)
{
        uint64_t bytes = 0;

        if (pool->idle_reserve_bytes == 0)
                return 0;
        list_for_each (s, &pool->shares, struct pool_share, pool_link)
                bytes += lendable(s);
        return bytes;
}

/* Returns the missing bytes that aren't lent. */
uint64_t region_due(const struct pool *pool)
{
        uint64_t missing = region_missing(pool), lent = missing > 0 ? all_lendable(pool) : 0;

        return missing > lent ? missing - lent : 0;
}

/* Returns by how much lending may break the rule if the share has `bytes` more. Only clients that
 * use safe points may hold lent memory. */
static uint64_t borrowable(const struct pool_share *s, uint64_t bytes)
{
        uint64_t lent = all_lendable(s->pool) - lendable(s), safe = 0;

        if (lent == 0)
                return 0;
        list_for_each (o, &s->pool->shares, struct pool_share, pool_link) {
                uint64_t borrowed = borrowed_with(o, o == s ? bytes : 0);

                if (borrowed > 0 && pool_share_is_safe(o))
                        safe += borrowed;
        }
        return MIN(lent, safe);
}

/* Returns the part of the share's idle reserve that is free for it in any case. */
static uint64_t backed(const struct pool_share *s)
{
        return s->lends ? 0 : pool_share_idle(s) - MIN(pool_share_idle(s), s->unbacked_bytes);
}

static uint64_t all_backed(const struct pool *pool)
{
        uint64_t bytes = 0;

        list_for_each (s, &pool->shares, struct pool_share, pool_link)
                bytes += backed(s);
        return bytes;
}

/* Backs reservations with free memory. A share that stops lending has no backed reserve at first.
 */
void region_back(struct pool *pool)
{
        uint64_t taken, there;

        list_for_each (s, &pool->shares, struct pool_share, pool_link) {
                if (s->lends && !s->tenant->attrs.lend_idle_reserve)
                        s->unbacked_bytes = pool_share_idle(s);
                s->lends = s->tenant->attrs.lend_idle_reserve;
                s->unbacked_bytes = MIN(s->unbacked_bytes, pool_share_idle(s));
        }
        taken = pool->account.charged_bytes + all_backed(pool);
        there = pool->account.limit_bytes - MIN(taken, pool->account.limit_bytes);
        list_for_each (s, &pool->shares, struct pool_share, pool_link) {
                uint64_t bytes = s->lends ? 0 : MIN(there, s->unbacked_bytes);

                s->unbacked_bytes -= bytes;
                there -= bytes;
        }
}

/* Is memory for the share's reservation free, without other shares' idle reserves? */
static bool is_there(const struct pool_share *s, uint64_t bytes)
{
        if (region_missing(s->pool) == 0)
                return true;
        region_back(s->pool);
        return s->pool->account.charged_bytes + bytes + all_backed(s->pool) - backed(s) <=
               s->pool->account.limit_bytes;
}

/* Would the rule hold if the share were charged `bytes` more? */
bool region_has_room(const struct pool_share *s, uint64_t bytes)
{
        const struct pool *pool = s->pool;
        uint64_t limit = pool->account.limit_bytes, sum;

        if (!account_fits(&pool->account, bytes))
                return false;
        if (region_is_reserved(s, bytes))
                return is_there(s, bytes);
        sum = pool->account.charged_bytes + bytes + pool->idle_reserve_bytes -
              MIN(pool_share_idle(s), bytes);
        return sum <= limit || sum - limit <= borrowable(s, bytes);
}

/* Returns the most bytes of the pool that the share may have, ignoring the tenant's limit. */
static uint64_t most_of_pool(const struct pool_share *s)
{
        const struct pool *pool = s->pool;
        uint64_t others = pool->reserved_bytes - s->reserve_bytes, lent = 0;

        if (pool_share_keeps_to_reserve(s))
                return s->reserve_bytes;
        list_for_each (o, &pool->shares, struct pool_share, pool_link)
                lent += o != s && o->tenant->attrs.lend_idle_reserve ? o->reserve_bytes : 0;
        return pool->account.limit_bytes - MIN(others - lent, pool->account.limit_bytes);
}

uint64_t region_reach(const struct pool_share *s)
{
        return MIN(s->account->limit_bytes, most_of_pool(s));
}

uint64_t region_free(const struct pool_share *s)
{
        const struct account *limit = s->account, *budget = &s->pool->account;
        uint64_t left = budget->limit_bytes - MIN(budget->charged_bytes, budget->limit_bytes);
        uint64_t reserved = MIN(s->pool->idle_reserve_bytes - pool_share_idle(s), left);
        uint64_t most =
                pool_share_keeps_to_reserve(s) ? MIN(left, pool_share_idle(s)) : left - reserved;
        uint64_t charged = MIN(limit->charged_bytes, limit->limit_bytes);

        return MIN(most, limit->limit_bytes - charged);
}

/* ---- fair shares ---------------------------------------------------------------------------- */

void region_changed(struct pool *pool)
{
        pool->fairness.is_fresh = false;
}

/* Returns the bytes to share: without sets that have no tenant. */
static uint64_t capacity(const struct pool *pool)
{
        uint64_t bytes = region_dynamic_bytes(pool) + all_lendable(pool);
        uint64_t orphaned = pool->account.charged_bytes;

        list_for_each (s, &pool->shares, struct pool_share, pool_link)
                orphaned -= s->charged_bytes;
        return bytes - MIN(bytes, orphaned);
}

/* Computes fairness.fair, in order of pool.shares; `asking` demands `borrowed` bytes at least. */
static void work_out(const struct pool *pool, const struct pool_share *asking, uint64_t borrowed)
{
        const struct fairness *r = &pool->fairness;
        size_t i = 0;

        list_for_each (s, &pool->shares, struct pool_share, pool_link)
                r->shares[i++] = (struct share_tenant){
                        .held_bytes = pool_share_borrowed(s),
                        .demand_bytes = s == asking ? MAX(demand(s), borrowed) : demand(s),
                        .weight = s->tenant->attrs.weight,
                        .priority = s->tenant->attrs.priority,
                };
        share_fair(r->shares, i, capacity(pool), r->fair, r->order);
}

static void refresh(struct pool *pool)
{
        struct fairness *r = &pool->fairness;
        size_t i = 0;
        struct pool_share *any = list_first(&pool->shares, struct pool_share, pool_link);
        uint64_t now_nsec = now_of(any);

        if (r->is_fresh && now_nsec < r->fresh_until_nsec)
                return;
        work_out(pool, NULL, 0);
        r->fresh_until_nsec = UINT64_MAX;
        list_for_each (s, &pool->shares, struct pool_share, pool_link) {
                s->fair_bytes = r->fair[i++];
                if (wants(s))
                        r->fresh_until_nsec = MIN(r->fresh_until_nsec, s->wants_until_nsec);
        }
        r->is_fresh = true;
}

uint64_t region_fair(const struct pool_share *s)
{
        refresh(s->pool);
        return s->fair_bytes;
}

/* Returns the share's fair size if it asked for so much. */
static uint64_t fair_for(const struct pool_share *s, uint64_t borrowed)
{
        size_t i = 0;

        if (borrowed <= demand(s))
                return region_fair(s);
        work_out(s->pool, s, borrowed);
        list_for_each (o, &s->pool->shares, struct pool_share, pool_link) {
                if (o == s)
                        break;
                i++;
        }
        return s->pool->fairness.fair[i];
}

bool region_deserves(const struct pool_share *s, uint64_t bytes)
{
        uint64_t borrowed = borrowed_with(s, bytes);

        return borrowed <= region_fair(s) || borrowed <= fair_for(s, borrowed);
}

static uint64_t set_of(const struct pool_share *s)
{
        return s->wanted_set_bytes > 0 ? s->wanted_set_bytes : s->pool->extent_bytes;
}

static bool deserves_what_it_wants(const struct pool_share *s)
{
        return wants(s) && !pool_share_keeps_to_reserve(s) &&
               !region_is_reserved(s, s->wanted_set_bytes) &&
               account_fits(s->account, s->wanted_set_bytes) &&
               borrowed_with(s, s->wanted_set_bytes) <= region_fair(s);
}

bool region_any_deserves(const struct pool *pool)
{
        list_for_each (s, &pool->shares, struct pool_share, pool_link)
                if (deserves_what_it_wants(s))
                        return true;
        return false;
}

/* A share below its fair size may take a set from one that exceeds its own by a set or more. This
 * holds even if none is entitled to a whole set. */
bool region_may_have(const struct pool_share *s, uint64_t bytes)
{
        if (region_any_deserves(s->pool) || borrowed_with(s, bytes) >= region_fair(s) + set_of(s))
                return false;
        list_for_each (o, &s->pool->shares, struct pool_share, pool_link)
                if (o != s && pool_share_borrowed(o) >= region_fair(o) + set_of(o))
                        return true;
        return false;
}

void region_note_want(struct pool_share *s, uint64_t set_bytes, uint64_t bytes, uint64_t now_nsec)
{
        if (!wants(s))
                s->owed_since_nsec = 0;
        if (!wants(s) || s->wanted_bytes != bytes)
                region_changed(s->pool);
        s->wants_until_nsec = now_nsec + WANTS_NSEC;
        s->wanted_set_bytes = set_bytes;
        s->wanted_bytes = bytes;
}

/* ---- admission ------------------------------------------------------------------------------ */

/* No share exceeds its fair size while another that wants memory lacks a set of its own share. A
 * share never exceeds it by a set or more while another could have that set. */
static bool is_fair(const struct pool_share *s, uint64_t bytes)
{
        uint64_t borrowed = borrowed_with(s, bytes);
        bool any = false;

        list_for_each (o, &s->pool->shares, struct pool_share, pool_link)
                any |= o != s && demand(o) > pool_share_borrowed(o);
        if (!any || region_deserves(s, bytes))
                return true;
        if (borrowed >= fair_for(s, borrowed) + MIN(bytes, set_of(s)))
                return false;
        list_for_each (o, &s->pool->shares, struct pool_share, pool_link)
                if (o != s && deserves_what_it_wants(o))
                        return false;
        return true;
}

/* Does no waiting lease come before this claim (wait.h)? Leases wait for devices only. A claim
 * without a lease comes after all leases that are entitled to memory, or after all leases. */
static bool is_in_order(const struct pool_share *s, uint64_t bytes, const struct claim *claim)
{
        const struct store *store = s->tenant->store;
        bool is_deserved;

        if (list_is_empty(&store->waits.leases) || s->pool->tier != TIER_DEVICE)
                return true;
        if (claim)
                return wait_is_next(claim->lease);
        is_deserved = region_deserves(s, bytes);
        list_for_each (w, &store->waits.leases, struct wait, link) {
                const struct attach *a = container_of(w, struct attach, wait);

                if (w->reason == LEASE_REASON_POOL_FULL && a->ns->device.pool == s->pool &&
                        (!is_deserved || w->deserves))
                        return false;
        }
        return true;
}

static enum lease_reason nearest_limit(const struct pool_share *s, uint64_t most)
{
        const struct account *a = s->account;
        uint64_t elsewhere = a->charged_bytes - s->charged_bytes;
        uint64_t limit = a->limit_bytes - MIN(elsewhere, a->limit_bytes);

        if (limit < most || (limit == most && most < s->pool->account.limit_bytes))
                return LEASE_REASON_QUOTA;
        return pool_share_keeps_to_reserve(s) ? LEASE_REASON_RESERVATION_FULL
                                              : LEASE_REASON_POOL_FULL;
}

enum lease_reason region_admits(
        const struct pool_share *s, uint64_t bytes, const struct claim *claim)
{
        if (!account_fits(s->account, bytes))
                return nearest_limit(s, most_of_pool(s));
        if (region_is_reserved(s, bytes))
                return region_has_room(s, bytes) ? LEASE_REASON_NONE : LEASE_REASON_POOL_FULL;
        if (pool_share_keeps_to_reserve(s))
                return LEASE_REASON_RESERVATION_FULL;
        if (!region_has_room(s, bytes))
                return LEASE_REASON_POOL_FULL;
        if (claim && bytes <= claim->given_bytes)
                return LEASE_REASON_NONE;
        if (is_fair(s, bytes) && is_in_order(s, bytes, claim))
                return LEASE_REASON_NONE;
        return LEASE_REASON_POOL_FULL;
}

struct admission region_admit(
        const struct pool_share *s, uint64_t set_bytes, uint64_t n_sets, const struct claim *claim)
{
        uint64_t most = most_of_pool(s), high;
        struct admission a = {
                .reason = n_sets > 0 ? region_admits(s, n_sets * set_bytes, claim)
                                     : LEASE_REASON_NONE,
                .nearest = nearest_limit(s, most),
                .reach_bytes = MIN(s->account->limit_bytes, most),
                .is_reserved = region_is_reserved(s, set_bytes),
                .keeps_to_reserve = pool_share_keeps_to_reserve(s),
        };

        a.n_sets = a.reason == LEASE_REASON_NONE ? n_sets : 0;
        for (high = n_sets - (a.n_sets < n_sets); a.n_sets < high;) {
                uint64_t middle = high - (high - a.n_sets) / 2;

                if (region_admits(s, middle * set_bytes, claim) == LEASE_REASON_NONE)
                        a.n_sets = middle;
                else
                        high = middle - 1;
        }
        return a;
}

void region_note_charge(struct pool_share *s, uint64_t bytes, struct claim *claim)
{
        uint64_t waited_nsec = now_of(s) - s->owed_since_nsec;

        if (claim)
                claim->given_bytes -= MIN(claim->given_bytes, bytes);
        if (s->owed_since_nsec > 0 && s->charged_bytes <= s->reserve_bytes) {
                s->taken_back_nsec = MAX(s->taken_back_nsec, waited_nsec);
                s->owed_since_nsec = 0;
        }
}

/* ---- reclaiming from shares ------------------------------------------------------------------ */

struct pool_share *region_furthest_over(struct pool *pool, bool coming, bool far)
{
        struct fairness *r = &pool->fairness;
        size_t i = 0, found;

        refresh(pool);
        list_for_each (s, &pool->shares, struct pool_share, pool_link) {
                uint64_t held = pool_share_borrowed(s);

                held -= MIN(held, coming ? s->recalled_bytes : 0);
                if (s->is_skipped || (far && held < s->fair_bytes + set_of(s)))
                        held = 0;
                r->fair[i] = s->fair_bytes;
                r->shares[i++] = (struct share_tenant){
                        .held_bytes = held,
                        .weight = s->tenant->attrs.weight,
                        .priority = s->tenant->attrs.priority,
                };
        }
        found = share_furthest_over(r->shares, r->fair, NULL, i);
        list_for_each (s, &pool->shares, struct pool_share, pool_link)
                if (found-- == 0)
                        return s;
        return NULL;
}

uint64_t region_wanted(const struct pool *pool, bool far)
{
        uint64_t taken = pool->account.charged_bytes + pool->idle_reserve_bytes, wanted = 0;
        uint64_t there = pool->account.limit_bytes - MIN(taken, pool->account.limit_bytes);

        list_for_each (s, &pool->shares, struct pool_share, pool_link) {
                uint64_t below;

                if (far && wants(s) && !pool_share_keeps_to_reserve(s) &&
                        pool_share_borrowed(s) < region_fair(s))
                        wanted += s->wanted_set_bytes;
                if (!deserves_what_it_wants(s))
                        continue;
                below = region_fair(s) - pool_share_borrowed(s) + pool_share_idle(s);
                below -= below % s->wanted_set_bytes;
                wanted += MIN(s->wanted_bytes, below);
        }
        return wanted - MIN(wanted, there);
}

/* ---- check ---------------------------------------------------------------------------------- */

static const char *check_share(const struct pool_share *s)
{
        uint64_t charged = 0, recalled = 0;

        if (s->account != &s->tenant->accounts[s->pool->tier])
                return "a share has the account of another tenant or tier";
        if (s->pool->extent_bytes > 0 && s->reserve_bytes % s->pool->extent_bytes != 0)
                return "a reservation isn't a multiple of the extent size";
        list_for_each (ns, &s->tenant->namespaces, struct ns, link) {
                const struct ns_tier *tier = &ns->tiers[s->pool->tier];

                if ((tier->pool == s->pool) != (tier->share == s))
                        return "a namespace has the share of another tenant or device";
                if (tier->share != s)
                        continue;
                charged += ns_charged_bytes(ns, s->pool->tier);
                list_for_each (set, &tier->sets_bound, struct extent_set, link)
                        if (set->recall.state != RECALL_NONE && !set->recall.quarantined)
                                recalled += set->charge.bytes;
        }
        list_for_each (what, &s->pool->discards->going, struct discard, link)
                if (what->charge.share == s)
                        charged += what->charge.bytes;
        if (charged != s->charged_bytes)
                return "a share's charge isn't the sum of its sets";
        if (recalled != s->recalled_bytes)
                return "a share's recalled bytes aren't the sum of its recalled sets";
        return NULL;
}

const char *region_check(const struct pool *pool)
{
        uint64_t charged = 0, reserved = 0, idle = 0;
        size_t n = 0;

        list_for_each (s, &pool->shares, struct pool_share, pool_link) {
                const char *why = check_share(s);

                if (why)
                        return why;
                charged += s->charged_bytes;
                reserved += s->reserve_bytes;
                idle += pool_share_idle(s);
                n++;
        }
        list_for_each (set, &pool->orphans, struct extent_set, link)
                charged += set->charge.bytes;
        list_for_each (what, &pool->discards->going, struct discard, link)
                if (what->charge.pool == &pool->account && !what->charge.tenant)
                        charged += what->charge.bytes;
        if (charged != pool->account.charged_bytes)
                return "the charges of its shares aren't its own";
        if (reserved != pool->reserved_bytes)
                return "the shares' reservations aren't what it has reserved";
        if (idle != pool->idle_reserve_bytes)
                return "the shares' idle reserves aren't its own";
        if (reserved > pool->account.limit_bytes)
                return "more is reserved than its budget";
        if (pool->account.charged_bytes + all_backed(pool) > pool->account.limit_bytes)
                return "others have what is idle of a reservation";
        if (n != pool->fairness.n_shares)
                return "it has another number of shares than it counts";
        return NULL;
}

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

static struct blame *find_blame(struct tenant *victim, const char *by)
{
        list_for_each (b, &victim->blames, struct blame, link)
                if (strcmp(b->by, by) == 0)
                        return b;
        return NULL;
}

static unsigned count_blames(const struct tenant *victim)
{
        unsigned n = 0;

        list_for_each (b, &victim->blames, struct blame, link)
                n++;
        return n;
}

static struct blame *add_blame(struct tenant *victim, const char *by)
{
        struct blame *b = calloc(1, sizeof(*b));

        if (!b)
                return NULL;
        memcpy(b->by, by, strlen(by) + 1);
        list_append(&victim->blames, &b->link);
        return b;
}

void blame_note(struct tenant *victim, const struct tenant *by, uint64_t pages, uint64_t sets)
{
        const char *name = by ? by->name : "";
        struct blame *b = find_blame(victim, name);

        if (!b && count_blames(victim) >= BLAME_MAX) {
                name = BLAME_OTHERS;
                b = find_blame(victim, name);
        }
        if (!b)
                b = add_blame(victim, name);
        if (!b)
                return;
        b->pages += pages;
        b->sets += sets;
}

void blame_free(struct tenant *victim)
{
        list_for_each_safe (b, &victim->blames, struct blame, link) {
                list_remove(&b->link);
                free(b);
        }
}

/* ---- owners of reservations ------------------------------------------------------------------ */

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
