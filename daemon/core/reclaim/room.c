#include "daemon/core/reclaim/room.h"

#include <errno.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/parse.h"
#include "daemon/core/cache/drop.h"
#include "daemon/core/cache/pages.h"
#include "daemon/core/clients/grants.h"
#include "daemon/core/memory/idle-sets.h"
#include "daemon/core/memory/region.h"
#include "daemon/core/memory/sets.h"
#include "daemon/core/reclaim/compact.h"
#include "daemon/core/reclaim/recall.h"
#include "daemon/core/reclaim/reclaim.h"
#include "daemon/core/sessions/session.h"
#include "daemon/core/state/detail.h"
#include "daemon/core/state/group.h"
#include "daemon/core/state/ns.h"
#include "daemon/core/state/pool.h"
#include "daemon/core/state/store.h"
#include "daemon/core/state/tenant.h"
#include "proto/status.h"

/* ---- taking memory back from others ---------------------------------------------------------- */

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

#define SWEEP_BATCH \
        1024 /* page records that are looked at between two checks for enough pages; not tuned */

/* Binds sets for the claim until `n` pages are FREE or being made, beside those that other leases
 * wait for. Returns 0 if there are n; else as set_bind(). */
static int bind_sets(struct ns *ns, uint32_t n, struct claim *claim, struct detail *d)
{
        struct extent_set *set;
        int r = 0;

        while ((r == 0 || r == -EINPROGRESS) && ns_n_coming(ns) < n + ns->waits.n_wanted)
                r = set_bind(ns, claim, &set, d);
        return ns_n_coming(ns) >= n ? 0 : r;
}

/* Returns the most FREE pages that the namespace could have if all idle memory were freed. A lease
 * beyond that is refused before anything is evicted for it. Pages with unknown pins in segments
 * count as idle. */
static uint64_t pages_within_reach(const struct ns *ns, const struct admission *a)
{
        uint64_t sets = MAX(a->reach_bytes / ns->geometry.set_bytes,
                (uint64_t)ns->device.n_sets + ns->device.n_preparing);
        uint64_t pages = MIN(sets, (uint64_t)ns->geometry.tiers[TIER_DEVICE].n_sets) *
                         ns->geometry.set_pages;
        uint64_t busy = ns->device.n_pages[PAGE_GRANTED] - ns->clients.n_ready +
                        ns->device.n_pages[PAGE_MOVING] + ns->device.n_pinned +
                        ns->catalog.watched.n + ns->device.n_withheld + ns->sets.keep_page_zero;

        return pages > busy ? pages - busy : 0;
}

static bool has_slot(const struct ns *ns)
{
        return ns->device.n_sets + ns->device.n_preparing < ns->geometry.tiers[TIER_DEVICE].n_sets;
}

/* Drops windows of sessions until `n` pages are FREE or being made; `open`: of open sessions, too.
 */
static bool take_windows(struct ns *ns, uint32_t n, bool open)
{
        while (ns_n_coming(ns) < n && sessions_give_way(ns, open))
                ;
        return ns_n_coming(ns) >= n;
}

/* Evicts until `n` pages are FREE or being made, if idle magazines don't suffice. If that isn't
 * enough, checks `n_look` watched pages. */
static bool evict_pages(struct ns *ns, uint32_t n, uint32_t n_look)
{
        uint64_t now_nsec = ns->store->now_nsec;

        if (magazine_trim_idle(ns, now_nsec) > 0 && ns_n_coming(ns) >= n)
                return true;
        if (take_windows(ns, n, false))
                return true;
        n -= (uint32_t)MIN((uint64_t)n, ns->device.n_preparing_pages);
        if (reclaim_pages(ns, n, now_nsec))
                return true;
        ns_look_again(ns, n_look);
        while (!reclaim_pages(ns, n, now_nsec))
                if (!ns_yield_expected(ns, TIER_DEVICE, EVICT_DROP) &&
                        !ns_yield_expected(ns, TIER_DEVICE, EVICT_DEMOTE))
                        return false;
        return true;
}

/* Returns the most pages of the namespace that may be idle. */
static uint64_t idle_pages(const struct ns *ns)
{
        return ns->device.n_pages[PAGE_SEALED] + ns->device.n_pages[PAGE_DETACHED] -
               ns->device.n_pinned + ns->clients.n_ready;
}

