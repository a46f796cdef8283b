/* ADMIN_DEVICES, ADMIN_TENANTS, ADMIN_NAMESPACES, ADMIN_CLIENTS, ADMIN_SETS, ADMIN_CODECS:
 * list-page.h. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/parse.h"
#include "daemon/core/cache/nsset.h"
#include "daemon/core/cache/pages.h"
#include "daemon/core/clients/grants.h"
#include "daemon/core/clients/member.h"
#include "daemon/core/life/placing.h"
#include "daemon/core/state/group.h"
#include "daemon/core/state/ns.h"
#include "daemon/core/state/store.h"
#include "daemon/core/state/tenant.h"
#include "daemon/core/memory/region.h"
#include "daemon/core/sessions/session.h"
#include "daemon/server/handlers/list-page.h"
#include "daemon/server/handlers/tier-figures.h"
#include "daemon/server/peers/server.h"
#include "daemon/server/peers/tier-name.h"
#include "daemon/server/peers/peer.h"
#include "daemon/server/services/queues.h"
#include "daemon/server/config/tenant-check.h"
#include "daemon/server/peers/descriptors.h"
#include "daemon/server/peers/listener.h"
#include "daemon/server/services/tenants.h"
#include "daemon/server/peers/parked.h"
#include "policy/expect.h"
#include "proto/arena.h"
#include "proto/kvlease.pb-c.h"

static const char *transport_name(enum device_transport transport)
{
        switch (transport) {
        case TRANSPORT_MEMFD:
                return "memfd";
        case TRANSPORT_VMM:
                return "vmm";
        case TRANSPORT_CUDAIPC:
                return "cudaipc";
        }
        return "unknown";
}

static int make_device(struct request *rq, void *object, void *ret)
{
        const struct store *store = &rq->server->store;
        struct pool *pool = object;
        const struct device_props *props = pool->props;
        struct figures_device *row = ret;
        const struct tenant *owner;

        row->state = queues_state(pool);
        row->why = pool->why;
        if (tier_figures_of_disk(&rq->server->scratch.arena, pool, row) < 0)
                return -ENOMEM;
        prefetch_figures_of_pool(store, pool, PREFETCH_STREAM, &row->prefetch_stream);
        prefetch_figures_of_pool(store, pool, PREFETCH_TURN, &row->prefetch_turn);
        prefetch_figures_of_pool(store, pool, PREFETCH_EXPECT, &row->prefetch_expect);
        prefetch_figures_of_pool(store, pool, PREFETCH_WARM, &row->prefetch_warm);
        row->name = props->name;
        row->backend = props->backend;
        row->members = props->members;
        row->tier = tier_name(pool->tier);
        row->of_device = pool_device_name(pool);
        row->budget_bytes = pool->account.limit_bytes;
        row->charged_bytes = pool->account.charged_bytes;
        row->extent_bytes = pool->extent_bytes;
        row->n_sets = pool->n_sets;
        row->total_bytes = props->total_bytes;
        if (pool->tier != TIER_DISK)
                row->transport = transport_name(props->transport);
        row->n_preparing = pool->n_preparing;
        row->registered_bytes = pool->registered_bytes;
        row->reserved_bytes = pool->reserved_bytes;
        row->missing_bytes = region_missing(pool);
        owner = placing_owner(pool);
        if (owner)
                row->exclusive = owner->name;
        if (props->total_bytes > 0)
                row->memory_ratio = (uint64_t)(0.5 + (double)row->budget_bytes * 100 /
                                                             (double)props->total_bytes);
        return 0;
}

int handle_ADMIN_DEVICES(struct request *rq)
{
        struct rows rows = rows_begin(rq);
        uint64_t id = 0;

        store_for_each_pool (pool, &rq->server->store)
                rows_add(&rows, ++id, pool);
        return rows_fill_page(&rows, make_device, &figures_table_device);
}

static void count_tenant_pages(const struct tenant *t, struct figures_tenant *row)
{
        list_for_each (ns, &t->namespaces, struct ns, link) {
                row->n_namespaces++;
                row->pages_granted += ns->device.n_pages[PAGE_GRANTED] - ns->clients.n_ready;
                row->pages_sealed += ns->device.n_pages[PAGE_SEALED];
                row->pages_detached += ns->device.n_pages[PAGE_DETACHED];
                row->pages_promoted += ns->device.n_arrived;
        }
}

static uint32_t count_waiting(const struct tenant *t)
{
        uint32_t n = 0;

        list_for_each (a, &t->store->waits.leases, struct attach, wait.link)
                n += a->ns->tenant == t;
        return n;
}

/* Options as they are written. */
static void show_options(const struct tenant_config *c, struct figures_tenant *row)
{
        row->weight = c->weight;
        row->priority = c->priority;
        row->max_clients = c->max_clients;
        row->max_pins = c->max_pins;
        row->uids = c->access.uids.text;
        row->gids = c->access.gids.text;
        row->group = c->access.group;
        row->class = config_class_names[c->class];
        row->reserve_configured_bytes = c->reservation.bytes;
        row->reserve_min_bytes = tenant_reserve_min(c);
        row->reserve_max_bytes = tenant_reserve_max(c);
        row->sizer = config_sizer_names[c->reservation.sizer];
        row->schedule = c->reservation.schedule;
        row->when_full = config_when_full_names[c->when_full];
        row->max_wait_msec = c->max_wait_nsec / NSEC_PER_MSEC;
        row->burst = config_burst_names[c->burst];
        row->lend_idle_reserve = c->reservation.lends_idle;
        row->placement = c->placement;
        row->exclusive = c->exclusive;
        row->share_group = c->access.share_group;
        row->publish_uids = c->access.publish_uids.text;
        row->publish_gids = c->access.publish_gids.text;
        row->expire_sec = c->expire_nsec / NSEC_PER_SEC;
        row->expire_unused_sec = c->expire_unused_nsec / NSEC_PER_SEC;
        row->session_expire_sec = c->session_expire_nsec / NSEC_PER_SEC;
        row->max_connects = c->max_connects;
        row->max_requests = c->max_requests;
        row->miss_cost = config_miss_cost_names[c->eviction.miss_cost];
        row->attention_crossover = c->eviction.attention_crossover;
}

