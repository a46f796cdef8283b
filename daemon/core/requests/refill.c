#include "daemon/core/requests/refill.h"

#include "base/clock.h"
#include "base/macros.h"
#include "base/probe.h"
#include "daemon/core/clients/grants.h"
#include "daemon/core/state/geometry.h"
#include "daemon/core/state/group.h"
#include "daemon/core/state/ns.h"
#include "daemon/core/memory/region.h"
#include "daemon/core/reclaim/prealloc.h"
#include "daemon/core/requests/lease.h"
#include "policy/tier.h"

/* A refill may evict, take from others, and still find too little. It looks at all memory that
 * could be freed then, and a client requests it with one store. So the namespace doesn't repeat it
 * for this time; pages that become FREE are handed out as usual. Not tuned. */
#define VAIN_NSEC (10 * NSEC_PER_MSEC)

/* Returns the most pages that the namespace could have now. */
static uint64_t pages_allowed(const struct ns *ns)
{
        return MIN(region_reach(ns->device.share) / ns->geometry.set_bytes * ns->geometry.set_pages,
                (uint64_t)tier_n_pages(&ns->geometry, TIER_DEVICE));
}

/* Puts `wanted` pages into the magazine, as far as there are. Returns their number. */
static uint32_t refill_pages(struct attach *a, uint32_t wanted, uint32_t n_dear, uint64_t now_nsec)
{
        uint32_t n = lease_make_ready(a, wanted, n_dear, now_nsec), n_put;
        struct magazine *m = a->magazine;

        m->is_short = n < wanted && a->ns->device.n_preparing > 0;
        n_put = magazine_put_pages(a, n);
        if (n_put > 0) {
                prealloc_leased(a->ns, n_put, now_nsec);
                PROBE(kvleased, refill, a->ns->tenant, a->ns, a->member->id, n_put);
        }
        return n_put;
}

static bool was_vain(const struct ns *ns, uint64_t now_nsec)
{
        return ns->clients.vain_nsec > 0 && now_nsec - ns->clients.vain_nsec < VAIN_NSEC;
}

static uint32_t fill_magazine(struct attach *a, uint32_t wanted, uint64_t now_nsec)
{
        uint64_t reach = pages_allowed(a->ns);
        struct magazine *m = a->magazine;
        uint32_t n, n_dear, n_put;

        magazine_adapt_level(a, reach, now_nsec);
        n = magazine_shortage(a, MAX((uint64_t)m->n_pages + wanted, (uint64_t)m->level), reach);
        /* Evicts cached pages for a client that leases continuously. */
        n_dear = m->level > MAGAZINE_LEVEL_MIN && !was_vain(a->ns, now_nsec)
                         ? magazine_shortage(a, m->level, reach)
                         : 0;
        n_put = refill_pages(a, n, n_dear, now_nsec);
        if (n_put < n_dear)
                a->ns->clients.vain_nsec = now_nsec;
        return n_put;
}

void magazine_top_up(struct attach *a, uint64_t now_nsec)
{
        struct magazine *m = a->magazine;

        if (!m->is_short)
                return;
        (void)magazine_sync(a); /* a wrong slot value is found at the next refill, too */
        magazine_show(a,
                refill_pages(a, magazine_shortage(a, m->level, pages_allowed(a->ns)), 0, now_nsec));
}

bool magazine_refill(struct attach *a, uint32_t wanted, uint64_t now_nsec)
{
        bool is_clean = magazine_sync(a);
        uint32_t n_put = 0;

        /* A batch of submissions has one time: fills only once in a batch, as that is expensive. */
        if (a->magazine->refill_nsec != now_nsec)
                n_put = fill_magazine(a, wanted, now_nsec);
        atomic_store_explicit(&a->share.header->refill_asked, 0, memory_order_release);
        magazine_show(a, n_put);
        return is_clean;
}