/* Returns the sets to bind for `n` pages, beside pages that other leases wait for. */
static uint64_t n_lacking(const struct ns *ns, uint32_t n)
{
        uint64_t wanted = n + ns->waits.n_wanted, coming = ns_n_coming(ns);
        uint64_t set_pages = ns->geometry.set_pages;

        return wanted > coming ? (wanted - coming + set_pages - 1) / set_pages : 0;
}

/* Asks whether the sets may be bound that `n` pages lack, or another one if none lacks. */
static struct admission ask(const struct ns *ns, uint32_t n, const struct claim *claim)
{
        return region_admit(ns->device.share, ns->geometry.set_bytes,
                MAX(n_lacking(ns, n), UINT64_C(1)), claim);
}

/* Returns why the sets can't be bound; if all are admitted, no slot is left. */
static enum lease_reason reason_of(const struct admission *a)
{
        return a->reason == LEASE_REASON_NONE ? LEASE_REASON_POOL_FULL : a->reason;
}

/* Binds the missing sets, or some of them if idle pages can make up for the rest; else none.
 * Returns as bind_sets(). */
static int bind_lacking(
        struct ns *ns, uint32_t n, struct claim *claim, const struct admission *a, struct detail *d)
{
        if (n_lacking(ns, n) == 0)
                return 0;
        if (a->reason != LEASE_REASON_NONE &&
                ns_n_coming(ns) + a->n_sets * ns->geometry.set_pages + idle_pages(ns) < n)
                return lease_reason_status(reason_of(a));
        return bind_sets(ns, n, claim, d);
}

/* The pool is exhausted: takes from others the memory that the share is entitled to. Returns true
 * if more is admitted now. */
static bool ask_others(struct ns *ns, uint32_t n, const struct claim *claim)
{
        const struct account *limit = ns->device.share->account;
        uint64_t set_bytes = ns->geometry.set_bytes, lacking = n_lacking(ns, n);
        uint64_t left = limit->limit_bytes - MIN(limit->charged_bytes, limit->limit_bytes);
        uint64_t most = MIN(lacking, left / set_bytes);

        if (most == 0 || !has_slot(ns) ||
                region_admits(ns->device.share, most * set_bytes, claim) != LEASE_REASON_POOL_FULL)
                return false;
        region_note_want(ns->device.share, set_bytes, most * set_bytes, ns->store->now_nsec);
        for (; most > 0; most /= 2)
                if (region_make_room(ns->device.share, ns, most * set_bytes, claim))
                        return true;
        return false;
}

/* Frees the tenant's own unmapped sets in other namespaces for the claim. */
static bool reclaim_own(struct ns *ns, uint32_t n, struct claim *claim)
{
        struct pool_share *s = ns->device.share;
        uint64_t before = s->charged_bytes;
        struct admission a;
        bool is_less;

        if (!has_slot(ns))
                return false; /* no slot for another set, so that wouldn't help */
        a = ask(ns, n, claim);
        is_less = reason_of(&a) == LEASE_REASON_QUOTA ? reclaim_set_of_tenant(ns->tenant, ns)
                                                      : reclaim_set_of_share(s, ns, s->tenant);
        claim->given_bytes += before - MIN(before, s->charged_bytes);
        return is_less;
}

/* Sweeps stale pages until `n` pages are FREE. Frees recalled sets, as memory is needed now. */
static void sweep_for(struct ns *ns, uint64_t n)
{
        while (ns_n_room(ns) < n && ns_sweep(ns, SWEEP_BATCH))
                ;
        idle_sets_drain_except(ns->store, ns);
}

/* Makes pages available, in the order of rising cost. Returns 0: `n` pages are FREE or being made;
 * else the reason. */