static void show_load(const struct tenancy *t, struct figures_tenant *row)
{
        const struct turns *u = &t->turns;
        uint64_t pauses_nsec = u->pauses_nsec;

        if (u->paused)
                pauses_nsec += clock_now_nsec() - u->paused_nsec;
        row->requests = u->n_requests;
        row->paused = u->paused;
        row->pauses = u->n_pauses;
        row->pauses_msec = pauses_nsec / NSEC_PER_MSEC;
        row->connects_refused = u->n_refused;
        row->pending_bytes = t->pending_bytes;
}

static void show_descriptors(const struct tenancy *t, struct figures_tenant *row)
{
        struct descriptors_part open = descriptors_of(t, DESCRIPTORS_OPEN), kept;

        row->open_files = open.used;
        row->open_files_sure = open.sure;
        row->open_files_limit = open.limit;
        if (!keeping_is_on(&t->server->keeping))
                return;
        kept = descriptors_of(t, DESCRIPTORS_KEPT);
        row->kept_fds = kept.used;
        row->kept_fds_sure = kept.sure;
        row->kept_fds_limit = kept.limit;
}

static void show_regions(const struct tenant *t, struct figures_tenant *row)
{
        list_for_each (s, &t->shares, struct pool_share, tenant_link) {
                if (s->pool->tier != TIER_DEVICE)
                        continue;
                row->reserve_bytes += s->reserve_bytes;
                row->excess_bytes += pool_share_borrowed(s);
                row->fair_bytes += MIN(region_fair(s), region_dynamic_bytes(s->pool));
        }
}

static void show_counters(struct tenant *t, struct figures_tenant *row)
{
        struct tenant_counters *c = &t->counters;

        row->evictions = c->evictions;
        row->refusals = c->refusals;
        row->refused_quota = c->by_reason[LEASE_REASON_QUOTA];
        row->refused_reservation_full = c->by_reason[LEASE_REASON_RESERVATION_FULL];
        row->refused_pool_full = c->by_reason[LEASE_REASON_POOL_FULL];
        row->refused_deadline = c->by_reason[LEASE_REASON_DEADLINE];
        row->refused_draining = c->by_reason[LEASE_REASON_DRAINING];
        row->refused_device = c->by_reason[LEASE_REASON_DEVICE];
        row->refused_no_run = c->by_reason[LEASE_REASON_NO_RUN];
        row->waiting = count_waiting(t);
        row->waits = c->waits;
        row->waited_msec = c->waited_nsec / NSEC_PER_MSEC;
        row->max_waited_msec = c->max_wait_nsec / NSEC_PER_MSEC;
        row->degraded = c->degraded;
        row->verify_failures = c->mismatches;
}

/* 0 or -ENOMEM. */
static int show_room(struct arena *arena, const struct tenancy *t, struct figures_tenant *row)
{
        struct detail d;

        if (tenant_room_check(t, &d) == 0)
                return 0;
        row->no_room = arena_strdup(arena, d.text);
        return row->no_room ? 0 : -ENOMEM;
}

