#include "daemon/server/services/tenants.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/macros.h"
#include "base/parse.h"
#include "daemon/core/life/placing.h"
#include "daemon/core/life/sizing.h"
#include "daemon/core/life/tenant-life.h"
#include "daemon/core/memory/region.h"
#include "daemon/core/reclaim/warm.h"
#include "daemon/core/state/group.h"
#include "daemon/core/state/ns.h"
#include "daemon/core/state/pool.h"
#include "daemon/core/state/store.h"
#include "daemon/core/state/tenant.h"
#include "daemon/server/base/log.h"
#include "daemon/server/config/remote-config.h"
#include "daemon/server/config/tenant-check.h"
#include "daemon/server/peers/followers.h"
#include "daemon/server/peers/listener.h"
#include "daemon/server/peers/peer.h"
#include "daemon/server/peers/server.h"
#include "daemon/server/peers/turns.h"
#include "daemon/server/services/learnt.h"
#include "daemon/server/services/remotes.h"
#include "daemon/server/services/timers.h"

struct tenancy *tenancy_find(struct server *s, const char *name)
{
        struct tenant *t = tenant_find(&s->store, name);

        return t ? t->server_data : NULL;
}

/* Bytes reserved for the tenant now, on all devices. */
static uint64_t reserved(const struct tenant *t)
{
        uint64_t sum = 0;

        list_for_each (share, &t->shares, struct pool_share, tenant_link)
                sum += share->reserve_bytes;
        return sum;
}

int tenancy_listen(struct tenancy *t, struct detail *d)
{
        return listener_open(t->server, LISTEN_TENANT, t, &t->listener, d);
}

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
                "reserve_max (%s) is less than an extent set (%s), of which a reservation has whole ones: raise it, or set it to 0",
                format_bytes(c->reservation.max_bytes, a), format_bytes(least, b));
}

/*
 * Makes the attributes of a tenant with consistent options. Its limit is cut to `budget_bytes`, the
 * size of all pools of the store. Returns 0; -ENODEV: its device isn't owned (both results are set
 * all the same); -EINVAL: a reserve_max below one extent. Errors come with the sentence.
 */
static int tenant_attrs_of(struct store *s, uint64_t budget_bytes, const struct tenant_config *c,
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
                        "placement names device %s, which kvleased doesn't own: kvleasectl devices lists those it does",
                        device);
        return check_extent(s, c, d);
}

/* Refuses `exclusive` if the tenant has namespaces on a device with other tenants. */
static int check_exclusive(
        const struct tenant *t, const struct tenant_attrs *attrs, struct detail *d)
{
        if (!attrs->exclusive || t->attrs.exclusive)
                return 0;
        list_for_each (ns, &t->namespaces, struct ns, link)
                list_for_each (share, &ns->device.pool->shares, struct pool_share, pool_link)
                        if (share->tenant != t && placing_is_on(share->tenant, ns->device.pool))
                                return detail_set(d, -EBUSY,
                                        "tenant %s can't have device %s for itself: others have "
                                        "namespaces or reservations there; purge its namespaces "
                                        "there with kvleasectl purge %s --remove, or move the others",
                                        t->name, ns->device.pool->props->name, t->name);
        return 0;
}

/* Checks the configuration and makes its attributes. Returns 0; -ENODEV: its device doesn't exist,
 * all else is set. */
static int check_config(struct server *s, const struct tenant_config *config,
        struct tenant_attrs *ret_attrs, struct sizing_attrs *ret_sizing, struct detail *d)
{
        int r = tenant_config_check(config, &s->config.daemon, d);

        if (r == 0)
                r = config_check_socket_path(
                        s->config.daemon.runtime_dir, config->name, d->text, sizeof(d->text));
        return r < 0 ? r
                     : tenant_attrs_of(
                               &s->store, s->budget_bytes, config, ret_attrs, ret_sizing, d);
}

/* Makes the tenancy with these attributes of its configuration. */
static int make_tenancy(struct server *s, const struct tenant_config *config, bool from_config,
        const struct tenant_attrs *attrs, const struct sizing_attrs *sizing,
        struct tenancy **ret_tenancy, struct detail *d)
{
        struct tenancy *t = calloc(1, sizeof(*t));
        int r;