static int make_room(struct ns *ns, uint32_t n, struct claim *claim, struct detail *d)
{
        struct admission a;
        bool is_less = true;
        int r;

        sweep_for(ns, n);
        a = ask(ns, n, claim);
        r = bind_lacking(ns, n, claim, &a, d);
        if (r == 0)
                return 0;
        if (n > pages_within_reach(ns, &a)) {
                ns_look_again(ns, NS_LOOK_PAGES);
                idle_sets_drain_except(ns->store, ns); /* its pins may have ended */
                a = ask(ns, n, claim);
        }
        if (n > pages_within_reach(ns, &a))
                return r < 0 ? r : lease_reason_status(a.nearest);
        if (r > 0 && ask_others(ns, n, claim)) {
                a = ask(ns, n, claim);
                r = bind_lacking(ns, n, claim, &a, d);
        }
        /* If the device has no memory below its budget, cached pages here can still be evicted. */
        while (r != 0) {
                if (ns_n_coming(ns) + idle_pages(ns) >= n && evict_pages(ns, n, NS_LOOK_PAGES))
                        return 0;
                /* Takes unused pages of magazines before memory of others. */
                magazine_drain_ns(ns);
                if (ns_n_coming(ns) >= n)
                        return 0;
                /* Freeing own sets gives descriptors back, as well as memory. */
                if ((r < 0 && r != -EMFILE) || !is_less)
                        return take_windows(ns, n, true) ? 0 : r;
                is_less = reclaim_own(ns, n, claim);
                idle_sets_drain_except(
                        ns->store, ns); /* frees recalled sets, as memory is needed now */
                a = ask(ns, n, claim);
                r = bind_lacking(ns, n, claim, &a, d);
        }
        return r;
}

/* ---- impossible leases ----------------------------------------------------------------------- */

#define EXACT_BYTES_MAX 32

/* Writes the bytes exactly, as parse_bytes() reads them. */
static char *exact_bytes(uint64_t bytes, char buf[EXACT_BYTES_MAX])
{
        static const char *const units[] = {"", "KiB", "MiB", "GiB"};
        unsigned i = 0;

        for (; i + 1 < ARRAY_SIZE(units) && bytes > 0 && bytes % 1024 == 0; i++)
                bytes /= 1024;
        snprintf(buf, EXACT_BYTES_MAX, "%llu%s", (unsigned long long)bytes, units[i]);
        return buf;
}

/* Would a smaller `extent` make sets of the namespace's layout that fit the limit? */
static bool smaller_extent_fits(const struct ns *ns, uint64_t limit_bytes)
{
        struct set_source source = pool_set_source(ns->device.pool);
        struct ns_geometry least;

        source.wanted_bytes = limit_bytes;
        return ns_geometry_of(&ns->layout, &source, 0, &least, NULL) == 0 &&
               least.set_bytes <= limit_bytes;
}

/* The lease is beyond the limit. A limit above the device's budget would not help. */
static int exceeds_limit(const struct ns *ns, uint64_t bytes, const char *what, struct detail *d)
{
        const struct tenant *t = ns->tenant;
        const struct pool *pool = ns->device.pool;
        uint64_t limit_bytes = t->account.limit_bytes;
        char limit[FORMAT_BYTES_MAX], least[EXACT_BYTES_MAX], extent[EXACT_BYTES_MAX];
        char budget[FORMAT_BYTES_MAX], smaller[256] = "";

        if (bytes > pool->account.limit_bytes)
                return detail_set(d, KVL_STATUS_QUOTA,
                        "%s, more than the limit of %s of tenant %s and than the budget of %s of "
                        "device %s; lease fewer pages, or give the device a larger budget",
                        what, format_bytes(limit_bytes, limit), t->name,
                        format_bytes(pool->account.limit_bytes, budget), pool->props->name);
        if (ns->geometry.set_bytes > limit_bytes && smaller_extent_fits(ns, limit_bytes))
                snprintf(smaller, sizeof(smaller),
                        ", or set extent = %s or less in [device %s], restart kvleased and make the namespace anew",
                        exact_bytes(limit_bytes, extent), pool->props->name);
        return detail_set(d, KVL_STATUS_QUOTA,
                "%s, more than the limit of %s of tenant %s; raise the limit with: kvleasectl tenants set %s limit=%s%s",
                what, format_bytes(limit_bytes, limit), t->name, t->name, exact_bytes(bytes, least),
                smaller);
}

