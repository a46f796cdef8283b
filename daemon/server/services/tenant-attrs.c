#include "daemon/server/services/tenant-attrs.h"

#include <errno.h>
#include <string.h>

#include "base/macros.h"
#include "base/parse.h"
#include "daemon/core/state/store.h"
#include "daemon/server/config/tenant-check.h"

/* A reservation is whole extents: at least one, on any device. */
static int check_extent(const struct store *s, const struct tenant_config *c, struct detail *d)
{
        char a[FORMAT_BYTES_MAX], b[FORMAT_BYTES_MAX];
        uint64_t least = UINT64_MAX;

        list_for_each (pool, &s->pools, struct pool, link)
                least = MIN(least, pool->extent_bytes);
        if (c->reservation.max_bytes == TENANT_RESERVE_AUTO || c->reservation.max_bytes == 0 ||
                c->reservation.max_bytes >= least)
                return 0;
        return detail_set(d, -EINVAL,
                "reserve_max (%s) is less than an extent set (%s), of which a reservation has "
                "whole "
                "ones: raise it, or set it to 0",
                format_bytes(c->reservation.max_bytes, a), format_bytes(least, b));
}

int tenant_attrs_of(struct store *s, uint64_t budget_bytes, const struct tenant_config *c,
        struct tenant_attrs *ret_attrs, struct sizing_attrs *ret_sizing, struct detail *d)
{
        const char *device = "";

        *ret_attrs = (struct tenant_attrs){
                .limit_bytes = MIN(c->limit_bytes, budget_bytes),
                .host_limit_bytes = c->host_limit_bytes,
                .disk_limit_bytes = c->disk_limit_bytes,
                .weight = c->weight,
                .priority = c->priority,
                .max_clients = c->max_clients,
                .max_pins = c->max_pins,
                .class = c->class,
                .reserve_bytes = c->reservation.bytes,
                .when_full = c->when_full,
                .max_wait_nsec = c->max_wait_nsec,
                .burst = c->burst,
                .lend_idle_reserve = c->reservation.lends_idle,
                .exclusive = c->exclusive,
                .evict = evict_find(config_tenant_evict_names[c->eviction.policy]),
                .crossover_tokens = c->eviction.miss_cost == MISS_COST_COMPUTE
                                            ? c->eviction.attention_crossover
                                            : 0,
                .expire_nsec = c->expire_nsec,
                .expire_unused_nsec = c->expire_unused_nsec,
                .session_expire_nsec = c->session_expire_nsec,
                .free_ahead = c->free_ahead,
                .prefetch_steps = c->prefetch_steps,
                .events_bytes = c->events_bytes,
        };
        *ret_sizing = (struct sizing_attrs){
                .mode = c->reservation.sizer,
                .min_bytes = tenant_reserve_min(c),
                .max_bytes = tenant_reserve_max(c),
        };
        (void)schedule_parse(
                c->reservation.schedule, &ret_sizing->schedule, d->text, sizeof(d->text));
        (void)placement_parse(c->placement, &ret_attrs->placement, &device);
        strcpy(ret_attrs->device, device);
        strcpy(ret_attrs->host_codec, c->host_codec);
        strcpy(ret_attrs->disk_codec, c->disk_codec);
        if (*device && !store_find_pool(s, device))
                return detail_set(d, -ENODEV,
                        "placement names device %s, which kvleased doesn't own: kvleasectl devices "
                        "lists those it does",
                        device);
        return check_extent(s, c, d);
}
