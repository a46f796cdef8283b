#include "daemon/core/reclaim/prealloc.h"

#include <errno.h>

#include "base/clock.h"
#include "base/macros.h"
#include "daemon/core/memory/sets.h"
#include "daemon/core/memory/idle-sets.h"
#include "daemon/core/state/group.h"
#include "daemon/core/state/ns.h"
#include "daemon/core/state/store.h"
#include "daemon/core/state/tenant.h"
#include "daemon/core/reclaim/reclaim.h"
#include "daemon/core/reclaim/room.h"

/* Preallocated are at most 1/4 of the pages that a namespace could have. Not tuned. */
#define SHARE_OF_CAPACITY 4

/* Fewer pages are no stream of leases: some now and then, on a device that makes a set at once. Not
 * tuned. */
#define PAGES_MIN 2

/* Pages evicted at once for free_ahead, in less than a millisecond, ten times a second and as
 * leases require. Not tuned. */
#define FREE_BATCH 512

/* Time without leases after which the preallocated pages are given back and no timer runs. Not
 * tuned. */
#define QUIET_NSEC (2000 * NSEC_PER_MSEC)

/* Tracks the largest of recent leases. With each lease, it loses an eighth of its excess over that
 * lease. Not tuned. */
static void note_burst(struct ns *ns, uint32_t n)
{
        uint32_t over =
                ns->reclaim.prealloc.burst_pages > n ? ns->reclaim.prealloc.burst_pages - n : 0;

        ns->reclaim.prealloc.burst_pages = n + over - (over + 7) / 8;
}

void prealloc_leased(struct ns *ns, uint32_t n, uint64_t now_nsec)
{
        struct store *s = ns->store;

        ahead_leased(&ns->reclaim.prealloc.ahead, n, now_nsec);
        note_burst(ns, n);
        ns->reclaim.prealloc.is_leased = true;
        if (ns_n_coming(ns) <
                        MAX(ns->reclaim.prealloc.n_to_keep, ns->reclaim.prealloc.n_to_free / 2) +
                                ns->waits.n_wanted &&
                s->owner.on_prealloc)
                s->owner.on_prealloc(s->owner.data);
}

bool prealloc_is_leased(const struct ns *ns, uint64_t now_nsec)
{
        return ns->reclaim.prealloc.ahead.last_nsec > 0 &&
               now_nsec < ns->reclaim.prealloc.ahead.last_nsec + QUIET_NSEC;
}

/* Will more pages be leased soon? */
static bool is_busy(const struct ns *ns, uint64_t now_nsec)
{
        return !ns->store->draining && !list_is_empty(&ns->clients.attachments) &&
               prealloc_is_leased(ns, now_nsec);
}

static uint32_t wanted(const struct ns *ns, uint64_t now_nsec)
{
        uint32_t n;

        if (!is_busy(ns, now_nsec))
                return 0;
        n = ahead_pages(&ns->reclaim.prealloc.ahead,
                tier_n_pages(&ns->geometry, TIER_DEVICE) / SHARE_OF_CAPACITY, now_nsec);
        return n < PAGES_MIN ? 0 : n;
}

/* A lease waits for memory on the device: free memory is for that lease. */
static bool is_waited_for(const struct store *s, const struct pool *pool)
{
        list_for_each (a, &s->waits.leases, struct attach, wait.link)
                if (a->ns->device.pool == pool && a->wait.reason != LEASE_REASON_DEVICE)
                        return true;
        return false;
}

/* Without a queue it binds one set, because making it blocks the loop. */
static void bind(struct ns *ns)
{
        struct extent_set *set;
        int r;

        do {
                if (ns_n_coming(ns) >= ns->reclaim.prealloc.n_to_keep + ns->waits.n_wanted ||
                        !room_leaves_another(ns))
                        break;
                r = set_bind(ns, NULL, &set, NULL);
        } while (r == -EINPROGRESS);
}

static uint32_t wanted_free(const struct ns *ns, uint64_t now_nsec)
{
        uint64_t held = (uint64_t)ns->device.n_sets * ns->geometry.set_pages;

        return is_busy(ns, now_nsec) ? (uint32_t)(held * ns->tenant->attrs.free_ahead / 100) : 0;
}

/* Evicts if FREE pages are down to half of the target, and no set can be bound. */
static void free_ahead(struct ns *ns, uint64_t now_nsec)
{
        uint64_t n = MIN((uint64_t)ns->reclaim.prealloc.n_to_free, ns_n_room(ns) + FREE_BATCH);

        ns->reclaim.prealloc.is_freeing |= ns_n_coming(ns) < ns->reclaim.prealloc.n_to_free / 2;
        if (!ns->reclaim.prealloc.is_freeing || room_leaves_another(ns))
                return;
        (void)reclaim_pages(ns, (uint32_t)n, now_nsec);
        ns->reclaim.prealloc.is_freeing = ns_n_coming(ns) < ns->reclaim.prealloc.n_to_free;
}

static bool keep_preallocated(struct ns *ns, uint64_t now_nsec)
{
        uint32_t was = MAX(ns->reclaim.prealloc.n_to_keep, ns->reclaim.prealloc.n_to_free);

        if (!ns->reclaim.prealloc.is_leased)
                return false;
        ns->reclaim.prealloc.n_to_keep = wanted(ns, now_nsec);
        ns->reclaim.prealloc.n_to_free = wanted_free(ns, now_nsec);
        if (ns->reclaim.prealloc.n_to_keep > 0 && !is_waited_for(ns->store, ns->device.pool))
                bind(ns);
        free_ahead(ns, now_nsec);
        if (MAX(ns->reclaim.prealloc.n_to_keep, ns->reclaim.prealloc.n_to_free) < was)
                idle_sets_add_all(ns);
        ns->reclaim.prealloc.is_leased =
                ns->reclaim.prealloc.n_to_keep > 0 || ns->reclaim.prealloc.n_to_free > 0;
        return ns->reclaim.prealloc.is_leased;
}

bool prealloc_work(struct store *s, uint64_t now_nsec)
{
        bool more = false;

        store_set_now(s, now_nsec);
        list_for_each (t, &s->tenants, struct tenant, link)
                list_for_each (ns, &t->namespaces, struct ns, link)
                        more |= keep_preallocated(ns, now_nsec);
        return more;
}

void prealloc_forget(struct ns *ns)
{
        ns->reclaim.prealloc.is_leased = false;
        if (ns->reclaim.prealloc.n_to_keep == 0 && ns->reclaim.prealloc.n_to_free == 0)
                return;
        ns->reclaim.prealloc.n_to_keep = ns->reclaim.prealloc.n_to_free = 0;
        idle_sets_add_all(ns);
}

uint64_t prealloc_figure(const struct store *s)
{
        uint64_t n = 0;

        list_for_each (t, &s->tenants, struct tenant, link)
                list_for_each (ns, &t->namespaces, struct ns, link)
                        n += MIN((uint64_t)ns->reclaim.prealloc.n_to_keep, ns_n_room(ns));
        return n;
}
