#include "client/ctl/noun.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/parse.h"
#include "client/ctl/columns.h"
#include "client/lib/kvlease.h"
#include "proto/kvlease.pb-c.h"
#include "proto/msg.h"

/* ---- lists ----------------------------------------------------------------------------------- */

#define DEVICE(field, title, what, ...)                             \
        {                                                           \
                FIELD(AdminDevice, field, title, what), __VA_ARGS__ \
        }

#define DEVICE_PREFETCHED(kind, field)                    \
        {                                                 \
                PREFETCH_FIGURE(AdminDevice, kind, field) \
        }
#define DEVICE_PREFETCH(kind)                                                       \
        DEVICE_PREFETCHED(kind, begun), DEVICE_PREFETCHED(kind, useful),            \
                DEVICE_PREFETCHED(kind, wasted), DEVICE_PREFETCHED(kind, given_up), \
                DEVICE_PREFETCHED(kind, at_stake)

static void device_used(const void *row, const struct show_format *f, struct value *ret)
{
        const Kvlease__V1__AdminDevice *d = row;

        derive_ratio(ret, d->charged_bytes, d->budget_bytes);
}

static const struct column devices_columns[] = {
        DEVICE(name, "NAME", TEXT, .shortest = 20),
        DEVICE(tier, "TIER", TEXT, .spare = 5),
        DEVICE(backend, "BACKEND", TEXT, .spare = 8),
        DEVICE(transport, "TRANSPORT", TEXT, .spare = 9),
        DEVICE(state, "STATE", TEXT),
        DEVICE(total_bytes, "TOTAL", BYTES, .spare = 4),
        DEVICE(budget_bytes, "BUDGET", BYTES),
        DEVICE(charged_bytes, "USED", BYTES),
        {.heading = "USED%",
                .key = "used_ratio",
                .kind = COLUMN_RATIO,
                .derive = device_used,
                .spare = 3},
        DEVICE(reserved_bytes, "RESERVED", BYTES, .spare = 2),
        DEVICE(missing_bytes, "MISSING", BYTES, .spare = 1),
        DEVICE(memory_ratio, NULL, COUNT),
        DEVICE(exclusive, "EXCLUSIVE", TEXT, .spare = 6),
        DEVICE(extent_bytes, "EXTENT", BYTES, .spare = 7),
        DEVICE(n_sets, "SETS", COUNT, .spare = 7),
        DEVICE(n_preparing, "PREPARING", COUNT, .spare = 8),
        DEVICE(registered_bytes, NULL, BYTES),
        DEVICE_PREFETCH(stream),
        DEVICE_PREFETCH(turn),
        DEVICE_PREFETCH(expect),
        DEVICE_PREFETCH(warm),
        DEVICE(members, NULL, TEXT),
        DEVICE(why, "WHY", TEXT, .wraps = true),
};

NOUN(devices, AdminDevicesReply, MSG_ADMIN_DEVICES);

#define TENANT(field, title, what, ...)                             \
        {                                                           \
                FIELD(AdminTenant, field, title, what), __VA_ARGS__ \
        }
#define TENANT_DETAIL(field, title, what)                              \
        {                                                              \
                FIELD(AdminTenant, field, title, what), .detail = true \
        }

/* Shows a reservation that differs from the configured one: by a sizer, a schedule, whole extents,
 * or because it didn't fit. */
static void tenant_reserve(const void *row, const struct show_format *f, struct value *ret)
{
        const Kvlease__V1__AdminTenant *t = row;
        char now[32], configured[32];

        show_bytes(f, t->reserve_bytes, now);
        show_bytes(f, t->reserve_configured_bytes, configured);
        if (t->reserve_bytes == t->reserve_configured_bytes)
                derive_text(ret, "%s", now);
        else if (t->reserve_bytes < t->reserve_configured_bytes)
                derive_text(ret, "%s of %s configured", now, configured);
        else
                derive_text(ret, "%s (%s configured)", now, configured);
}