        if (!t)
                return detail_set(d, -ENOMEM, "out of memory");
        r = tenant_new(&s->store, config->name, attrs, &t->tenant, d);
        if (r < 0) {
                free(t);
                return r;
        }
        t->server = s;
        t->config = *config;
        t->from_config = from_config;
        t->tenant->server_data = t;
        turns_init_tenancy(t);
        r = sizing_set(t->tenant, sizing);
        if (r < 0)
                detail_set(d, r, "no memory for the sizer of tenant %s", config->name);
        else if (s->life.serving)
                r = tenancy_listen(t, d);
        if (r < 0) {
                tenant_free(t->tenant);
                free(t);
                return r;
        }
        t->id = ++s->tenancies.last_id;
        list_append(&s->tenancies.list, &t->link);
        remotes_apply(s, t->tenant, config);
        sizing_timer_update(s);
        *ret_tenancy = t;
        return 0;
}

/* Checks that the tenant's exchange can work, when an administrator changes it. A tenant whose
 * exchange fails later is served without it. */
static int check_exchange(struct server *s, const struct tenant_config *config, struct detail *d)
{
        const struct tenancy *t = tenancy_find(s, config->name);
        struct exchange_tenant secret;
        int r;

        if (t && strcmp(t->config.remote.name, config->remote.name) == 0 &&
                strcmp(t->config.remote.secret_file, config->remote.secret_file) == 0)
                return 0;
        if (config->remote.name[0] && !config_find_remote(&s->config, config->remote.name))
                return detail_set(d, -EINVAL,
                        "remote = %s: kvleased was started without a section [remote %s]: name another, or add it and restart",
                        config->remote.name, config->remote.name);
        r = tenant_secret_read(config, &secret, d);
        tenant_secret_wipe(&secret);
        return r < 0 ? -EINVAL : 0;
}

int tenancy_check(struct server *s, const struct tenant_config *config, struct detail *d)
{
        struct sizing_attrs sizing;
        struct tenant_attrs attrs;
        int r = check_config(s, config, &attrs, &sizing, d);

        if (r == 0)
                r = check_exchange(s, config, d);
        return r == -ENODEV ? -EINVAL : r;
}

int tenancy_add(struct server *s, const struct tenant_config *config, bool from_config,
        struct tenancy **ret_tenancy, struct detail *d)
{
        struct sizing_attrs sizing;
        struct tenant_attrs attrs;
        int r = check_config(s, config, &attrs, &sizing, d);

        if (r == 0)
                r = make_tenancy(s, config, from_config, &attrs, &sizing, ret_tenancy, d);
        return r == -ENODEV ? -EINVAL : r;
}

static uint64_t smallest_extent(const struct server *s)
{
        uint64_t least = UINT64_MAX;

        list_for_each (pool, &s->store.pools, struct pool, link)
                least = MIN(least, pool->extent_bytes);
        return least;
}

/* Reserves as much as fits, at most `most`, by bisection; other attributes stay. */
static void reserve_what_fits(struct tenancy *t, uint64_t most)
{
        uint64_t step = smallest_extent(t->server), fits = reserved(t->tenant) / step;
        uint64_t too_many = most / step + 2;
        struct tenant_attrs attrs = t->tenant->attrs;

        while (fits + 1 < too_many) {
                uint64_t n = fits + (too_many - fits) / 2;

                attrs.reserve_bytes = MIN(n * step, most);
                if (tenant_set_attrs(t->tenant, &attrs, NULL) == 0)
                        fits = n;
                else
                        too_many = n;
        }
}

/*
 * Adds a tenant without its reservation. At the start, an option that kvleasectl set may not fit
 * files or devices that changed since. All other tenants start, and so does this one; its options
 * stay, for an administrator to correct.
 */
static int add_without_reserve(
        struct server *s, const struct tenant_config *config, bool from_config, struct detail *d)
{
        struct tenant_config safe = *config;
        struct detail refusal = *d;
        struct sizing_attrs sizing;
        struct tenant_attrs attrs;
        struct tenancy *t;
        int r;