static int make_tenant(struct request *rq, void *object, void *ret)
{
        struct arena *arena = &rq->server->scratch.arena;
        struct tenancy *t = object;
        struct figures_tenant *row = ret;
        char *path = arena_alloc(arena, LISTENER_PATH_MAX);

        if (!path)
                return -ENOMEM;
        tier_figures_of_tenant(t->tenant, TIER_HOST, &row->host);
        tier_figures_of_tenant(t->tenant, TIER_DISK, &row->disk);
        row->name = t->config.name;
        row->limit_bytes = t->tenant->account.limit_bytes;
        row->charged_bytes = t->tenant->account.charged_bytes;
        row->n_clients = t->tenant->n_members;
        row->socket_path = listener_tenant_path(rq->server, t->config.name, path);
        row->source = (t->from_config ? "config" : "admin");
        row->recalled_sets = t->tenant->n_recalled;
        row->held_sets = t->tenant->held.n_sets;
        row->held_bytes = t->tenant->held.bytes;
        show_options(&t->config, row);
        show_load(t, row);
        row->evict =
                (char *)(t->tenant->attrs.evict ? t->tenant->attrs.evict : rq->server->store.evict)
                        ->name;
        show_regions(t->tenant, row);
        show_descriptors(t, row);
        show_counters(t->tenant, row);
        count_tenant_pages(t->tenant, row);
        return show_room(arena, t, row);
}

int handle_ADMIN_TENANTS(struct request *rq)
{
        struct rows rows = rows_begin_of_tenant(rq);

        list_for_each (t, &rq->server->tenancies.list, struct tenancy, link)
                if (rows_want(&rows, t->config.name))
                        rows_add(&rows, t->id, t);
        return rows_fill_page(&rows, make_tenant, &figures_table_tenant);
}

/* Borrows from the namespace. 0 or -ENOMEM. */
static int show_layout(
        struct arena *arena, const struct ns_layout *l, struct figures_namespace *row)
{
        char *format = arena_alloc(arena, FORMAT_OPAQUE_BYTES(l->format_len));

        if (!format)
                return -ENOMEM;
        row->format = l->format_len ? format_opaque(l->format, l->format_len, format) : "";
        row->model = l->model;
        row->version = l->version;
        row->dtype = l->dtype;
        row->n_layers = l->n_layers;
        row->n_kv_heads = l->n_kv_heads;
        row->head_size = l->head_size;
        row->page_tokens = l->page_tokens;
        row->n_planes = l->n_planes;
        row->plane_page_bytes = l->plane_page_bytes;
        row->tp_rank = l->tp_rank;
        row->tp_size = l->tp_size;
        row->layer_group = l->layer_group;
        return 0;
}

static uint32_t count_attachments(const struct ns *ns)
{
        uint32_t n = 0;

        list_for_each (a, &ns->clients.attachments, struct attach, ns_link)
                n++;
        return n;
}

static int make_ns(struct request *rq, void *object, void *ret)
{
        struct ns *ns = object;
        struct figures_namespace *row = ret;
        struct evict_usage usage;

        if (show_layout(&rq->server->scratch.arena, &ns->layout, row) < 0)
                return -ENOMEM;
        prefetch_figures_of_ns(ns, PREFETCH_STREAM, &row->prefetch_stream);
        prefetch_figures_of_ns(ns, PREFETCH_TURN, &row->prefetch_turn);
        prefetch_figures_of_ns(ns, PREFETCH_EXPECT, &row->prefetch_expect);
        prefetch_figures_of_ns(ns, PREFETCH_WARM, &row->prefetch_warm);
        tier_figures_of_ns(ns, TIER_HOST, &row->host);
        tier_figures_of_ns(ns, TIER_DISK, &row->disk);
        row->tenant = ns->tenant->name;
        row->name = ns->name;
        row->device = ns->device.pool->props->name;
        row->epoch = ns->epoch;
        row->charged_bytes = ns_charged_bytes(ns, TIER_DEVICE);
        row->n_sets = ns->device.n_sets;
        row->pages_free = ns->device.n_pages[PAGE_FREE] + ns->device.n_pages[PAGE_MOVING];
        row->pages_granted = ns->device.n_pages[PAGE_GRANTED] - ns->clients.n_ready;
        row->pages_ready = ns->clients.n_ready;
        row->pages_sealed = ns->device.n_pages[PAGE_SEALED];
        row->pages_pinned = ns_find_pinned(ns, NULL, NULL);
        row->pages_detached = ns->device.n_pages[PAGE_DETACHED];
        row->n_clients = count_attachments(ns);
        row->capacity_pages = ns->geometry.capacity_pages;
        row->set_pages = ns->geometry.set_pages;
        row->stride_bytes = geometry_stride(&ns->geometry);
        row->hits = ns->counters.hits;
        row->keys = ns->counters.keys;
        row->set = (ns->catalog.set ? ns->catalog.set->name : "");
        row->set_size = ns->catalog.set ? ns->catalog.set->size : 0;
        row->evict = ns->evict->name;
        evict_usage(ns->evict, ns->policy, &usage);
        row->policy_bytes = usage.page_bytes + usage.ghost_bytes + usage.table_bytes;
        row->attention_crossover = usage.crossover_tokens;
        row->policy_ghosts = usage.ghosts;
        row->policy_ghost_bytes = usage.ghost_bytes;
        row->policy_ghost_limit_bytes = usage.ghost_limit_bytes;
        row->evictions = ns->counters.evictions;
        row->pages_expired = ns->counters.expired;
        row->pages_promoted = ns->device.n_arrived;
        row->n_sessions = sessions_count(ns);
        row->pages_expected = expect_count_pages(ns->expect);
        row->events_bytes = ns->feed.charged_bytes;
        return 0;
}

