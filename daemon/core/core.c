#include "daemon/core/core.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/core/cache/drop.h"
#include "daemon/core/cache/expire.h"
#include "daemon/core/cache/history.h"
#include "daemon/core/cache/nsset.h"
#include "daemon/core/clients/client-record.h"
#include "daemon/core/state/detail.h"
#include "daemon/core/life/idle.h"
#include "daemon/core/life/namespace.h"
#include "daemon/core/life/tenant-life.h"
#include "daemon/core/memory/discard.h"
#include "daemon/core/memory/dma.h"
#include "daemon/core/memory/sets.h"
#include "daemon/core/memory/idle-sets.h"
#include "daemon/core/moves/space.h"
#include "daemon/core/moves/transfer.h"
#include "daemon/core/state/group.h"
#include "daemon/core/state/listeners.h"
#include "daemon/core/state/ns.h"
#include "daemon/core/state/tenant.h"
#include "daemon/core/memory/region.h"
#include "daemon/core/reclaim/compact.h"
#include "daemon/core/reclaim/reclaim.h"
#include "daemon/core/state/state.h"
#include "daemon/core/requests/refill.h"
#include "daemon/core/sessions/session.h"
#include "daemon/core/wiring.h"
#include "daemon/tier/disk.h"
#include "gpu/queue.h"

void store_init(struct store *s, const struct evict_ops *evict)
{
        *s = (struct store){
                .listeners = &core_listeners,
                .evict = evict,
                .min_page_bytes = NS_MIN_PAGE_BYTES,
                .secret = hash_seed_random(),
                .room = {.guard = SEGMENT_MEMFD, .write_fd = -1, .read_fd = -1},
        };
        s->state = &s->own_state;
        list_init(&s->pools);
        list_init(&s->lower_pools);
        list_init(&s->tenants);
        list_init(&s->memory.idle_sets);
        list_init(&s->recalls.sets);
        list_init(&s->waits.leases);
        list_init(&s->leasables.namespaces);
        list_init(&s->tasks);
        list_init(&s->ns_walks);
        s->drop_slice_pages = DROP_SLICE_PAGES;
        list_init(&s->moves);
        list_init(&s->moving.transfers);
        list_init(&s->moving.batches);
        list_init(&s->fetching.fetches);
        list_init(&s->moving.promises);
        discards_init(&s->memory.discards);
}

static bool pool_free(struct pool *pool)
{
        bool is_done = queue_close(pool->queue);

        pool_forget_orphans(pool);
        if (pool->below)
                dma_end(pool->below, is_done);
        assert(pool->n_sets == 0 && pool->account.charged_bytes == 0);
        list_remove(&pool->link);
        device_close(pool->device);
        free(pool);
        return is_done;
}

bool store_close_disks(struct store *s)
{
        bool is_done = true;

        list_for_each (t, &s->tenants, struct tenant, link)
                list_for_each (ns, &t->namespaces, struct ns, link)
                        space_close(ns, true);
        space_cancel_promises(s);
        list_for_each (pool, &s->lower_pools, struct pool, link) {
                if (pool->disk)
                        is_done &= disk_close(pool->disk);
                pool->disk = NULL;
        }
        return is_done;
}

bool store_deinit(struct store *s)
{
        bool is_done = true;

        assert(s->n_members == 0);

        idle_sets_drain(s);
        list_for_each_safe (t, &s->tenants, struct tenant, link)
                tenant_free(t);
        discards_stop(&s->memory.discards);
        is_done &= store_close_disks(s);
        list_for_each_safe (
                pool, &s->pools, struct pool, link) /* their queues use memory of lower pools */
                is_done &= pool_free(pool);
        list_for_each_safe (pool, &s->lower_pools, struct pool, link)
                is_done &= pool_free(pool);
        compact_deinit(s);
        transfer_deinit(s);
        segment_room_close(&s->room);
        client_records_close(s);
        state_close(s);
        event_log_close(&s->event_log);
        return is_done;
}