        safe.reservation.bytes = 0;
        safe.reservation.min_bytes = safe.reservation.max_bytes = TENANT_RESERVE_AUTO;
        safe.reservation.sizer = SIZING_OFF;
        safe.reservation.schedule[0] = '\0';
        r = check_config(s, &safe, &attrs, &sizing, d);
        if (r == 0 || r == -ENODEV)
                r = make_tenancy(s, &safe, from_config, &attrs, &sizing, &t, d);
        if (r < 0)
                return r;
        t->config = *config;
        log_error(
                "tenant %s: %s; until that is corrected, in the configuration or with kvleasectl tenants set %s, it has no reservation",
                config->name, refusal.text, config->name);
        return 0;
}

/* Adds a tenant at the start. If its reservation doesn't fit today's devices, it has none at
 * first. */
static int add_at_start(
        struct server *s, const struct tenant_config *config, bool from_config, struct detail *d)
{
        struct sizing_attrs sizing;
        struct tenant_attrs attrs;
        struct tenancy *t;
        int r = check_config(s, config, &attrs, &sizing, d), refusal;

        if (r == -EINVAL && tenantdb_find(&s->db, config->name))
                return add_without_reserve(s, config, from_config, d);
        if (r < 0 && r != -ENODEV)
                return r;
        refusal = r < 0 ? r : make_tenancy(s, config, from_config, &attrs, &sizing, &t, d);
        if (refusal != -ENODEV && refusal != -ENOSPC)
                return refusal;
        if (refusal == -ENODEV)
                log_error(
                        "tenant %s: %s: until then it has no reservation, and its clients must name a device",
                        config->name, d->text);
        attrs.reserve_bytes = 0;
        r = make_tenancy(s, config, from_config, &attrs, &sizing, &t, d);
        if (r == 0)
                t->is_short = refusal == -ENOSPC;
        return r;
}

/* After all fitting reservations: reserves the rest for a short tenant. */
static void fill_up(struct tenancy *t)
{
        char wanted[FORMAT_BYTES_MAX], got[FORMAT_BYTES_MAX];
        struct tenant_attrs attrs = t->tenant->attrs;
        struct detail d = {""};

        t->is_short = false;
        attrs.reserve_bytes = t->config.reservation.bytes;
        if (tenant_set_attrs(t->tenant, &attrs, &d) == 0)
                return;
        reserve_what_fits(t, t->config.reservation.bytes);
        log_error("tenant %s: %s: it runs with a reservation of %s instead of %s", t->config.name,
                d.text, format_bytes(reserved(t->tenant), got),
                format_bytes(t->config.reservation.bytes, wanted));
}

/*
 * A reservation that was asked for, or that a sizer no longer moves, is in force afterwards, at its
 * configured size. Otherwise the rest of one that didn't fit at the start stays, so that a change
 * of another option isn't refused.
 */
static int set_attrs(struct tenancy *t, const struct tenant_config *config, bool asked,
        struct tenant_attrs *attrs, struct detail *d)
{
        uint64_t before = t->tenant->attrs.reserve_bytes, wanted = attrs->reserve_bytes;
        bool is_same = config->class == t->config.class && wanted == t->config.reservation.bytes;
        int r;

        asked |= tenant_reserve_is_moved(&t->config) && !tenant_reserve_is_moved(config);
        if (asked)
                t->tenant->attrs.reserve_bytes = reserved(t->tenant);
        else if (is_same && tenant_reserve_is_moved(config) && tenant_reserve_is_moved(&t->config))
                attrs->reserve_bytes = before;
        r = tenant_set_attrs(t->tenant, attrs, d);
        if (r < 0)
                t->tenant->attrs.reserve_bytes = before;
        if (r != -ENOSPC || asked || !is_same || before >= wanted)
                return r;
        attrs->reserve_bytes = before;
        return tenant_set_attrs(t->tenant, attrs, d);
}

static int put_in_force(
        struct tenancy *t, const struct tenant_config *config, bool asked, struct detail *d)
{
        struct tenant_attrs attrs, before = t->tenant->attrs;
        struct sizing_attrs sizing;
        int r = check_config(t->server, config, &attrs, &sizing, d);

        if (r == 0)
                r = check_exclusive(t->tenant, &attrs, d);
        if (r < 0)
                return r == -ENODEV ? -EINVAL : r;
        r = set_attrs(t, config, asked, &attrs, d);
        if (r < 0)
                return r;
        r = sizing_set(t->tenant, &sizing);
        if (r == 0)
                return 0;
        (void)tenant_set_attrs(t->tenant, &before, NULL);
        return detail_set(d, r, "no memory for the sizer of tenant %s", config->name);
}

