#include "daemon/server/handlers/tier-figures.h"

#include <errno.h>
#include <string.h>

#include "daemon/core/state/ns.h"
#include "daemon/core/state/store.h"
#include "daemon/core/state/tenant.h"
#include "daemon/core/reclaim/prefetch.h"
#include "daemon/tier/disk.h"
#include "proto/arena.h"

/* Makes all figures of a part absent. */
static void set_none(void *part, size_t size)
{
        memset(part, 0xff, size);
        static_assert(FIGURE_NONE == UINT64_MAX, "all bits of an absent figure are 1");
}

static void add_ns(struct figures_tier *m, const struct ns *ns, enum tier_kind kind)
{
        const struct ns_tier *tier = &ns->tiers[kind];

        m->n_sets += tier->n_sets;
        m->pages_sealed += tier->n_pages[PAGE_SEALED];
        m->pages_detached += tier->n_pages[PAGE_DETACHED];
        m->pages_free += tier->n_pages[PAGE_FREE] + tier->n_pages[PAGE_MOVING];
        m->arrived += tier->n_arrived;
        m->damaged += tier->n_damaged;
}

/* Adds a disk. *state and *why become those of the worst disk; *state NULL: this is the first. A
 * disk that couldn't be opened is off; the log has the reason. */
static int add_disk(struct arena *arena, struct figures_tier *m, const char **state,
        const char **why, const struct disk_file *disk)
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
        if (*state && (s.state == DISK_OK || strcmp(*state, names[DISK_OFF]) == 0))
                return 0;
        *state = names[s.state];
        *why = arena_strdup(arena, s.why);
        return *why ? 0 : -ENOMEM;
}

static int sum_up_tier(struct arena *arena, const struct store *s, enum tier_kind kind,
        struct figures_tier *tier, struct figures_status *row)
{
        bool has_tier = false;

        set_none(tier, sizeof(*tier));
        list_for_each (pool, &s->lower_pools, struct pool, link) {
                if (pool->tier != kind)
                        continue;
                if (!has_tier)
                        *tier = (struct figures_tier){0};
                has_tier = true;
                tier->limit_bytes += pool->account.limit_bytes;
                tier->charged_bytes += pool->account.charged_bytes;
                if (kind == TIER_DISK &&
                        add_disk(arena, tier, &row->disk_state, &row->disk_why, pool->disk) < 0)
                        return -ENOMEM;
        }
        list_for_each (t, &s->tenants, struct tenant, link)
                list_for_each (ns, &t->namespaces, struct ns, link)
                        if (has_tier)
                                add_ns(tier, ns, kind);
        return 0;
}

int tier_figures_of_store(
        struct arena *arena, const struct store *s, struct figures_status *ret_row)
{
        int r = sum_up_tier(arena, s, TIER_HOST, &ret_row->host, ret_row);

        ret_row->disk_state = ret_row->disk_why = NULL;
        return r < 0 ? r : sum_up_tier(arena, s, TIER_DISK, &ret_row->disk, ret_row);
}

int tier_figures_of_disk(
        struct arena *arena, const struct pool *pool, struct figures_device *ret_row)
{
        set_none(&ret_row->disk, sizeof(ret_row->disk));
        if (pool->tier != TIER_DISK)
                return 0;
        ret_row->disk = (struct figures_tier){0};
        ret_row->state = NULL;
        return add_disk(arena, &ret_row->disk, &ret_row->state, &ret_row->why, pool->disk);
}

void tier_figures_of_tenant(
        const struct tenant *t, enum tier_kind kind, struct figures_tier *ret_tier)
{
        *ret_tier = (struct figures_tier){.limit_bytes = t->accounts[kind].limit_bytes,
                .charged_bytes = t->accounts[kind].charged_bytes};
        list_for_each (ns, &t->namespaces, struct ns, link)
                add_ns(ret_tier, ns, kind);
}

void tier_figures_of_ns(const struct ns *ns, enum tier_kind kind, struct figures_tier *ret_tier)
{
        set_none(ret_tier, sizeof(*ret_tier));
        if (!ns->tiers[kind].pool)
                return;
        *ret_tier = (struct figures_tier){.charged_bytes = ns_charged_bytes(ns, kind)};
        add_ns(ret_tier, ns, kind);
}

/* ---- ahead of demand ------------------------------------------------------------------------- */

static void add_prefetch(const struct ns *ns, enum prefetch_kind kind, struct figures_prefetch *ret)
{
        const struct prefetch *p = prefetch_of(ns, kind);

        if (!p)
                return;
        ret->begun += p->n_begun;
        ret->useful += p->n_useful;
        ret->wasted += p->n_wasted;
        ret->given_up += p->n_given_up;
        ret->at_stake += p->n_stake;
        ret->window += p->window;
}

void prefetch_figures_of_pool(const struct store *s, const struct pool *pool,
        enum prefetch_kind kind, struct figures_prefetch *ret)
{
        set_none(ret, sizeof(*ret));
        if (pool->tier != TIER_DEVICE || !pool->below)
                return;
        *ret = (struct figures_prefetch){0};
        list_for_each (t, &s->tenants, struct tenant, link)
                list_for_each (ns, &t->namespaces, struct ns, link)
                        if (ns->device.pool == pool)
                                add_prefetch(ns, kind, ret);
}

void prefetch_figures_of_ns(
        const struct ns *ns, enum prefetch_kind kind, struct figures_prefetch *ret)
{
        set_none(ret, sizeof(*ret));
        if (!ns->device.pool->below)
                return;
        *ret = (struct figures_prefetch){0};
        add_prefetch(ns, kind, ret);
}
