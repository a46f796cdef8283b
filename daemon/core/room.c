#include "daemon/core/room.h"

#include <errno.h>

#include "daemon/core/detail.h"
#include "daemon/core/magazine.h"
#include "daemon/core/ns.h"
#include "daemon/core/reclaim.h"
#include "daemon/core/store.h"
#include "daemon/core/tenant.h"
#include "proto/status.h"

#define SWEEP_BATCH \
        1024 /* page records looked at between two checks whether there is enough; not tuned */

static struct store *store_of(const struct ns *ns)
{
        return ns->tenant->store;
}

/*
 * Binds sets until there are `n` FREE pages, or are to come, beside those that other leases wait
 * for. 0 where there are n; else what set_bind() said.
 */
static int bind_sets(struct ns *ns, uint32_t n, struct detail *d)
{
        struct extent_set *set;
        int r = 0;

        while ((r == 0 || r == -EINPROGRESS) && ns_n_coming(ns) < n + ns->n_wanted)
                r = set_bind(ns, &set, d);
        return ns_n_coming(ns) >= n ? 0 : r;
}

/*
 * Most FREE pages the namespace could have if everything idle gave way, wherever it is. A lease
 * beyond that is refused before anything is evicted for it. Pages pinned in segments that weren't
 * met yet count as idle.
 */
static uint64_t pages_within_reach(const struct ns *ns)
{
        uint64_t limit = MIN(ns->tenant->account.limit_bytes, ns->pool->account.limit_bytes);
        uint64_t sets = MAX(limit / ns->geometry.set_bytes, (uint64_t)ns->n_sets + ns->n_preparing);
        uint64_t pages = MIN(sets, (uint64_t)ns->geometry.n_set_slots) * ns->geometry.set_pages;
        uint64_t busy = ns->n_pages[PAGE_GRANTED] - ns->n_ready + ns->n_pinned + ns->n_watched +
                        ns->n_withheld + ns->keep_page_zero;

        return pages > busy ? pages - busy : 0;
}

/* Whose limit ends it first: what to say where nothing was tried. */
static int nearer_limit(const struct ns *ns)
{
        return ns->tenant->account.limit_bytes < ns->pool->account.limit_bytes ? KVL_STATUS_QUOTA
                                                                               : KVL_STATUS_FULL;
}

static bool reclaim_sets_for(struct ns *ns, int why)
{
        uint64_t bytes = ns->geometry.set_bytes;

        if (ns->n_sets + ns->n_preparing == ns->geometry.n_set_slots)
                return false; /* another set has no place, whoever gives way */
        return why == KVL_STATUS_QUOTA ? reclaim_sets_of_tenant(ns->tenant, ns, bytes)
                                       : reclaim_sets_of_pool(ns->pool, ns, bytes);
}

/* Evicts until `n` pages are FREE or to come; where that is too little, looks at `n_look` watched
 * ones first. */
static bool evict_pages(struct ns *ns, uint32_t n, uint32_t n_look)
{
        uint64_t now_nsec = store_of(ns)->now_nsec;

        n -= (uint32_t)MIN((uint64_t)n, ns->n_preparing_pages);
        if (reclaim_pages(ns, n, now_nsec))
                return true;
        ns_look_again(ns, n_look);
        return reclaim_pages(ns, n, now_nsec);
}

/* From the cheapest to the dearest way to come by pages. 0 with `n` FREE pages or pages to come, or
 * why not. */
static int make_room(struct ns *ns, uint32_t n, struct detail *d)
{
        int r;

        while (ns_n_room(ns) < n && ns_sweep(ns, SWEEP_BATCH))
                ;
        r = bind_sets(ns, n, d);
        if (r == 0)
                return 0;
        if (n > pages_within_reach(ns))
                ns_look_again(ns, NS_LOOK_PAGES);
        if (n > pages_within_reach(ns))
                return r < 0 ? r : nearer_limit(ns);
        /* A device out of memory below its budget is no reason to refuse what is cached here. */
        if (evict_pages(ns, n, NS_LOOK_PAGES))
                return 0;
        /* Before others give anything: what was granted ahead and isn't used. */
        magazine_drain_ns(ns);
        if (ns_n_coming(ns) >= n)
                return 0;
        while (r > 0 && reclaim_sets_for(ns, r))
                r = bind_sets(ns, n, d);
        return r;
}

/* No set of this layout fits the limit, whatever is given back: only the layout or the limit help.
 */
static int refuse_set_size(const struct ns *ns, struct detail *d)
{
        const struct tenant *t = ns->tenant;
        char set[FORMAT_BYTES_MAX], limit[FORMAT_BYTES_MAX];

        return detail_set(d, KVL_STATUS_QUOTA,
                "an extent set of namespace %s takes %s (%u planes, pages of %llu bytes in each), "
                "more than the limit of %s of tenant %s; choose plane_page_bytes with more factors "
                "of two, or raise the limit with: kvleasectl tenants set %s limit=...",
                ns->name, format_bytes(ns->geometry.set_bytes, set), ns->layout.n_planes,
                (unsigned long long)ns->layout.plane_page_bytes,
                format_bytes(t->account.limit_bytes, limit), t->name, t->name);
}

