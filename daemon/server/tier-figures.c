#include "daemon/server/tier-figures.h"

#include <errno.h>

#include "daemon/core/ns.h"
#include "daemon/core/store.h"
#include "daemon/core/tenant.h"
#include "proto/arena.h"

const char *tier_name(enum tier_kind kind)
{
        static const char *const names[TIER_COUNT] = {
                [TIER_DEVICE] = "device",
                [TIER_HOST] = "host",
                [TIER_DISK] = "disk",
        };

        return names[kind];
}

static int make(struct arena *arena, Kvlease__V1__AdminTier **ret)
{
        Kvlease__V1__AdminTier *m = arena_alloc(arena, sizeof(*m));

        if (!m)
                return -ENOMEM;
        kvlease__v1__admin_tier__init(m);
        *ret = m;
        return 0;
}

static void add_ns(Kvlease__V1__AdminTier *m, const struct ns *ns, enum tier_kind kind)
{
        const struct ns_tier *tier = &ns->tiers[kind];

        m->n_sets += tier->n_sets;
        m->pages_sealed += tier->n_pages[PAGE_SEALED];
        m->pages_detached += tier->n_pages[PAGE_DETACHED];
        m->pages_free += tier->n_pages[PAGE_FREE] + tier->n_pages[PAGE_MOVING];
        m->arrived += tier->n_arrived;
        m->damaged += tier->n_damaged;
}

int tier_figures_of_store(struct arena *arena, const struct store *s, enum tier_kind kind,
        Kvlease__V1__AdminTier **ret)
{
        *ret = NULL;
        list_for_each (pool, &s->lower_pools, struct pool, link) {
                if (pool->tier != kind)
                        continue;
                if (!*ret && make(arena, ret) < 0)
                        return -ENOMEM;
                (*ret)->limit_bytes += pool->account.limit_bytes;
                (*ret)->charged_bytes += pool->account.charged_bytes;
        }
        list_for_each (t, &s->tenants, struct tenant, link)
                list_for_each (ns, &t->namespaces, struct ns, link)
                        if (*ret)
                                add_ns(*ret, ns, kind);
        return 0;
}

int tier_figures_of_tenant(struct arena *arena, const struct tenant *t, enum tier_kind kind,
        Kvlease__V1__AdminTier **ret)
{
        int r = make(arena, ret);

        if (r < 0)
                return r;
        (*ret)->limit_bytes = t->accounts[kind].limit_bytes;
        (*ret)->charged_bytes = t->accounts[kind].charged_bytes;
        list_for_each (ns, &t->namespaces, struct ns, link)
                add_ns(*ret, ns, kind);
        return 0;
}

int tier_figures_of_ns(
        struct arena *arena, const struct ns *ns, enum tier_kind kind, Kvlease__V1__AdminTier **ret)
{
        int r;

        *ret = NULL;
        if (!ns->tiers[kind].pool)
                return 0;
        r = make(arena, ret);
        if (r < 0)
                return r;
        (*ret)->charged_bytes = ns_charged_bytes(ns, kind);
        add_ns(*ret, ns, kind);
        return 0;
}