static void tenant_used(const void *row, const struct show_format *f, struct value *ret)
{
        const Kvlease__V1__AdminTenant *t = row;

        if (t->limit_bytes != UINT64_MAX)
                derive_ratio(ret, t->charged_bytes, t->limit_bytes);
}

/* "class" is a keyword in some languages, so protobuf's generator renames the field. */
static void tenant_class(const void *row, const struct show_format *f, struct value *ret)
{
        derive_text(ret, "%.16s", ((const Kvlease__V1__AdminTenant *)row)->class_);
        ret->present = ret->buf[0];
}

/* Names of refused_by, in the order of <kvlease.h>; NULL: no lease is refused for it. */
static const char *const reason_names[] = {
        [KVL_REASON_QUOTA] = "quota",
        [KVL_REASON_RESERVATION_FULL] = "reservation full",
        [KVL_REASON_POOL_FULL] = "pool full",
        [KVL_REASON_DEADLINE] = "deadline",
        [KVL_REASON_DRAINING] = "draining",
        [KVL_REASON_DEVICE] = "device",
        [KVL_REASON_NO_RUN] = "no run",
};

static void tenant_refused_by(const void *row, const struct show_format *f, struct value *ret)
{
        const Kvlease__V1__AdminTenant *t = row;
        char text[VALUE_TEXT_MAX] = "";
        size_t at = 0;

        for (size_t i = 0; i < t->n_refused_by && at < sizeof(text); i++) {
                const char *name = i < ARRAY_SIZE(reason_names) ? reason_names[i] : "other";

                if (name && t->refused_by[i] > 0)
                        at += (size_t)snprintf(text + at, sizeof(text) - at, "%s%s %" PRIu64,
                                at > 0 ? ", " : "", name, t->refused_by[i]);
        }
        if (at > 0)
                derive_text(ret, "%s", text);
}