int handle_ADMIN_NAMESPACES(struct request *rq)
{
        struct rows rows = rows_begin_of_tenant(rq);

        list_for_each (t, &rq->server->store.tenants, struct tenant, link)
                list_for_each (ns, &t->namespaces, struct ns, link)
                        if (rows_want(&rows, t->name))
                                rows_add(&rows, ns->id, ns);
        return rows_fill_page(&rows, make_ns, &figures_table_namespace);
}

/* A hash that distinguishes groups; the token itself is a capability. Seeded anew at each start. */
static char *group_label(struct request *rq, const struct group *g)
{
        struct hash_seed seed = {rq->server->store.boot_epoch, 0};
        uint64_t hash = hash_bytes(seed, g->token, GROUP_TOKEN_BYTES);
        char *text = arena_alloc(&rq->server->scratch.arena, 9);

        return text ? format_hex(&hash, 4, text) : NULL;
}

/* Granted pages of the group, without unclaimed ones in its members' magazines. */
static uint64_t granted_pages(const struct group *g)
{
        uint64_t n = 0;

        list_for_each (grants, &g->grants, struct grants, link)
                n += grants->n_pages;
        list_for_each (m, &g->members, struct member, link)
                list_for_each (a, &m->attachments, struct attach, member_link)
                        if (a->magazine)
                                n -= a->magazine->n_pages;
        return n;
}

/* Counts mapped sets that are being recalled. */
static uint32_t count_recalled(const struct member *m)
{
        uint32_t n = 0;

        list_for_each (a, &m->attachments, struct attach, member_link) {
                size_t iter = 0;
                struct map_slot slot;

                while (map_next(&a->mapped, &iter, &slot))
                        n += a->ns->sets.at[slot.key]->recall.state != RECALL_NONE;
        }
        return n;
}

static void show_peer(struct peer *p, struct figures_client *row)
{
        uint64_t now = clock_now_nsec();

        row->state = peer_state_name(p);
        row->state_sec = (now - p->times.state_nsec) / NSEC_PER_SEC;
        row->heard_sec = (now - p->times.heard_nsec) / NSEC_PER_SEC;
        row->connected_sec = (now - p->times.connected_nsec) / NSEC_PER_SEC;
        row->requests = p->counts.n_requests;
        row->violations = p->counts.n_violations;
        row->late = p->recall.late || p->recall.condemned;
        row->killed = p->recall.condemned;
        row->pending_bytes = p->counts.pending_bytes;
        row->waiting = p->waits[PENDING_LEASE].n + p->waits[PENDING_KEY].n +
                       p->waits[PENDING_FETCH].n + p->waits[PENDING_IMPORT].n;
}

static int make_client(struct request *rq, void *object, void *ret)
{
        struct peer *p = object;
        struct figures_client *row = ret;
        char *group = group_label(rq, p->member->group);

        if (!group)
                return -ENOMEM;
        row->client_id = p->member->id;
        row->tenant = p->tenancy->config.name;
        row->name = p->identity.name;
        row->pid = (uint64_t)p->identity.pid;
        row->uid = p->identity.uid;
        show_peer(p, row);
        row->metadata_only = p->member->metadata_only;
        row->safepoints = p->member->safepoints;
        row->group = group;
        row->pages_granted = granted_pages(p->member->group);
        row->pins = member_count_pins(p->member);
        row->mapped_sets = p->member->n_mapped_sets;
        row->quarantined_sets = p->member->n_quarantined_sets;
        row->recalled_sets = count_recalled(p->member);
        list_for_each (a, &p->member->attachments, struct attach, member_link)
                row->namespaces++;
        return 0;
}