static int check_budget(
        const char *name, uint64_t budget_bytes, uint64_t extent_bytes, struct detail *d)
{
        char budget[FORMAT_BYTES_MAX], extent[FORMAT_BYTES_MAX];

        if (extent_bytes > 0 && budget_bytes >= extent_bytes)
                return 0;
        return detail_set(d, -EINVAL,
                "device %s: a budget of %s holds no extent set of %s; raise the budget or make extents smaller",
                name, format_bytes(budget_bytes, budget), format_bytes(extent_bytes, extent));
}

/* Makes a pool that is in no list yet. NULL: no memory. */
static struct pool *pool_new(
        struct store *s, enum tier_kind tier, uint64_t budget_bytes, uint64_t extent_bytes)
{
        struct pool *pool = calloc(1, sizeof(*pool));
        int r = 0;

        if (!pool)
                return NULL;
        pool->tier = tier;
        pool->discards = &s->memory.discards;
        pool->account.limit_bytes = budget_bytes;
        pool->extent_bytes = extent_bytes;
        list_init(&pool->orphans);
        list_init(&pool->leaving);
        list_init(&pool->shares);
        list_for_each (t, &s->tenants, struct tenant, link)
                if (r == 0)
                        r = pool_share_new(t, pool);
        if (r == 0)
                return pool;
        list_for_each_safe (share, &pool->shares, struct pool_share, pool_link)
                pool_share_free(share);
        free(pool);
        return NULL;
}

static int add_pool(struct store *s, const struct device_props *props, uint64_t budget_bytes,
        uint64_t extent_bytes, struct pool **ret_pool, struct detail *d)
{
        const char *name = props->name;
        struct pool *pool;
        int r = check_budget(name, budget_bytes, extent_bytes, d);

        if (r < 0)
                return r;
        list_for_each (other, &s->pools, struct pool, link)
                if (strcmp(other->props->name, name) == 0)
                        return detail_set(d, -EEXIST, "device %s is given twice", name);
        pool = pool_new(s, TIER_DEVICE, budget_bytes, extent_bytes);
        if (!pool)
                return detail_set(d, -ENOMEM, "no memory for device %s", name);
        pool->props = props;
        list_append(&s->pools, &pool->link);
        *ret_pool = pool;
        return 0;
}

int store_add_pool(struct store *s, struct device *device, uint64_t budget_bytes,
        uint64_t extent_bytes, struct detail *d)
{
        struct pool *pool;
        int r = add_pool(s, &device->props, budget_bytes, extent_bytes, &pool, d);

        if (r == 0)
                pool->device = device;
        return r;
}

int store_add_queue(struct store *s, struct queue *queue, uint64_t budget_bytes,
        uint64_t extent_bytes, struct detail *d)
{
        struct pool *pool;
        int r = add_pool(s, queue_props(queue), budget_bytes, extent_bytes, &pool, d);

        if (r == 0)
                pool->queue = queue;
        return r;
}

/* Names a lower tier for messages: "host of GPU-...". Below the device "host" it is "cold memory of
 * host". */
static void name_below(
        struct device_props *props, enum tier_kind tier, const struct device_props *above)
{
        const char *of = strrchr(above->name, ' '); /* names of devices have none */
        const char *what = tier == TIER_DISK                  ? "disk"
                           : strcmp(above->name, "host") == 0 ? "cold memory"
                                                              : "host";

        snprintf(props->name, sizeof(props->name), "%s of %.*s", what, DEVICE_NAME_MAX - 15,
                of ? of + 1 : above->name);
}

/* The properties of a disk, which has no device. */
static const struct device_props disk_props = {
        .backend = "disk",
        .survives_restart = true,
};

static int add_below(struct store *s, struct pool *above, enum tier_kind tier,
        struct device_props *props, uint64_t budget_bytes, uint64_t extent_bytes, struct detail *d)
{
        struct pool *pool;
        int r;

        assert(tier > above->tier && tier < TIER_COUNT && !above->below);

        name_below(props, tier, above->props);
        r = check_budget(props->name, budget_bytes, extent_bytes, d);
        if (r < 0)
                return r;
        pool = pool_new(s, tier, budget_bytes, extent_bytes);
        if (!pool)
                return detail_set(d, -ENOMEM, "no memory for device %s", props->name);
        pool->lower_props = *props;
        pool->props = &pool->lower_props;
        above->below = pool;
        pool->above = above;
        list_append(&s->lower_pools, &pool->link);
        return 0;
}