int tenancy_change(
        struct tenancy *t, const struct tenant_config *config, bool asked, struct detail *d)
{
        bool new_group = strcmp(t->config.access.group, config->access.group) != 0;
        bool new_remote = memcmp(&t->config.remote, &config->remote, sizeof(config->remote)) != 0;
        int r = put_in_force(t, config, asked, d);

        if (r < 0)
                return r;
        t->config = *config;
        if (new_remote)
                remotes_apply(t->server, t->tenant, config);
        turns_renew(t);
        sizing_timer_update(t->server);
        periodic_timer_expect(t->server);
        list_for_each (p, &t->server->peers.list, struct peer, links.all)
                if (p->tenancy == t)
                        peer_update_rights(p);
        if (new_group && t->listener)
                listener_update_group(t->listener);
        return 0;
}

/* Frees a tenancy whose tenant was removed, and ends its connections that aren't introduced yet. */
static void tenancy_free(struct tenancy *t)
{
        turns_drop(t);
        list_for_each (p, &t->server->peers.list, struct peer, links.all)
                if (p->tenancy == t) {
                        p->tenancy = NULL;
                        p->doomed = true;
                        peer_schedule(p);
                }
        listener_close(t->listener);
        list_remove(&t->link);
        free(t);
}

int tenancy_remove(struct tenancy *t, bool force, struct detail *d)
{
        int r = tenant_remove(t->tenant, force, d);

        if (r < 0)
                return r;
        learnt_forget(t->server, t->config.name);
        tenancy_free(t);
        return 0;
}

void tenants_free(struct server *s)
{
        list_for_each_safe (t, &s->tenancies.list, struct tenancy, link)
                tenancy_free(t);
}

bool tenants_configured(const struct server *s, const struct config *config, const char *name,
        struct tenant_config *ret_config, bool *ret_from_config)
{
        const struct tenant_config *base = tenant_table_find(&config->tenants, name);
        const struct tenant_config *changed = tenantdb_find(&s->db, name);

        if (!base && !changed)
                return false;
        if (base)
                *ret_config = *base;
        else
                tenant_config_init(ret_config, name);
        if (changed)
                options_copy(SECTION_TENANT, changed->set, ret_config, changed);
        *ret_from_config = base;
        return true;
}

/* Makes the tenant, or puts its configuration in force. Returns 0, or -errno with the sentence. */
static int ensure(struct server *s, const struct config *config, const char *name, struct detail *d)
{
        struct tenancy *t = tenancy_find(s, name);
        struct tenant_config effective;
        bool from_config;
        int r;

        if (!tenants_configured(s, config, name, &effective, &from_config))
                return 0;
        if (!t && !s->life.serving)
                return add_at_start(s, &effective, from_config, d);
        if (!t)
                return tenancy_add(s, &effective, from_config, &t, d);
        r = tenancy_change(t, &effective, false, d);
        if (r == 0)
                t->from_config = from_config;
        return r;
}

static int load_table(
        struct server *s, const struct tenant_table *table, const struct tenant_table *loaded)
{
        for (size_t i = 0; i < table->n; i++) {
                const char *name = table->rows[i].name;
                struct detail d = {""};
                int r;

                if (loaded && tenant_table_find(loaded, name))
                        continue;
                r = ensure(s, &s->config, name, &d);
                if (r < 0) {
                        log_error("tenant %s: %s", name, d.text);
                        return r;
                }
        }
        return 0;
}

static void log_small(void *data, const char *sentence)
{
        log_warning("%s", sentence);
}

int tenants_load(struct server *s)
{
        int r = load_table(s, &s->config.tenants, NULL);

        if (r == 0)
                r = load_table(s, &s->db.table, &s->config.tenants);
        if (r < 0)
                return r;
        list_for_each (t, &s->tenancies.list, struct tenancy, link)
                if (t->is_short)
                        fill_up(t);
        tenant_room_each_small(s, log_small, NULL);
        return 0;
}

struct reloading {
        struct server *server;
        const struct config *next;
        tenants_say say;
        void *data;
        const char *name; /* of the current tenant */
};

