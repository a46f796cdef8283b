#include "daemon/server/handlers/tier-figures.h"

#include <errno.h>
#include <string.h>

#include "daemon/core/state/ns.h"
#include "daemon/core/state/store.h"
#include "daemon/core/state/tenant.h"
#include "daemon/core/reclaim/prefetch.h"
#include "daemon/tier/disk.h"
#include "proto/arena.h"

static int make_tier(struct arena *arena, Kvlease__V1__AdminTier **ret)
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

/* A disk that couldn't be opened is off; the log has the reason. */
static int add_disk(struct arena *arena, Kvlease__V1__AdminTier *m, const struct disk_file *disk)
{
        static const char *const names[] = {
                [DISK_OK] = "ok", [DISK_FAILING] = "failing", [DISK_OFF] = "off"};
        struct disk_stats s = {
                .state = DISK_OFF, .why = "it could not be opened: kvleased's log says why"};

        if (disk)
                disk_stats(disk, &s);
        m->read_bytes += s.read_bytes;
        m->written_bytes += s.written_bytes;
        m->errors += s.n_errors;
        m->late += s.n_late;
        if (m->state[0] && (s.state == DISK_OK || strcmp(m->state, names[DISK_OFF]) == 0))
                return 0;
        m->state = (char *)names[s.state];
        m->why = arena_alloc(arena, sizeof(s.why));
        if (!m->why)
                return -ENOMEM;
        memcpy(m->why, s.why, sizeof(s.why));
        return 0;
}

int tier_figures_of_store(struct arena *arena, const struct store *s, enum tier_kind kind,
        Kvlease__V1__AdminTier **ret)
{
        *ret = NULL;
        list_for_each (pool, &s->lower_pools, struct pool, link) {
                if (pool->tier != kind)
                        continue;
                if (!*ret && make_tier(arena, ret) < 0)
                        return -ENOMEM;
                (*ret)->limit_bytes += pool->account.limit_bytes;
                (*ret)->charged_bytes += pool->account.charged_bytes;
                if (kind == TIER_DISK && add_disk(arena, *ret, pool->disk) < 0)
                        return -ENOMEM;
        }
        list_for_each (t, &s->tenants, struct tenant, link)
                list_for_each (ns, &t->namespaces, struct ns, link)
                        if (*ret)
                                add_ns(*ret, ns, kind);
        return 0;
}

int tier_figures_of_disk(struct arena *arena, const struct pool *pool, Kvlease__V1__AdminTier **ret)
{
        int r;

        *ret = NULL;
        if (pool->tier != TIER_DISK)
                return 0;
        r = make_tier(arena, ret);
        return r < 0 ? r : add_disk(arena, *ret, pool->disk);
}

int tier_figures_of_tenant(struct arena *arena, const struct tenant *t, enum tier_kind kind,
        Kvlease__V1__AdminTier **ret)
{
        int r = make_tier(arena, ret);

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
        r = make_tier(arena, ret);
        if (r < 0)
                return r;
        (*ret)->charged_bytes = ns_charged_bytes(ns, kind);
        add_ns(*ret, ns, kind);
        return 0;
}

/* ---- ahead of demand ------------------------------------------------------------------------- */

static int make_prefetch(struct arena *arena, Kvlease__V1__AdminPrefetch *ret[PREFETCH_KINDS])
{
        for (unsigned i = 0; i < PREFETCH_KINDS; i++) {
                ret[i] = arena_alloc(arena, sizeof(*ret[i]));
                if (!ret[i])
                        return -ENOMEM;
                kvlease__v1__admin_prefetch__init(ret[i]);
        }
        return 0;
}

static void add_prefetch(const struct ns *ns, Kvlease__V1__AdminPrefetch *ret[PREFETCH_KINDS])
{
        for (unsigned i = 0; i < PREFETCH_KINDS; i++) {
                const struct prefetch *p = prefetch_of(ns, i);

                if (!p)
                        continue;
                ret[i]->begun += p->n_begun;
                ret[i]->useful += p->n_useful;
                ret[i]->wasted += p->n_wasted;
                ret[i]->given_up += p->n_given_up;
                ret[i]->at_stake += p->n_stake;
                ret[i]->window += p->window;
        }
}

int prefetch_figures_of_pool(struct arena *arena, const struct store *s, const struct pool *pool,
        Kvlease__V1__AdminPrefetch *ret[PREFETCH_KINDS])
{
        int r = pool->tier == TIER_DEVICE && pool->below ? make_prefetch(arena, ret) : 0;

        if (r < 0 || !ret[0])
                return r;
        list_for_each (t, &s->tenants, struct tenant, link)
                list_for_each (ns, &t->namespaces, struct ns, link)
                        if (ns->device.pool == pool)
                                add_prefetch(ns, ret);
        return 0;
}

int prefetch_figures_of_ns(
        struct arena *arena, const struct ns *ns, Kvlease__V1__AdminPrefetch *ret[PREFETCH_KINDS])
{
        int r = ns->device.pool->below ? make_prefetch(arena, ret) : 0;

        if (r == 0 && ret[0])
                add_prefetch(ns, ret);
        return r;
}