static int exceeds_reservation(
        const struct ns *ns, uint64_t bytes, const char *what, struct detail *d)
{
        const struct pool_share *s = ns->device.share;
        char reserve[FORMAT_BYTES_MAX], least[EXACT_BYTES_MAX];

        return detail_set(d, KVL_STATUS_RESERVATION,
                "%s, more than the reservation of %s of tenant %s on device %s, which may use "
                "nothing beyond it (burst=none); raise the reservation with: kvleasectl tenants "
                "set %s reserve=%s, or let it use what all share: burst=pool",
                what, format_bytes(s->reserve_bytes, reserve), ns->tenant->name,
                s->pool->props->name, ns->tenant->name, exact_bytes(bytes, least));
}

static int exceeds_device(
        const struct ns *ns, const struct admission *a, const char *what, struct detail *d)
{
        const struct pool *pool = ns->device.pool;
        char reach[FORMAT_BYTES_MAX], budget[FORMAT_BYTES_MAX];

        return detail_set(d, KVL_STATUS_FULL,
                "%s, more than the %s that tenant %s can have of device %s, whose budget is %s, "
                "without what others have reserved; give the device a larger budget",
                what, format_bytes(a->reach_bytes, reach), ns->tenant->name, pool->props->name,
                format_bytes(pool->account.limit_bytes, budget));
}

/* If processes gave back the memory that they were told to, it would fit. */
static int exceeds_what_is_given_back(
        const struct ns *ns, uint64_t bytes, uint64_t kept, const char *what, struct detail *d)
{
        const struct tenant *t = ns->tenant;
        bool by_limit = bytes + kept > t->account.limit_bytes;
        char late[FORMAT_BYTES_MAX], least[EXACT_BYTES_MAX], raised[TENANT_NAME_MAX + 128] = "";

        if (by_limit)
                snprintf(raised, sizeof(raised),
                        ", or raise the limit with: kvleasectl tenants set %s limit=%s", t->name,
                        exact_bytes(bytes + kept, least));
        return detail_set(d, by_limit ? KVL_STATUS_QUOTA : KVL_STATUS_FULL,
                "%s, more than tenant %s can have while processes keep %s that they were told to give back; restart these (kvleasectl clients)%s",
                what, t->name, format_bytes(kept, late), raised);
}

/* Returns the tenant's bytes on the namespace's device in sets that weren't given back in time. */
static uint64_t kept_bytes(const struct ns *ns)
{
        uint64_t bytes = 0;

        if (ns->tenant->n_recalled == 0)
                return 0;
        list_for_each (other, &ns->tenant->namespaces, struct ns, link)
                if (other->device.share == ns->device.share)
                        list_for_each (set, &other->device.sets_bound, struct extent_set, link)
                                if (set->recall.quarantined)
                                        bytes += other->geometry.set_bytes;
        return bytes;
}

/* Returns the sets whose pages can be leased, ignoring the present limit. */
static uint64_t n_sets_in_use(const struct ns *ns)
{
        uint64_t n = 0;

        list_for_each (set, &ns->device.sets_bound, struct extent_set, link)
                n += set->recall.state == RECALL_NONE;
        return n;
}

/* Does what room_check() does, with the answer of region_admit(). */
static int check_room(const struct ns *ns, uint32_t n, const struct admission *a, struct detail *d)
{
        const struct ns_geometry *g = &ns->geometry;
        uint64_t pages = (uint64_t)n + (ns->sets.keep_page_zero ? 1 : 0);
        uint64_t sets = (pages + g->set_pages - 1) / g->set_pages, bytes = sets * g->set_bytes;
        uint64_t reach = a->reach_bytes, kept = kept_bytes(ns);
        char what[NS_NAME_MAX + 256], all[FORMAT_BYTES_MAX], set[FORMAT_BYTES_MAX];

        if (sets <= g->tiers[TIER_DEVICE].n_sets && bytes <= reach &&
                (bytes + kept <= reach || sets <= n_sets_in_use(ns)))
                return 0;
        snprintf(what, sizeof(what),
                "%u page%s of namespace %s take%s %s (%llu extent set%s of %s with %u pages each)",
                n, n == 1 ? "" : "s", ns->name, n == 1 ? "s" : "", format_bytes(bytes, all),
                (unsigned long long)sets, sets == 1 ? "" : "s", format_bytes(g->set_bytes, set),
                g->set_pages);
        if (bytes > ns->tenant->account.limit_bytes)
                return exceeds_limit(ns, bytes, what, d);
        if (a->keeps_to_reserve && bytes > ns->device.share->reserve_bytes)
                return exceeds_reservation(ns, bytes, what, d);
        if (bytes > reach || kept == 0)
                return exceeds_device(ns, a, what, d);
        return exceeds_what_is_given_back(ns, bytes, kept, what, d);
}