KVL_PRINTF(3, 4)
static void say_reloaded(const struct reloading *r, bool is_refused, const char *format, ...)
{
        char sentence[2 * OPTION_VALUE_MAX + 64];
        va_list args;

        va_start(args, format);
        vsnprintf(sentence, sizeof(sentence), format, args);
        va_end(args);
        if (is_refused)
                log_warning("%s", sentence);
        else
                log_info("%s", sentence);
        r->say(r->data, is_refused, sentence);
}

/* A tenant that no file names any more. */
static void drop_removed(const struct reloading *r, struct tenancy *t)
{
        struct detail d = {""};
        struct server *s = t->server;
        char name[TENANT_NAME_MAX + 1], sentence[TENANT_NAME_MAX + 32];

        strcpy(name, t->config.name);
        if (tenancy_remove(t, false, &d) < 0) {
                say_reloaded(r, true,
                        "tenant %s is gone from the configuration but stays until a later reload: %s",
                        name, d.text);
                return;
        }
        snprintf(sentence, sizeof(sentence), "tenant %s is removed", name);
        log_message(LOG_TENANT_REMOVED, LOG_FIELDS({"TENANT", name}), "%s", sentence);
        r->say(r->data, false, sentence);
        server_note(s, &(struct event_note){.kind = EVENT_TENANT,
                               .tenant = name,
                               .reason = "removed",
                               .by = "the configuration"});
}

/*
 * Shrinks reservations that will be smaller, or elsewhere, before others grow. So a valid
 * configuration is accepted in any order.
 */
static void make_way(struct tenancy *t, const struct config *next)
{
        struct tenant_attrs now = t->tenant->attrs, attrs;
        struct tenant_config effective;
        struct sizing_attrs sizing;
        bool from_config, stays;

        now.reserve_bytes = t->reserved_before = reserved(t->tenant);
        if (!tenants_configured(t->server, next, t->config.name, &effective, &from_config) ||
                check_config(t->server, &effective, &attrs, &sizing, &(struct detail){""}) < 0)
                return;
        stays = attrs.placement == now.placement && strcmp(attrs.device, now.device) == 0 &&
                attrs.exclusive == now.exclusive;
        if (tenant_reserve_is_moved(&effective) &&
                effective.reservation.bytes == t->config.reservation.bytes)
                attrs.reserve_bytes = now.reserve_bytes;
        if (stays && attrs.reserve_bytes >= now.reserve_bytes)
                return;
        now.reserve_bytes = stays ? attrs.reserve_bytes : 0;
        now.exclusive &= attrs.exclusive;
        (void)tenant_set_attrs(t->tenant, &now, NULL);
}

/* Restores a reservation that was shrunk for others, after the tenant's change was refused. */
static void take_back_way(struct tenancy *t)
{
        char before[FORMAT_BYTES_MAX], now[FORMAT_BYTES_MAX];
        struct tenant_attrs attrs = t->tenant->attrs;

        attrs.exclusive = t->config.exclusive;
        (void)tenant_set_attrs(t->tenant, &attrs, NULL);
        if (reserved(t->tenant) < t->reserved_before)
                reserve_what_fits(t, t->reserved_before);
        if (reserved(t->tenant) < t->reserved_before)
                log_error(
                        "tenant %s: of its reservation of %s only %s are left: the rest went to others in this reload",
                        t->config.name, format_bytes(t->reserved_before, before),
                        format_bytes(reserved(t->tenant), now));
}

static void say_option(void *data, const struct option *o, const char *before, const char *after)
{
        const struct reloading *r = data;

        say_reloaded(r, false, "[tenant %s] %s = %s, was %s", r->name, o->key, after, before);
}

static void reload_tenant(struct reloading *r, const char *name)
{
        struct tenancy *t = tenancy_find(r->server, name);
        const bool is_new = !t;
        const struct tenant_config before = t ? t->config : (struct tenant_config){0};
        struct detail d = {""};

        r->name = name;
        if (ensure(r->server, r->next, name, &d) < 0) {
                say_reloaded(r, true, "tenant %s: %s: it is left as it was", name, d.text);
                t = tenancy_find(r->server, name);
                if (t)
                        take_back_way(t);
        } else if (is_new) {
                say_reloaded(r, false, "tenant %s is added", name);
        } else {
                options_diff(SECTION_TENANT, &before, &t->config, say_option, r);
        }
}

