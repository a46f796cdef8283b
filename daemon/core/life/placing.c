#include "daemon/core/life/placing.h"

#include <errno.h>
#include <string.h>

#include "base/macros.h"
#include "daemon/core/state/detail.h"
#include "daemon/core/memory/sets.h"
#include "daemon/core/state/ns.h"
#include "daemon/core/state/store.h"
#include "daemon/core/state/tenant.h"
#include "daemon/core/memory/region.h"
#include "gpu/queue.h"

#define DEVICES_MAX 64 /* more than a daemon has; further ones are chosen by name only */

static uint32_t count_namespaces(const struct tenant *t, const struct pool *pool)
{
        uint32_t n = 0;

        list_for_each (ns, &t->namespaces, struct ns, link)
                n += ns->device.pool == pool;
        return n;
}

bool placing_is_on(const struct tenant *t, const struct pool *pool)
{
        return pool_share_find(t, pool)->reserve_bytes > 0 || count_namespaces(t, pool) > 0;
}

const struct tenant *placing_owner(const struct pool *pool)
{
        list_for_each (s, &pool->shares, struct pool_share, pool_link)
                if (s->tenant->attrs.exclusive && placing_is_on(s->tenant, pool))
                        return s->tenant;
        return NULL;
}

static uint32_t count_others(const struct tenant *t, const struct pool *pool)
{
        uint32_t n = 0;

        list_for_each (s, &pool->shares, struct pool_share, pool_link)
                n += s->tenant != t && placing_is_on(s->tenant, pool);
        return n;
}

static struct place_device look_at_device(const struct tenant *t, const struct pool *pool)
{
        const struct pool_share *s = pool_share_find(t, pool);
        const struct tenant *owner = placing_owner(pool);
        uint64_t taken =
                pool->account.charged_bytes + pool->idle_reserve_bytes - pool_share_idle(s);

        return (struct place_device){
                .budget_bytes = pool->account.limit_bytes,
                .free_bytes = pool->account.limit_bytes - MIN(taken, pool->account.limit_bytes),
                .own_bytes = MAX(s->charged_bytes, s->reserve_bytes),
                .n_own = count_namespaces(t, pool),
                .n_others = count_others(t, pool),
                .is_exclusive = owner && owner != t,
                .is_named = strcmp(pool->props->name, t->attrs.device) == 0,
                .is_broken = pool->queue && queue_is_broken(pool->queue),
        };
}

size_t placing_look(const struct tenant *t, struct place_device *ret_devices, size_t max)
{
        size_t n = 0;

        list_for_each (pool, &t->store->pools, struct pool, link)
                if (n < max)
                        ret_devices[n++] = look_at_device(t, pool);
        return n;
}

static int check_named(const struct tenant *t, const struct pool *pool, struct detail *d)
{
        const struct tenant *owner = placing_owner(pool);

        if (owner && owner != t)
                return detail_set(d, -EACCES,
                        "device %s is kept for one tenant alone: name another device, or none",
                        pool->props->name);
        if (t->attrs.exclusive && count_others(t, pool) > 0)
                return detail_set(d, -EACCES,
                        "tenant %s is to have its devices for itself and others are on device %s: name another device, or none",
                        t->name, pool->props->name);
        return 0;
}

static int refuse_placing(const struct tenant *t, struct detail *d)
{
        if (t->attrs.placement == PLACE_DEVICE && !store_find_pool(t->store, t->attrs.device))
                return detail_set(d, -ENOENT,
                        "tenant %s is placed on device %s, which kvleased doesn't own: name another device, or correct the tenant's placement",
                        t->name, t->attrs.device);
        return detail_set(d, -EACCES,
                t->attrs.exclusive
                        ? "no device is left that tenant %s could have for itself: add one to 'devices', or set exclusive=off"
                        : "every device that tenant %s may be placed on is kept for "
                          "another one alone: change its placement, or add a device",
                t->name);
}

/* Returns the layout's largest set on any of the devices. Devices that can't hold one count as
 * broken. */
static uint64_t set_bytes_of(const struct tenant *t, const struct ns_layout *layout,
        uint64_t stride_bytes, struct place_device *devices)
{
        struct place_device *device = devices;
        uint64_t bytes = 0;

        list_for_each (pool, &t->store->pools, struct pool, link) {
                struct set_source source = pool_set_source(pool);
                struct ns_geometry g;

                if (device == devices + DEVICES_MAX)
                        break;
                if (ns_geometry_of(layout, &source, stride_bytes, &g, NULL) == 0)
                        bytes = MAX(bytes, g.set_bytes);
                else
                        device->is_broken = true;
                device++;
        }
        return bytes;
}

static struct pool *pool_at(const struct store *s, size_t index)
{
        list_for_each (pool, &s->pools, struct pool, link)
                if (index-- == 0)
                        return pool;
        return NULL;
}

int placing_choose(const struct tenant *t, const struct ns_layout *layout, uint64_t stride_bytes,
        const char *device, struct pool **ret_pool, struct detail *d)
{
        struct place_device devices[DEVICES_MAX];
        bool is_named = device && device[0];
        uint64_t set_bytes;
        size_t n, found;

        *ret_pool = is_named ? store_find_pool(t->store, device) : NULL;
        if (is_named && !*ret_pool)
                return detail_set(d, -ENOENT, "no device %s; see: kvleasectl devices", device);
        if (is_named)
                return check_named(t, *ret_pool, d);
        n = placing_look(t, devices, DEVICES_MAX);
        set_bytes = set_bytes_of(t, layout, stride_bytes, devices);
        found = place_choose(devices, n, t->attrs.placement, t->attrs.exclusive, set_bytes);
        if (found == SIZE_MAX) {
                /* Retries with broken devices: opening there reports the error. */
                for (size_t i = 0; i < n; i++)
                        devices[i].is_broken = false;
                found = place_choose(devices, n, t->attrs.placement, t->attrs.exclusive, set_bytes);
        }
        if (n == 0)
                return detail_set(d, -ENOENT, "no device at all; see: kvleasectl devices");
        if (found == SIZE_MAX)
                return refuse_placing(t, d);
        *ret_pool = pool_at(t->store, found);
        return 0;
}