static int refuse_quota(const struct ns *ns, struct detail *d)
{
        const struct tenant *t = ns->tenant;
        char held[FORMAT_BYTES_MAX], limit[FORMAT_BYTES_MAX];
        uint64_t n_pinned = 0, n_granted = 0;

        if (ns->geometry.set_bytes > t->account.limit_bytes && ns->n_sets == 0)
                return refuse_set_size(ns, d);
        list_for_each (other, &t->namespaces, struct ns, link) {
                n_pinned += other->n_pinned + other->n_watched;
                n_granted += other->n_pages[PAGE_GRANTED] - other->n_ready;
        }
        return detail_set(d, KVL_STATUS_QUOTA,
                "tenant %s holds %s of its limit of %s and too little of it can be evicted (%llu "
                "pages pinned, %llu granted); release pages or raise the limit with: kvleasectl "
                "tenants set %s limit=...",
                t->name, format_bytes(t->account.charged_bytes, held),
                format_bytes(t->account.limit_bytes, limit), (unsigned long long)n_pinned,
                (unsigned long long)n_granted, t->name);
}

/* Other tenants appear as bytes only: their names are none of this one's business. */
static int refuse_full(const struct ns *ns, struct detail *d)
{
        char budget[FORMAT_BYTES_MAX], own[FORMAT_BYTES_MAX], others[FORMAT_BYTES_MAX];
        uint64_t own_bytes = 0, total_bytes = ns->pool->account.charged_bytes;

        list_for_each (other, &ns->tenant->namespaces, struct ns, link)
                if (other->pool == ns->pool)
                        own_bytes += ns_charged_bytes(other);
        return detail_set(d, KVL_STATUS_FULL,
                "device %s is full: of its budget of %s tenant %s holds %s (%llu pages of "
                "namespace "
                "%s pinned, %llu granted), other tenants hold %s, and too little of it can be "
                "evicted; release pages, or give the device a larger budget",
                ns->pool->props->name, format_bytes(ns->pool->account.limit_bytes, budget),
                ns->tenant->name, format_bytes(own_bytes, own),
                (unsigned long long)(ns->n_pinned + ns->n_watched), ns->name,
                (unsigned long long)(ns->n_pages[PAGE_GRANTED] - ns->n_ready),
                format_bytes(total_bytes - own_bytes, others));
}

static int explain_refusal(struct ns *ns, int why, struct detail *d)
{
        return why == KVL_STATUS_QUOTA ? refuse_quota(ns, d) : refuse_full(ns, d);
}

static void count_refusal(struct ns *ns)
{
        ns->tenant->counters.refusals++;
        store_of(ns)->counters.leases_refused++;
}

/* What was being made for it failed, and it is not tried again: what is idle here may do. */
static int do_without(struct ns *ns, uint32_t n, struct detail *d)
{
        int r = ns->failure.code;

        detail_set(d, r, "%s", ns->failure.why.text);
        ns->failure.code = 0;
        if (n <= pages_within_reach(ns) && evict_pages(ns, n, NS_LOOK_PAGES))
                return 0;
        magazine_drain_ns(ns);
        return ns_n_coming(ns) >= n ? 0 : r;
}

int room_find(struct ns *ns, uint32_t n, bool waited, struct detail *d)
{
        struct store *store = store_of(ns);
        uint64_t evictions = store->counters.evictions;
        bool by_device = waited && ns->failure.code != 0, pressed;
        struct detail failure = {0};
        int r;

        ns->keep_idle_sets = true;
        r = by_device ? do_without(ns, n, d) : make_room(ns, n, &failure);
        if (r < 0 && !by_device)
                detail_set(d, r, "%s", failure.text);
        if (r > 0 && !by_device)
                explain_refusal(ns, r, d);
        if (r > 0 || (r < 0 && ns->pool->queue))
                count_refusal(ns);
        /* Clients can't help a device that doesn't work. */
        pressed = r > 0 || (r < 0 && !ns->pool->queue) || store->counters.evictions != evictions;
        if (pressed && store->on_pressure)
                store->on_pressure(ns, store->callback_data);
        return r == 0 && ns_n_room(ns) < n ? -EINPROGRESS : r;
}

void room_prepare(struct ns *ns, uint32_t n, uint32_t n_dear)
{
        ns->keep_idle_sets = true;
        while (ns_n_room(ns) < n + ns->n_wanted && ns_sweep(ns, SWEEP_BATCH))
                ;
        if (bind_sets(ns, n, NULL) != 0 && n_dear > 0)
                (void)evict_pages(ns, n_dear, 2 * n_dear);
}