#define REFUSED(reason)                                                              \
        static void tenant_refused_##reason(                                         \
                const void *row, const struct show_format *f, struct value *ret)     \
        {                                                                            \
                const Kvlease__V1__AdminTenant *t = row;                             \
                                                                                     \
                ret->present = t->n_refused_by > KVL_REASON_##reason;                \
                ret->number = ret->present ? t->refused_by[KVL_REASON_##reason] : 0; \
        }
REFUSED(QUOTA)
REFUSED(RESERVATION_FULL)
REFUSED(POOL_FULL)
REFUSED(DEADLINE)
REFUSED(DRAINING)
REFUSED(DEVICE)
REFUSED(NO_RUN)
#define TENANT_REFUSED(json_key, reason)                                                   \
        {                                                                                  \
                .key = (json_key), .kind = COLUMN_COUNT, .derive = tenant_refused_##reason \
        }

/* Makes a value that is absent if 0: none, or never. */
static void derive_or_none(struct value *ret, uint64_t sec)
{
        ret->present = sec > 0;
        ret->number = sec;
}

static void tenant_max_connects(const void *row, const struct show_format *f, struct value *ret)
{
        derive_or_none(ret, ((const Kvlease__V1__AdminTenant *)row)->max_connects);
}

static void tenant_max_requests(const void *row, const struct show_format *f, struct value *ret)
{
        derive_or_none(ret, ((const Kvlease__V1__AdminTenant *)row)->max_requests);
}

static void tenant_expire(const void *row, const struct show_format *f, struct value *ret)
{
        derive_or_none(ret, ((const Kvlease__V1__AdminTenant *)row)->expire_sec);
}

static void tenant_expire_unused(const void *row, const struct show_format *f, struct value *ret)
{
        derive_or_none(ret, ((const Kvlease__V1__AdminTenant *)row)->expire_unused_sec);
}

static void tenant_session_expire(const void *row, const struct show_format *f, struct value *ret)
{
        derive_or_none(ret, ((const Kvlease__V1__AdminTenant *)row)->session_expire_sec);
}

#define TENANT_TIER(tier, field, title, what)                                      \
        {                                                                          \
                TIER_FIGURE(AdminTenant, tier, field, title, what), .detail = true \
        }

static const struct column tenants_columns[] = {
        TENANT(name, "NAME", TEXT),
        {.heading = "CLASS",
                .key = "class",
                .kind = COLUMN_TEXT,
                .derive = tenant_class,
                .spare = 5},
        {FIELD(AdminTenant, reserve_bytes, "RESERVE", BYTES), .brief = true},
        TENANT(reserve_configured_bytes, NULL, BYTES),
        {.heading = "RESERVE", .kind = COLUMN_TEXT, .detail = true, .derive = tenant_reserve},
        TENANT(limit_bytes, "LIMIT", BYTES),
        TENANT(charged_bytes, "USED", BYTES),
        {.heading = "USED%",
                .key = "used_ratio",
                .kind = COLUMN_RATIO,
                .derive = tenant_used,
                .spare = 2},
        TENANT_TIER(host, limit_bytes, "HOST LIMIT", BYTES),
        TENANT_TIER(host, charged_bytes, "HOST USED", BYTES),
        TENANT_TIER(host, pages_sealed, "HOST PUBLISHED", COUNT),
        TENANT_TIER(host, arrived, NULL, COUNT),
        TENANT_TIER(host, damaged, NULL, COUNT),
        TENANT_TIER(disk, limit_bytes, "DISK LIMIT", BYTES),
        TENANT_TIER(disk, charged_bytes, "DISK USED", BYTES),
        TENANT_TIER(disk, pages_sealed, "DISK PUBLISHED", COUNT),
        TENANT_TIER(disk, arrived, NULL, COUNT),
        TENANT_TIER(disk, damaged, NULL, COUNT),
        TENANT(pages_promoted, NULL, COUNT),
        TENANT_DETAIL(excess_bytes, "BEYOND RESERVE", BYTES),
        TENANT_DETAIL(fair_bytes, "FAIR SHARE", BYTES),
        TENANT(weight, "WEIGHT", COUNT, .spare = 6),
        TENANT(priority, "PRIORITY", COUNT, .spare = 6),
        TENANT_DETAIL(reserve_min_bytes, "RESERVE MIN", BYTES),
        TENANT_DETAIL(reserve_max_bytes, "RESERVE MAX", BYTES),
        TENANT_DETAIL(sizer, "SIZER", TEXT),
        TENANT_DETAIL(schedule, "SCHEDULE", TEXT),
        TENANT_DETAIL(burst, "BURST", TEXT),
        TENANT_DETAIL(lend_idle_reserve, "LEND IDLE RESERVE", BOOL),
        TENANT_DETAIL(when_full, "WHEN FULL", TEXT),
        TENANT_DETAIL(max_wait_msec, "MAX WAIT", MSEC),
        TENANT_DETAIL(placement, "PLACEMENT", TEXT),
        TENANT_DETAIL(exclusive, "EXCLUSIVE", BOOL),
        TENANT(n_clients, "CLIENTS", COUNT, .spare = 1),
        TENANT_DETAIL(max_clients, "MAX CLIENTS", COUNT),
        TENANT_DETAIL(max_pins, "MAX PINS", COUNT),
        {.heading = "MAX CONNECTS",
                .key = "max_connects",
                .kind = COLUMN_COUNT,
                .detail = true,
                .derive = tenant_max_connects},
        {.heading = "MAX REQUESTS",
                .key = "max_requests",
                .kind = COLUMN_COUNT,
                .detail = true,
                .derive = tenant_max_requests},
        TENANT_DETAIL(verify_failures, "VERIFY FAILURES", COUNT),
        TENANT_DETAIL(connects_refused, "REFUSED CONNECTIONS", COUNT),
        TENANT_DETAIL(requests, "REQUESTS", COUNT),
        TENANT_DETAIL(paused, "PAUSED", BOOL),
        TENANT_DETAIL(pauses, "PAUSES", COUNT),
        TENANT_DETAIL(pauses_msec, "PAUSED IN SUM", MSEC),
        TENANT_DETAIL(pending_bytes, "PENDING ANSWERS", BYTES),
        TENANT_DETAIL(open_files, "OPEN FILES", COUNT),
        TENANT_DETAIL(open_files_sure, "OPEN FILES SURE", COUNT),
        TENANT_DETAIL(open_files_limit, "OPEN FILES LIMIT", COUNT),
        TENANT_DETAIL(kept_fds, "KEPT", COUNT),
        TENANT_DETAIL(kept_fds_sure, "KEPT SURE", COUNT),
        TENANT_DETAIL(kept_fds_limit, "KEPT LIMIT", COUNT),
        TENANT_DETAIL(n_namespaces, "NAMESPACES", COUNT),
        TENANT(pages_sealed, "PUBLISHED", COUNT, .spare = 3),
        TENANT(pages_granted, "GRANTED", COUNT, .spare = 4),
        TENANT_DETAIL(pages_detached, "DETACHED", COUNT),
        TENANT_DETAIL(evict, "EVICTION POLICY", TEXT),
        TENANT_DETAIL(miss_cost, "MISS COST", TEXT),
        TENANT_DETAIL(attention_crossover, "ATTENTION CROSSOVER", COUNT),
        {.heading = "EXPIRE",
                .key = "expire_sec",
                .kind = COLUMN_SECONDS,
                .detail = true,
                .derive = tenant_expire},
        {.heading = "EXPIRE UNUSED",
                .key = "expire_unused_sec",
                .kind = COLUMN_SECONDS,
                .detail = true,
                .derive = tenant_expire_unused},
        {.heading = "SESSION EXPIRE",
                .key = "session_expire_sec",
                .kind = COLUMN_SECONDS,
                .detail = true,
                .derive = tenant_session_expire},
        TENANT_DETAIL(evictions, "EVICTED PAGES", COUNT),
        TENANT_DETAIL(refusals, "REFUSED LEASES", COUNT),
        {.heading = "REFUSED BY", .kind = COLUMN_TEXT, .detail = true, .derive = tenant_refused_by},
        TENANT_REFUSED("refused_quota", QUOTA),
        TENANT_REFUSED("refused_reservation_full", RESERVATION_FULL),
        TENANT_REFUSED("refused_pool_full", POOL_FULL),
        TENANT_REFUSED("refused_deadline", DEADLINE),
        TENANT_REFUSED("refused_draining", DRAINING),
        TENANT_REFUSED("refused_device", DEVICE),
        TENANT_REFUSED("refused_no_run", NO_RUN),
        TENANT_DETAIL(degraded, "DEGRADED LEASES", COUNT),
        TENANT(waiting, "WAITING", COUNT, .spare = 2),
        TENANT_DETAIL(waits, "WAITED LEASES", COUNT),
        TENANT_DETAIL(waited_msec, "WAITED IN SUM", MSEC),
        TENANT_DETAIL(max_waited_msec, "LONGEST WAIT", MSEC),
        TENANT_DETAIL(recalled_sets, "RECALLED SETS", COUNT),
        TENANT_DETAIL(held_sets, "HELD UP SETS", COUNT),
        TENANT_DETAIL(held_bytes, "HELD UP", BYTES),
        TENANT(source, "SOURCE", TEXT, .spare = 7),
        TENANT_DETAIL(uids, "UIDS", TEXT),
        TENANT_DETAIL(gids, "GIDS", TEXT),
        TENANT_DETAIL(share_group, "SHARE GROUP", BOOL),
        TENANT_DETAIL(publish_uids, "PUBLISH UIDS", TEXT),
        TENANT_DETAIL(publish_gids, "PUBLISH GIDS", TEXT),
        TENANT_DETAIL(group, "GROUP", TEXT),
        TENANT_DETAIL(socket_path, "SOCKET", TEXT),
        TENANT_DETAIL(no_room, "CAN LEASE NOTHING", TEXT),
};

NOUN(tenants, AdminTenantsReply, MSG_ADMIN_TENANTS);

#define NS(field, title, what, ...)                                    \
        {                                                              \
                FIELD(AdminNamespace, field, title, what), __VA_ARGS__ \
        }
#define LAYOUT(field, title, what, ...)                                                            \
        {                                                                                          \
                FIELD(NsLayout, field, title, what),                                               \
                        .inner_offset = offsetof(Kvlease__V1__AdminNamespace, layout), __VA_ARGS__ \
        }

#define NS_TIER(tier, field, title, what, ...)                                     \
        {                                                                          \
                TIER_FIGURE(AdminNamespace, tier, field, title, what), __VA_ARGS__ \
        }

#define NS_PREFETCHED(kind, field)                           \
        {                                                    \
                PREFETCH_FIGURE(AdminNamespace, kind, field) \
        }
#define NS_PREFETCH(kind)                                                                     \
        NS_PREFETCHED(kind, begun), NS_PREFETCHED(kind, useful), NS_PREFETCHED(kind, wasted), \
                NS_PREFETCHED(kind, given_up), NS_PREFETCHED(kind, at_stake),                 \
                NS_PREFETCHED(kind, window)

/* "1200, 90% used": prefetched pages of all kinds, and the used part of the decided ones. */
static void ns_prefetched(const void *row, const struct show_format *f, struct value *ret)
{
        const Kvlease__V1__AdminNamespace *n = row;
        const Kvlease__V1__AdminPrefetch *const kinds[] = {
                n->prefetch_stream, n->prefetch_turn, n->prefetch_expect, n->prefetch_warm};
        uint64_t begun = 0, useful = 0, wasted = 0;

        for (size_t i = 0; i < ARRAY_SIZE(kinds); i++) {
                begun += kinds[i] ? kinds[i]->begun : 0;
                useful += kinds[i] ? kinds[i]->useful : 0;
                wasted += kinds[i] ? kinds[i]->wasted : 0;
        }
        if (useful + wasted > 0)
                derive_text(ret, "%" PRIu64 ", %.0f%% used", begun,
                        100.0 * (double)useful / (double)(useful + wasted));
        else if (begun > 0)
                derive_text(ret, "%" PRIu64, begun);
}

static void ns_hit_ratio(const void *row, const struct show_format *f, struct value *ret)
{
        const Kvlease__V1__AdminNamespace *n = row;

        derive_ratio(ret, n->hits, n->keys);
}

static const char *dtype_name(uint32_t dtype)
{
        switch (dtype) {
        case KVL_DTYPE_F32:
                return "f32";
        case KVL_DTYPE_F16:
                return "f16";
        case KVL_DTYPE_BF16:
                return "bf16";
        case KVL_DTYPE_F8_E4M3:
                return "f8_e4m3";
        case KVL_DTYPE_F8_E5M2:
                return "f8_e5m2";
        case KVL_DTYPE_I8:
                return "i8";
        default:
                return "other";
        }
}

static void ns_dtype(const void *row, const struct show_format *f, struct value *ret)
{
        const Kvlease__V1__AdminNamespace *n = row;

        if (n->layout)
                derive_text(ret, "%s", dtype_name(n->layout->dtype));
}

static void ns_format(const void *row, const struct show_format *f, struct value *ret)
{
        const Kvlease__V1__NsLayout *l = ((const Kvlease__V1__AdminNamespace *)row)->layout;
        size_t len = l ? l->format.len : 0; /* from a peer: any length */

        if (!l)
                return;
        ret->text = ret->buf;
        ret->present = len > 0 && FORMAT_OPAQUE_BYTES(len) <= sizeof(ret->buf);
        if (ret->present)
                format_opaque(l->format.data, len, ret->buf);
}

static const struct column namespaces_columns[] = {
        NS(tenant, "TENANT", TEXT),
        NS(name, "NAME", TEXT),
        LAYOUT(model, "MODEL", TEXT, .spare = 7, .shortest = 12),
        LAYOUT(version, "VERSION", TEXT, .spare = 9),
        {.heading = "DTYPE", .key = "dtype", .kind = COLUMN_TEXT, .derive = ns_dtype, .spare = 10},
        {.heading = "FORMAT",
                .key = "format",
                .kind = COLUMN_TEXT,
                .derive = ns_format,
                .spare = 11},
        LAYOUT(n_layers, NULL, COUNT),
        LAYOUT(n_kv_heads, NULL, COUNT),
        LAYOUT(head_size, NULL, COUNT),
        LAYOUT(page_tokens, "PAGE TOKENS", COUNT, .spare = 10),
        LAYOUT(n_planes, NULL, COUNT),
        LAYOUT(plane_page_bytes, NULL, BYTES),
        NS(stride_bytes, NULL, BYTES),
        LAYOUT(tp_rank, NULL, COUNT),
        LAYOUT(tp_size, NULL, COUNT),
        LAYOUT(layer_group, NULL, COUNT),
        NS(device, "DEVICE", TEXT, .spare = 5, .shortest = 16),
        NS(epoch, NULL, COUNT),
        NS(charged_bytes, "USED", BYTES),
        NS(n_sets, NULL, COUNT),
        NS(pages_sealed, "PUBLISHED", COUNT),
        NS(pages_pinned, "PINNED", COUNT, .spare = 6),
        NS(pages_granted, "GRANTED", COUNT, .spare = 6),
        NS(pages_ready, "READY", COUNT, .spare = 10),
        NS(pages_detached, NULL, COUNT),
        NS(pages_free, "FREE", COUNT, .spare = 9),
        NS_TIER(host, charged_bytes, NULL, BYTES),
        NS_TIER(host, n_sets, NULL, COUNT),
        NS_TIER(host, pages_sealed, "ON HOST", COUNT, .spare = 3),
        NS_TIER(host, pages_detached, NULL, COUNT),
        NS_TIER(host, pages_free, NULL, COUNT),
        NS_TIER(host, arrived, NULL, COUNT),
        NS_TIER(host, damaged, NULL, COUNT),
        NS_TIER(disk, charged_bytes, NULL, BYTES),
        NS_TIER(disk, n_sets, NULL, COUNT),
        NS_TIER(disk, pages_sealed, "ON DISK", COUNT, .spare = 3),
        NS_TIER(disk, pages_detached, NULL, COUNT),
        NS_TIER(disk, pages_free, NULL, COUNT),
        NS_TIER(disk, arrived, NULL, COUNT),
        NS_TIER(disk, damaged, NULL, COUNT),
        NS(pages_promoted, NULL, COUNT),
        {.heading = "PREFETCHED", .kind = COLUMN_TEXT, .derive = ns_prefetched, .spare = 8},
        NS_PREFETCH(stream),
        NS_PREFETCH(turn),
        NS_PREFETCH(expect),
        NS_PREFETCH(warm),
        NS(set, "SET", TEXT, .spare = 8),
        NS(set_size, NULL, COUNT),
        NS(evict, NULL, TEXT),
        NS(attention_crossover, NULL, COUNT),
        NS(policy_bytes, NULL, BYTES),
        NS(policy_ghosts, NULL, COUNT),
        NS(policy_ghost_bytes, NULL, BYTES),
        NS(policy_ghost_limit_bytes, NULL, BYTES),
        NS(n_sessions, "SESSIONS", COUNT, .spare = 5),
        NS(evictions, NULL, COUNT),
        NS(pages_expired, NULL, COUNT),
        NS(pages_expected, NULL, COUNT),
        NS(capacity_pages, NULL, COUNT),
        NS(set_pages, NULL, COUNT),
        NS(n_clients, "CLIENTS", COUNT, .spare = 2),
        NS(keys, NULL, COUNT),
        NS(hits, NULL, COUNT),
        {.heading = "HITS",
                .key = "hit_ratio",
                .kind = COLUMN_RATIO,
                .derive = ns_hit_ratio,
                .spare = 1},
};

NOUN(namespaces, AdminNamespacesReply, MSG_ADMIN_NAMESPACES);

#define CLIENT(field, title, what, ...)                             \
        {                                                           \
                FIELD(AdminClient, field, title, what), __VA_ARGS__ \
        }

/* Whether it failed to give back memory that was recalled. */
static void client_late(const void *row, const struct show_format *f, struct value *ret)
{
        const Kvlease__V1__AdminClient *c = row;

        derive_text(ret, "%s", c->killed ? "killed" : c->late ? "yes" : "no");
}

static const struct column clients_columns[] = {
        CLIENT(client_id, "ID", COUNT),
        CLIENT(tenant, "TENANT", TEXT),
        CLIENT(name, "NAME", TEXT, .shortest = 12),
        CLIENT(pid, "PID", COUNT),
        CLIENT(uid, "UID", COUNT, .spare = 7),
        CLIENT(state, "STATE", TEXT),
        CLIENT(state_sec, "SINCE", SECONDS, .spare = 3),
        CLIENT(heard_sec, "HEARD OF", SECONDS, .spare = 6),
        CLIENT(metadata_only, NULL, BOOL),
        CLIENT(safepoints, "SAFE POINTS", BOOL, .spare = 10),
        CLIENT(group, "GROUP", TEXT, .spare = 11),
        CLIENT(pages_granted, "GRANTED", COUNT, .spare = 1),
        CLIENT(pins, "PINS", COUNT, .spare = 1),
        CLIENT(namespaces, NULL, COUNT),
        CLIENT(mapped_sets, "MAPPED SETS", COUNT, .spare = 6),
        CLIENT(recalled_sets, "RECALLED", COUNT, .spare = 4),
        CLIENT(quarantined_sets, "QUARANTINED", COUNT, .spare = 8),
        {.heading = "LATE", .kind = COLUMN_TEXT, .derive = client_late, .spare = 8},
        CLIENT(late, NULL, BOOL),
        CLIENT(killed, NULL, BOOL),
        CLIENT(waiting, "WAITING", COUNT, .spare = 5),
        CLIENT(pending_bytes, "PENDING", BYTES, .spare = 7),
        CLIENT(requests, "REQUESTS", COUNT, .spare = 9),
        CLIENT(violations, "VIOLATIONS", COUNT, .spare = 5),
        CLIENT(connected_sec, "CONNECTED", SECONDS, .spare = 2),
};

NOUN(clients, AdminClientsReply, MSG_ADMIN_CLIENTS);

/* ---- regions --------------------------------------------------------------------------------- */

typedef Kvlease__V1__AdminRegion region_row;

#define REGION(field, title, what, ...)                             \
        {                                                           \
                FIELD(AdminRegion, field, title, what), __VA_ARGS__ \
        }

/* UUIDs are cut to their first group, as by the vendor's tools: lines stay readable. */
#define DEVICE_SHORT_CHARS 12

static void region_device(const void *row, const struct show_format *f, struct value *ret)
{
        derive_text(ret, "%.*s", DEVICE_SHORT_CHARS, ((const region_row *)row)->device);
}

static bool is_pool(const region_row *r)
{
        return r->tenant[0] == '\0';
}

static void region_tenant(const void *row, const struct show_format *f, struct value *ret)
{
        const region_row *r = row;

        derive_text(ret, "%s", is_pool(r) ? "(dynamic pool)" : r->tenant);
}

/* A figure that a pool, which has no sizer, lacks. */
static void derive_bytes(struct value *ret, bool present, uint64_t bytes)
{
        ret->present = present;
        ret->number = bytes;
}

static void region_fair(const void *row, const struct show_format *f, struct value *ret)
{
        derive_bytes(ret, !is_pool(row), ((const region_row *)row)->fair_bytes);
}

static void region_demand(const void *row, const struct show_format *f, struct value *ret)
{
        derive_bytes(ret, !is_pool(row), ((const region_row *)row)->demand_bytes);
}

static void region_p99(const void *row, const struct show_format *f, struct value *ret)
{
        derive_bytes(ret, !is_pool(row), ((const region_row *)row)->p99_bytes);
}

static bool is_decided(const region_row *r)
{
        return r->decision[0] && strcmp(r->decision, "none") != 0;
}

static void region_decision(const void *row, const struct show_format *f, struct value *ret)
{
        const region_row *r = row;
        char target[32];

        if (is_pool(r))
                return;
        if (!is_decided(r))
                derive_text(ret, "%.16s", r->sizer);
        else if (strcmp(r->sizer, "dry-run") == 0)
                derive_text(ret, "%.16s (dry run: %s)", r->decision,
                        show_bytes(f, r->target_bytes, target));
        else
                derive_text(ret, "%.16s", r->decision);
}

static void region_ago(const void *row, const struct show_format *f, struct value *ret)
{
        const region_row *r = row;

        ret->present = is_decided(r);
        ret->number = r->decided_sec_ago;
}

/* Includes deviations from the target. */
static void region_why(const void *row, const struct show_format *f, struct value *ret)
{
        const region_row *r = row;
        char text[VALUE_TEXT_MAX] = "", bytes[32];
        int at = 0;

        if (r->missing_bytes > 0)
                at += snprintf(
                        text, sizeof(text), "%s missing", show_bytes(f, r->missing_bytes, bytes));
        if (r->lent_bytes > 0)
                at += snprintf(text + at, sizeof(text) - (size_t)at, "%s%s lent",
                        at > 0 ? ", " : "", show_bytes(f, r->lent_bytes, bytes));
        if (at == 0 && r->why[0])
                ret->text = r->why;
        else if (at > 0)
                derive_text(ret, "%s%s%s", text, r->why[0] ? "; " : "", r->why);
        ret->present = ret->text;
}

static const struct column regions_columns[] = {
        {.heading = "DEVICE", .kind = COLUMN_TEXT, .derive = region_device},
        REGION(device, NULL, TEXT),
        {.heading = "TENANT", .kind = COLUMN_TEXT, .derive = region_tenant},
        REGION(tenant, NULL, TEXT),
        REGION(size_bytes, "SIZE", BYTES),
        REGION(used_bytes, "USED", BYTES),
        REGION(excess_bytes, "EXCESS", BYTES, .spare = 1),
        {.heading = "FAIR",
                .key = "fair_bytes",
                .kind = COLUMN_BYTES,
                .derive = region_fair,
                .spare = 2},
        REGION(min_bytes, NULL, BYTES),
        REGION(max_bytes, NULL, BYTES),
        {.heading = "DEMAND",
                .key = "demand_bytes",
                .kind = COLUMN_BYTES,
                .derive = region_demand,
                .spare = 4},
        {.heading = "P99",
                .key = "p99_bytes",
                .kind = COLUMN_BYTES,
                .derive = region_p99,
                .spare = 5},
        REGION(target_bytes, NULL, BYTES),
        REGION(sizer, NULL, TEXT),
        {.heading = "DECISION", .kind = COLUMN_TEXT, .derive = region_decision, .spare = 3},
        REGION(decision, NULL, TEXT),
        {.heading = "AGO",
                .key = "decided_sec_ago",
                .kind = COLUMN_SECONDS,
                .derive = region_ago,
                .spare = 6},
        {.heading = "WHY", .kind = COLUMN_TEXT, .derive = region_why, .wraps = true},
        REGION(why, NULL, TEXT),
        REGION(changes, NULL, COUNT),
        REGION(lent_bytes, NULL, BYTES),
        REGION(missing_bytes, NULL, BYTES),
        REGION(taken_back_msec, NULL, MSEC),
};

NOUN(regions, AdminRegionsReply, MSG_ADMIN_REGIONS);

/* ---- evictions ------------------------------------------------------------------------------- */

#define EVICTION(field, title, what)                     \
        {                                                \
                FIELD(AdminEviction, field, title, what) \
        }

static void eviction_by(const void *row, const struct show_format *f, struct value *ret)
{
        const Kvlease__V1__AdminEviction *e = row;

        derive_text(ret, "%s", e->by[0] ? e->by : "(no lease)");
}

static const struct column evictions_columns[] = {
        EVICTION(victim, "VICTIM", TEXT),
        {.heading = "BY", .kind = COLUMN_TEXT, .derive = eviction_by},
        EVICTION(by, NULL, TEXT),
        EVICTION(pages, "PAGES", COUNT),
        EVICTION(sets, "EXTENT SETS", COUNT),
};

NOUN(evictions, AdminEvictionsReply, MSG_ADMIN_EVICTIONS);