/* Asks for limits and reservations, but for no set. */
static struct admission ask_limits(const struct ns *ns)
{
        return region_admit(ns->device.share, ns->geometry.set_bytes, 0, NULL);
}

int room_check(const struct ns *ns, uint32_t n, struct detail *d)
{
        const struct admission a = ask_limits(ns);

        return check_room(ns, n, &a, d);
}

/* ---- leases that are impossible now ---------------------------------------------------------- */

/* Totals of memory that can't be evicted, for a message. */
struct holders {
        uint64_t n_pinned, n_granted, mapped_bytes;
        uint64_t held_bytes; /* freed by the tenant, and not given back yet */
        uint32_t budget;     /* pages to look at, to make refusals cheap; 0: not all were */
};

static void count_holders(const struct ns *ns, struct holders *h)
{
        h->n_pinned += ns_count_pinned(ns, &h->budget);
        h->n_granted += ns->device.n_pages[PAGE_GRANTED] - ns->clients.n_ready;
}

/* Returns the bytes of another namespace's sets that no lease of this one can take. */
static uint64_t mapped_bytes(const struct ns *ns)
{
        uint64_t bytes = 0;

        ns_for_each_set (set, ns)
                bytes += set->n_mapped > 0 ? ns->geometry.set_bytes : 0;
        return bytes;
}

/* Writes "1600 pages pinned, 0 granted". Returns buf. */
static char *format_holders(const struct holders *h, char *buf, size_t size)
{
        char bytes[FORMAT_BYTES_MAX];
        int n = snprintf(buf, size, "%s%llu pages pinned, %llu granted",
                h->budget == 0 ? "at least " : "", (unsigned long long)h->n_pinned,
                (unsigned long long)h->n_granted);

        if (h->mapped_bytes > 0)
                n += snprintf(buf + n, size - (size_t)n,
                        ", %s mapped by clients of its other namespaces",
                        format_bytes(h->mapped_bytes, bytes));
        if (h->held_bytes > 0)
                snprintf(buf + n, size - (size_t)n, ", %s on its way back",
                        format_bytes(h->held_bytes, bytes));
        return buf;
}

#define HOLDERS_MAX 160

static int refuse_quota(const struct ns *ns, struct detail *d)
{
        const struct tenant *t = ns->tenant;
        char held[FORMAT_BYTES_MAX], limit[FORMAT_BYTES_MAX], by[HOLDERS_MAX];
        struct holders h = {.budget = NS_LOOK_PAGES, .held_bytes = t->held.bytes};

        list_for_each (other, &t->namespaces, struct ns, link) {
                count_holders(other, &h);
                h.mapped_bytes += other != ns ? mapped_bytes(other) : 0;
        }
        return detail_set(d, KVL_STATUS_QUOTA,
                "tenant %s holds %s of its limit of %s and too little of it can be evicted (%s); "
                "release pages or raise the limit with: kvleasectl tenants set %s limit=...",
                t->name, format_bytes(t->account.charged_bytes, held),
                format_bytes(t->account.limit_bytes, limit), format_holders(&h, by, sizeof(by)),
                t->name);
}

static int refuse_reservation(const struct ns *ns, struct detail *d)
{
        const struct tenant *t = ns->tenant;
        char held[FORMAT_BYTES_MAX], reserve[FORMAT_BYTES_MAX];

        return detail_set(d, KVL_STATUS_RESERVATION,
                "tenant %s holds %s of its reservation of %s on device %s, may use nothing beyond "
                "it (burst=none), and too little of it can be evicted; release pages, raise the "
                "reservation with: kvleasectl tenants set %s reserve=..., or let it use what all share: burst=pool",
                t->name, format_bytes(ns->device.share->charged_bytes, held),
                format_bytes(ns->device.share->reserve_bytes, reserve),
                ns->device.pool->props->name, t->name);
}