void tenants_reload(struct server *s, const struct config *next, tenants_say say, void *data)
{
        struct reloading r = {s, next, say, data, NULL};

        list_for_each_safe (t, &s->tenancies.list, struct tenancy, link) {
                struct tenant_config unused;
                bool from_config;

                if (!tenants_configured(s, next, t->config.name, &unused, &from_config))
                        drop_removed(&r, t);
        }
        list_for_each (t, &s->tenancies.list, struct tenancy, link)
                make_way(t, next);
        for (size_t i = 0; i < next->tenants.n; i++)
                reload_tenant(&r, next->tenants.rows[i].name);
        /* Tenants of the database alone: the former section of one is not in force any more. */
        for (size_t i = 0; i < s->db.table.n; i++)
                if (!tenant_table_find(&next->tenants, s->db.table.rows[i].name))
                        reload_tenant(&r, s->db.table.rows[i].name);
}

/* ---- warming at the start -------------------------------------------------------------------- */

static void start_tenant(const struct tenancy *t)
{
        struct warm_request rq;
        struct detail d = {""};

        if (tenant_parse_warm_tags(t->config.warm_tags, &rq) < 0 || rq.n_tags == 0)
                return;
        list_for_each (ns, &t->tenant->namespaces, struct ns, link)
                if (warm_begin(ns, &rq, &d) < 0)
                        log_error("warm_tags of tenant %s: %s", t->config.name, d.text);
}

void warming_start(struct server *s)
{
        list_for_each (t, &s->tenancies.list, struct tenancy, link)
                start_tenant(t);
}

/* ---- room for an extent set ------------------------------------------------------------------ */

/* Returns true if the share can't hold an extent set, with the cause and its most bytes. */
static bool is_small(const struct tenancy *t, const struct pool_share *s, enum small_cause *ret,
        uint64_t *ret_most)
{
        const struct pool *pool = s->pool;
        uint64_t others = pool->reserved_bytes - s->reserve_bytes;

        *ret = SMALL_LIMIT;
        *ret_most = s->account->limit_bytes;
        if (*ret_most < pool->extent_bytes)
                return true;
        *ret = SMALL_RESERVE;
        *ret_most = s->reserve_bytes;
        if (pool_share_keeps_to_reserve(s))
                return *ret_most < pool->extent_bytes && !tenant_reserve_is_moved(&t->config);
        *ret = SMALL_OTHERS;
        /* Lent memory is only counted if it matters. */
        if (others + pool->extent_bytes <= pool->account.limit_bytes)
                return false;
        *ret_most = region_reach(s);
        return *ret_most < pool->extent_bytes;
}

int tenant_room_check(const struct tenancy *t, struct detail *d)
{
        const struct tenant_attrs *attrs = &t->tenant->attrs;
        const struct pool *nearest = NULL;
        enum small_cause cause = SMALL_LIMIT;
        uint64_t most = 0;

        list_for_each (s, &t->tenant->shares, struct pool_share, tenant_link) {
                enum small_cause why;
                uint64_t bytes;

                if (s->pool->tier != TIER_DEVICE ||
                        (attrs->placement == PLACE_DEVICE &&
                                strcmp(s->pool->props->name, attrs->device) != 0))
                        continue;
                if (!is_small(t, s, &why, &bytes))
                        return 0;
                if (!nearest || s->pool->extent_bytes < nearest->extent_bytes) {
                        nearest = s->pool;
                        cause = why;
                        most = bytes;
                }
        }
        /* The tenant's device doesn't exist: that was reported, and clients may name others. */
        if (!nearest)
                return 0;
        return tenant_refuse_small(
                &t->config, cause, most, nearest->props->name, nearest->extent_bytes, d);
}

uint32_t tenant_room_count_small(const struct server *s, struct detail *d)
{
        uint32_t n = 0;

        list_for_each (t, &s->tenancies.list, struct tenancy, link)
                n += tenant_room_check(t, n == 0 ? d : NULL) < 0;
        return n;
}

void tenant_room_each_small(
        const struct server *s, void (*say)(void *data, const char *sentence), void *data)
{
        struct detail d;

        list_for_each (t, &s->tenancies.list, struct tenancy, link)
                if (tenant_room_check(t, &d) < 0)
                        say(data, d.text);
}