int store_add_below(struct store *s, struct pool *above, struct device *device,
        uint64_t budget_bytes, uint64_t extent_bytes, struct detail *d)
{
        struct device_props props = device->props;
        int r = add_below(s, above, TIER_HOST, &props, budget_bytes, extent_bytes, d);

        if (r == 0)
                above->below->device = device;
        return r;
}

int store_add_disk(struct store *s, struct pool *above, struct disk_file *disk,
        uint64_t budget_bytes, uint64_t extent_bytes, struct detail *d)
{
        struct device_props props = disk_props;
        int r = add_below(s, above, TIER_DISK, &props, budget_bytes, extent_bytes, d);

        if (r == 0)
                above->below->disk = disk;
        return r;
}

static void top_up(struct ns *ns, uint64_t now_nsec)
{
        ns->sets.changed = false;
        list_for_each (a, &ns->clients.attachments, struct attach, ns_link)
                if (a->magazine)
                        magazine_top_up(a, now_nsec);
        tenant_tell(ns->tenant, ns_has_room, ns);
        idle_sets_add_all(ns);
}

void store_top_up(struct store *s, const struct pool *pool, uint64_t now_nsec)
{
        store_set_now(s, now_nsec);
        list_for_each (t, &s->tenants, struct tenant, link)
                list_for_each (ns, &t->namespaces, struct ns, link)
                        if (ns->device.pool == pool && ns->sets.changed)
                                top_up(ns, now_nsec);
}

bool store_policy_work(struct store *s, uint64_t now_nsec)
{
        bool more = false;

        store_set_now(s, now_nsec);
        list_for_each (t, &s->tenants, struct tenant, link)
                list_for_each (ns, &t->namespaces, struct ns, link) {
                        ns->learnt.has_work = ns->learnt.has_work && ns->evict->work &&
                                              ns->evict->work(ns->policy, now_nsec);
                        more |= ns->learnt.has_work;
                }
        return more;
}

static struct ns *find_stale(const struct store *s)
{
        list_for_each (t, &s->tenants, struct tenant, link)
                list_for_each (ns, &t->namespaces, struct ns, link)
                        if (ns->catalog.n_stale > 0 || sessions_are_left(ns))
                                return ns;
        return NULL;
}

bool store_work(struct store *s, uint32_t budget)
{
        struct ns *ns = find_stale(s);
        bool more = ns && (ns_sweep(ns, budget) || find_stale(s));

        more |= expire_work(s, budget);
        more |= nssets_work(s, budget);
        more |= idle_work(s);
        return more;
}

static int purge_ns(struct ns *ns, bool remove, uint64_t *n_pages, uint64_t *n_kept)
{
        uint64_t n = ns_count_findable(ns);
        int r;

        if (remove && list_is_empty(&ns->clients.attachments) &&
                list_is_empty(&ns->clients.closing)) {
                r = space_erase(ns);
                if (r < 0)
                        return r;
                tenant_tell(ns->tenant, invalidated, ns, NULL, 0);
                ns_free(ns);
        } else {
                r = ns_invalidate(ns, CAUSE_PURGE, &n);
                if (r < 0)
                        return r;
                *n_kept += remove;
        }
        *n_pages += n;
        return 0;
}

int store_purge(struct store *s, struct tenant *t, struct ns *only, bool remove,
        uint64_t *ret_pages, uint64_t *ret_kept)
{
        uint64_t n_pages = 0, n_kept = 0;
        int r = 0;

        assert(!only || only->tenant == t);

        if (!only)
                space_erase_unopened(t);
        list_for_each_safe (ns, &t->namespaces, struct ns, link) {
                if (only && ns != only)
                        continue;
                r = purge_ns(ns, remove, &n_pages, &n_kept);
                if (r < 0)
                        break;
        }
        if (r < 0)
                return r;
        *ret_pages = n_pages;
        *ret_kept = n_kept;
        return 0;
}