static int refuse_owed(const struct ns *ns, struct detail *d)
{
        const struct tenant *t = ns->tenant;
        char held[FORMAT_BYTES_MAX], reserve[FORMAT_BYTES_MAX];

        return detail_set(d, KVL_STATUS_FULL,
                "tenant %s holds %s of the %s that are reserved for it on device %s; others still "
                "have the rest and were asked to give it back: try again, or see: kvleasectl regions",
                t->name, format_bytes(ns->device.share->charged_bytes, held),
                format_bytes(ns->device.share->reserve_bytes, reserve),
                ns->device.pool->props->name);
}

/* Shows other tenants as bytes only: their names are private. */
static int refuse_full(const struct ns *ns, const struct admission *a, struct detail *d)
{
        char budget[FORMAT_BYTES_MAX], own[FORMAT_BYTES_MAX], others[FORMAT_BYTES_MAX];
        char idle[FORMAT_BYTES_MAX], reserved[FORMAT_BYTES_MAX + 64] = "", by[HOLDERS_MAX];
        struct holders h = {.budget = NS_LOOK_PAGES, .held_bytes = ns->tenant->held.bytes};
        const struct pool *pool = ns->device.pool;
        uint64_t own_bytes = ns->device.share->charged_bytes;
        uint64_t idle_bytes = pool->idle_reserve_bytes - pool_share_idle(ns->device.share);

        if (a->is_reserved)
                return refuse_owed(ns, d);
        if (idle_bytes > 0)
                snprintf(reserved, sizeof(reserved), " and have another %s reserved",
                        format_bytes(idle_bytes, idle));
        count_holders(ns, &h);
        return detail_set(d, KVL_STATUS_FULL,
                "device %s is full: of its budget of %s tenant %s holds %s (%s in namespace %s), "
                "other tenants hold %s%s, and too little of it can be evicted; release pages, or give the device a larger budget",
                pool->props->name, format_bytes(pool->account.limit_bytes, budget),
                ns->tenant->name, format_bytes(own_bytes, own), format_holders(&h, by, sizeof(by)),
                ns->name, format_bytes(pool->account.charged_bytes - own_bytes, others), reserved);
}

static int explain_refusal(struct ns *ns, uint32_t n, enum lease_reason why,
        const struct admission *a, struct detail *d)
{
        if (check_room(ns, n, a, d) != 0)
                return lease_reason_status(why);
        switch (why) {
        case LEASE_REASON_QUOTA:
                return refuse_quota(ns, d);
        case LEASE_REASON_RESERVATION_FULL:
                return refuse_reservation(ns, d);
        default:
                return refuse_full(ns, a, d);
        }
}

/* Making sets failed, and isn't tried again: idle pages here may suffice. */
static int do_without(struct ns *ns, uint32_t n, struct detail *d)
{
        const struct admission a = ask_limits(ns);
        int r = ns->waits.failure.code;

        detail_set(d, r, "%s", ns->waits.failure.why.text);
        ns->waits.failure.code = 0;
        if (n <= pages_within_reach(ns, &a) && evict_pages(ns, n, NS_LOOK_PAGES))
                return 0;
        magazine_drain_ns(ns);
        return ns_n_coming(ns) >= n ? 0 : r;
}

/* If no step was possible, returns the nearer of the limits. */
static enum lease_reason reason_for(
        const struct ns *ns, uint32_t n, int r, const struct admission *a)
{
        if (r < 0)
                return LEASE_REASON_DEVICE;
        return n > pages_within_reach(ns, a) ? a->nearest : reason_of(a);
}

int room_find(
        struct attach *a, uint32_t n, bool waited, enum lease_reason *ret_reason, struct detail *d)
{
        struct ns *ns = a->ns;
        struct store *store = ns->store;
        uint64_t evictions = store->counters.evictions;
        bool by_device = waited && ns->waits.failure.code != 0, pressed;
        struct claim claim = {.lease = a};
        struct admission last = {0};
        struct detail failure = {0};
        int r;