int handle_ADMIN_CLIENTS(struct request *rq)
{
        struct rows rows = rows_begin_of_tenant(rq);

        list_for_each (p, &rq->server->peers.list, struct peer, links.all)
                if (p->member && rows_want(&rows, p->tenancy->config.name))
                        rows_add(&rows, p->member->id, p);
        return rows_fill_page(&rows, make_client, &figures_table_client);
}

/* ---- ADMIN_SETS ------------------------------------------------------------------------------ */

static int make_set(struct request *rq, void *object, void *ret)
{
        struct figures_set *row = ret;
        struct nsset *set = object;

        row->name = set->name;
        row->size = set->size;
        row->n_namespaces = set->n_members;
        row->keys_complete = set->n_complete;
        row->keys_incomplete = set->n_incomplete;
        row->dropped = set->n_dropped;
        for (uint32_t i = 0; i < set->size; i++)
                if (set->members[i]) {
                        row->tenant = set->members[i]->tenant->name;
                        row->charged_bytes += ns_charged_bytes(set->members[i], TIER_DEVICE);
                }
        return 0;
}

int handle_ADMIN_SETS(struct request *rq)
{
        struct rows rows = rows_begin_of_tenant(rq);

        list_for_each (t, &rq->server->store.tenants, struct tenant, link)
                list_for_each (set, &t->nssets, struct nsset, link)
                        if (rows_want(&rows, t->name))
                                rows_add(&rows, set->id, set);
        return rows_fill_page(&rows, make_set, &figures_table_set);
}

/* ---- ADMIN_CODECS ---------------------------------------------------------------------------- */

/* A range of layers in a tier. */
struct coded_range {
        struct ns *ns; /* borrowed */
        enum tier_kind kind;
        uint32_t range;
};

static int make_codec(struct request *rq, void *object, void *ret)
{
        struct figures_codec *row = ret;
        const struct coded_range *c = object;
        const struct codec_layers *l = &c->ns->codecs.of_pages.tiers[c->kind];
        const struct ns_coding *coding = &c->ns->codecs.done[c->kind];
        const struct codec_error *error = &coding->errors[c->range];
        struct range_bytes bytes =
                page_range_bytes(&c->ns->codecs.of_pages, &c->ns->layout, c->kind, c->range);

        row->tenant = c->ns->tenant->name;
        row->ns = c->ns->name;
        row->tier = tier_name(c->kind);
        row->first_layer = l->at[c->range].first_layer;
        row->last_layer = codec_range_last(l, c->range, c->ns->layout.n_layers);
        row->codec = codec_name((enum codec)l->at[c->range].codec);
        row->page_bytes = bytes.plain;
        row->stored_bytes = bytes.stored;
        row->pages_encoded = coding->n_pages;
        row->pages_sampled = coding->n_sampled;
        if (error->squares > 0)
                row->error_ppm =
                        (uint64_t)fmin(0.5 + 1e6 * sqrt(error->errors / error->squares), 1e12);
        return 0;
}

static uint32_t count_ranges(const struct ns *ns, enum tier_kind kind)
{
        return ns->tiers[kind].pool ? ns->codecs.of_pages.tiers[kind].n : 0;
}

static void add_ranges(struct rows *rows, struct ns *ns, enum tier_kind kind)
{
        /* Ids ascend with the namespaces', so they are never reused either. */
        const uint64_t first_id = (ns->id * TIER_COUNT + kind) * CODEC_RANGES_MAX;

        for (uint32_t i = 0; i < count_ranges(ns, kind); i++)
                rows_add_copy(rows, first_id + i, &(struct coded_range){ns, kind, i},
                        sizeof(struct coded_range));
}

int handle_ADMIN_CODECS(struct request *rq)
{
        struct rows rows = rows_begin_of_tenant(rq);

        list_for_each (t, &rq->server->store.tenants, struct tenant, link)
                list_for_each (ns, &t->namespaces, struct ns, link)
                        for (unsigned i = 0; i < TIER_COUNT && rows_want(&rows, t->name); i++)
                                add_ranges(&rows, ns, (enum tier_kind)i);
        return rows_fill_page(&rows, make_codec, &figures_table_codec);
}