        *ret_reason = LEASE_REASON_NONE;
        idle_sets_add_all(ns);
        compact_call_off(ns);
        r = by_device ? do_without(ns, n, d) : make_room(ns, n, &claim, &failure);
        if (r > 0)
                last = ask(ns, n, &claim);
        if (r != 0)
                *ret_reason = by_device ? LEASE_REASON_DEVICE : reason_for(ns, n, r, &last);
        if (r < 0 && !by_device)
                detail_set(d, r, "%s", failure.text);
        if (r > 0 && !by_device)
                r = explain_refusal(ns, n, *ret_reason, &last, d);
        /* Clients can't help if the device doesn't work. */
        pressed = r > 0 || (r < 0 && !ns->device.pool->queue) ||
                  store->counters.evictions != evictions;
        if (pressed && store->owner.on_pressure)
                store->owner.on_pressure(ns, store->owner.data);
        if (r != 0 || ns_n_room(ns) >= n)
                return r;
        *ret_reason = LEASE_REASON_DEVICE;
        return -EINPROGRESS;
}

/* Returns the sets that the tenant may still bind. */
static uint64_t n_sets_left(const struct ns *ns)
{
        uint64_t bytes = ns->geometry.set_bytes;
        uint64_t slots =
                ns->geometry.tiers[TIER_DEVICE].n_sets - ns->device.n_sets - ns->device.n_preparing;
        uint64_t n = MIN(region_free(ns->device.share) / bytes, slots);

        /* Fair shares and waiting leases may allow fewer. */
        return region_admit(ns->device.share, bytes, n, NULL).n_sets;
}

uint64_t room_leasable(const struct ns *ns, uint64_t idle)
{
        uint64_t sets = n_sets_left(ns), wanted = ns->waits.n_wanted;
        uint64_t pages = ns_n_room(ns) + idle + sets * ns->geometry.set_pages;

        if (ns->store->draining)
                return 0;
        if (sets > 0 && ns->sets.keep_page_zero && !ns->sets.at[0])
                wanted++;
        return pages - MIN(pages, wanted);
}

int room_bind_run(struct ns *ns, uint32_t n)
{
        uint64_t n_sets = (n + (uint64_t)ns->geometry.set_pages - 1) / ns->geometry.set_pages;
        struct extent_set *set;
        int r = 0;

        if (region_admits(ns->device.share, n_sets * ns->geometry.set_bytes, NULL) !=
                LEASE_REASON_NONE)
                return 0;
        idle_sets_add_all(ns);
        compact_call_off(ns);
        for (; n_sets > 0 && (r == 0 || r == -EINPROGRESS); n_sets--)
                r = set_bind(ns, NULL, &set, NULL);
        return r == -EINPROGRESS ? r : 0;
}

bool room_leaves_another(const struct ns *ns)
{
        uint64_t another = MAX(ns->geometry.set_bytes, ns->device.pool->extent_bytes);

        return region_admits(ns->device.share, ns->geometry.set_bytes + another, NULL) ==
               LEASE_REASON_NONE;
}

/* Without a queue a set is made at once, and can be taken back. `is_needed`: it will be used soon.
 */
static bool bind_ahead(struct ns *ns, uint32_t n, bool is_needed)
{
        struct extent_set *set;
        int r = 0;

        if (!ns->device.pool->queue || is_needed)
                return bind_sets(ns, n, NULL, NULL) == 0;
        while (r == 0 || r == -EINPROGRESS) {
                if (ns_n_coming(ns) >= n + ns->waits.n_wanted)
                        return true;
                if (!room_leaves_another(ns))
                        break;
                r = set_bind(ns, NULL, &set, NULL);
        }
        return ns_n_coming(ns) >= n;
}

void room_prepare(struct ns *ns, uint32_t n, uint32_t n_dear)
{
        idle_sets_add_all(ns);
        compact_call_off(ns);
        sweep_for(ns, n + ns->waits.n_wanted);
        if (bind_ahead(ns, n, n_dear > 0) || n_dear == 0)
                return;
        if (ns_n_coming(ns) < n_dear && ask_others(ns, n_dear, NULL))
                (void)bind_sets(ns, n_dear, NULL, NULL);
        (void)evict_pages(ns, n_dear, 2 * n_dear);
}
