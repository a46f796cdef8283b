#include "client/ctl/noun.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "client/lib/kvlease.h"
#include "proto/kvlease.pb-c.h"
#include "proto/msg.h"

/* A field of a message, under its own name: the JSON key is the field's name. */
#define FIELD(message, field, title, what)                        \
        .heading = (title), .key = #field, .kind = COLUMN_##what, \
        .offset = offsetof(Kvlease__V1__##message, field),        \
        .width = sizeof(((Kvlease__V1__##message *)NULL)->field)

/* ---- status ---------------------------------------------------------------------------------- */

typedef Kvlease__V1__AdminStatusReply status_row;

#define STATUS(field, title, what)                          \
        {                                                   \
                FIELD(AdminStatusReply, field, title, what) \
        }

KVL_PRINTF(2, 3) static void derive_text(struct value *ret, const char *format, ...)
{
        va_list ap;

        va_start(ap, format);
        vsnprintf(ret->buf, sizeof(ret->buf), format, ap);
        va_end(ap);
        ret->text = ret->buf;
        ret->present = true;
}

static void derive_ratio(struct value *ret, uint64_t part, uint64_t whole)
{
        ret->present = whole > 0;
        if (ret->present)
                ret->ratio = (double)part / (double)whole;
}

static void status_daemon(const void *row, const struct show_format *f, struct value *ret)
{
        const status_row *s = row;

        derive_text(ret, "kvleased %.32s, pid %" PRIu64 "%s", s->daemon_version, s->pid,
                s->draining ? ", draining: new clients are refused" : "");
}

static void status_memory(const void *row, const struct show_format *f, struct value *ret)
{
        const status_row *s = row;
        char used[32], budget[32];

        derive_ratio(ret, s->charged_bytes, s->budget_bytes);
        derive_text(ret, "%s of %s (%.1f %%)", show_bytes(f, s->charged_bytes, used),
                show_bytes(f, s->budget_bytes, budget), ret->ratio * 100);
}

static void status_pages(const void *row, const struct show_format *f, struct value *ret)
{
        const status_row *s = row;

        derive_text(ret,
                "%" PRIu64 " published (%" PRIu64 " pinned), %" PRIu64 " granted, %" PRIu64
                " ready, %" PRIu64 " detached, %" PRIu64 " free",
                s->pages_sealed, s->pages_pinned, s->pages_granted, s->pages_ready,
                s->pages_detached, s->pages_free);
}

static void status_lookups(const void *row, const struct show_format *f, struct value *ret)
{
        const status_row *s = row;

        derive_ratio(ret, s->lookup_hits, s->lookup_keys);
        if (!ret->present)
                derive_text(ret, "%" PRIu64, s->lookups);
        else
                derive_text(ret, "%" PRIu64 ", %.1f %% of %" PRIu64 " pages found", s->lookups,
                        ret->ratio * 100, s->lookup_keys);
}

static void status_published(const void *row, const struct show_format *f, struct value *ret)
{
        const status_row *s = row;

        derive_text(ret,
                "%" PRIu64 " pages (%" PRIu64 " without a place in the index), %" PRIu64
                " more were duplicates",
                s->publishes, s->unindexed, s->duplicates);
}

static void status_clients(const void *row, const struct show_format *f, struct value *ret)
{
        const status_row *s = row;

        derive_text(ret,
                "%" PRIu32 " (%" PRIu32 " with shared memory, %" PRIu64 " muted, %" PRIu64
                " waiting for exit)",
                s->n_clients, s->n_sharing, s->peers_muted, s->members_waiting_exit);
}

/* The weaker guard is never shown without what it lets through and the remedy. */
static void status_segments(const void *row, const struct show_format *f, struct value *ret)
{
        const status_row *s = row;

        if (strncmp(s->segments, "memfd", 5) == 0)
                derive_text(ret,
                        "%.48s: same-uid clients could write it; run kvleased with CAP_SYS_ADMIN",
                        s->segments);
        else if (*s->segments)
                derive_text(ret, "%.48s: no client can write it", s->segments);
}

static void status_hit_ratio(const void *row, const struct show_format *f, struct value *ret)
{
        const status_row *s = row;

        derive_ratio(ret, s->lookup_hits, s->lookup_keys);
}

/* Random 64 bits: as a number they would lose digits in readers that use doubles. */
static void status_boot_epoch(const void *row, const struct show_format *f, struct value *ret)
{
        derive_text(ret, "%016" PRIx64, ((const status_row *)row)->boot_epoch);
}

static const struct column status_columns[] = {
        {.heading = "DAEMON", .kind = COLUMN_TEXT, .derive = status_daemon},
        STATUS(daemon_version, NULL, TEXT),
        STATUS(pid, NULL, COUNT),
        STATUS(draining, NULL, BOOL),
        STATUS(uptime_sec, "UPTIME", SECONDS),
        {.key = "boot_epoch", .kind = COLUMN_TEXT, .derive = status_boot_epoch},
        {.heading = "MEMORY", .kind = COLUMN_TEXT, .derive = status_memory},
        STATUS(budget_bytes, NULL, BYTES),
        STATUS(charged_bytes, NULL, BYTES),
        {.heading = "PAGES", .kind = COLUMN_TEXT, .derive = status_pages},
        STATUS(pages_free, NULL, COUNT),
        STATUS(pages_granted, NULL, COUNT),
        STATUS(pages_ready, NULL, COUNT),
        STATUS(pages_sealed, NULL, COUNT),
        STATUS(pages_pinned, NULL, COUNT),
        STATUS(pages_detached, NULL, COUNT),
        {.heading = "LOOKUPS", .kind = COLUMN_TEXT, .derive = status_lookups},
        STATUS(lookups, NULL, COUNT),
        STATUS(lookup_keys, NULL, COUNT),
        STATUS(lookup_hits, NULL, COUNT),
        {.key = "lookup_hit_ratio", .kind = COLUMN_RATIO, .derive = status_hit_ratio},
        {.heading = "PUBLISHED", .kind = COLUMN_TEXT, .derive = status_published},
        STATUS(publishes, NULL, COUNT),
        STATUS(unindexed, NULL, COUNT),
        STATUS(duplicates, NULL, COUNT),
        STATUS(evictions, "EVICTED PAGES", COUNT),
        STATUS(leases_refused, "REFUSED LEASES", COUNT),
        STATUS(n_tenants, "TENANTS", COUNT),
        STATUS(n_namespaces, "NAMESPACES", COUNT),
        {.heading = "CLIENTS", .kind = COLUMN_TEXT, .derive = status_clients},
        STATUS(n_clients, NULL, COUNT),
        STATUS(n_sharing, NULL, COUNT),
        STATUS(peers_muted, NULL, COUNT),
        STATUS(members_waiting_exit, NULL, COUNT),
        STATUS(violations, "VIOLATIONS", COUNT),
        {.heading = "INDEX GUARD", .kind = COLUMN_TEXT, .derive = status_segments},
        STATUS(segments, NULL, TEXT),
        STATUS(touches_dropped, "DROPPED TOUCHES", COUNT),
        STATUS(config_file, "CONFIGURATION", TEXT),
        STATUS(runtime_dir, "RUNTIME DIR", TEXT),
        STATUS(state_dir, "STATE DIR", TEXT),
};

const struct column_table status_table = {"status", status_columns, ARRAY_SIZE(status_columns)};

/* ---- lists ----------------------------------------------------------------------------------- */

#define NOUN(name, message, msg_type)                                         \
        const struct noun noun_##name = {                                     \
                .table = {#name, name##_columns, ARRAY_SIZE(name##_columns)}, \
                .type = (msg_type),                                           \
                .n_rows_offset = offsetof(Kvlease__V1__##message, n_##name),  \
                .rows_offset = offsetof(Kvlease__V1__##message, name),        \
                .next_offset = offsetof(Kvlease__V1__##message, next),        \
        }

#define DEVICE(field, title, what)                     \
        {                                              \
                FIELD(AdminDevice, field, title, what) \
        }

static void device_used(const void *row, const struct show_format *f, struct value *ret)
{
        const Kvlease__V1__AdminDevice *d = row;

        derive_ratio(ret, d->charged_bytes, d->budget_bytes);
}

static const struct column devices_columns[] = {
        DEVICE(name, "NAME", TEXT),
        DEVICE(backend, "BACKEND", TEXT),
        DEVICE(transport, "TRANSPORT", TEXT),
        DEVICE(state, "STATE", TEXT),
        DEVICE(total_bytes, "TOTAL", BYTES),
        DEVICE(budget_bytes, "BUDGET", BYTES),
        DEVICE(charged_bytes, "USED", BYTES),
        {.heading = "USED%", .key = "used_ratio", .kind = COLUMN_RATIO, .derive = device_used},
        DEVICE(extent_bytes, "EXTENT", BYTES),
        DEVICE(n_sets, "SETS", COUNT),
        DEVICE(n_preparing, "PREPARING", COUNT),
        DEVICE(why, "WHY", TEXT),
};

NOUN(devices, AdminDevicesReply, MSG_ADMIN_DEVICES);

#define TENANT(field, title, what)                     \
        {                                              \
                FIELD(AdminTenant, field, title, what) \
        }
#define TENANT_DETAIL(field, title, what)                              \
        {                                                              \
                FIELD(AdminTenant, field, title, what), .detail = true \
        }

static void tenant_used(const void *row, const struct show_format *f, struct value *ret)
{
        const Kvlease__V1__AdminTenant *t = row;

        if (t->limit_bytes != UINT64_MAX)
                derive_ratio(ret, t->charged_bytes, t->limit_bytes);
}

static const struct column tenants_columns[] = {
        TENANT(name, "NAME", TEXT),
        TENANT(limit_bytes, "LIMIT", BYTES),
        TENANT(charged_bytes, "USED", BYTES),
        {.heading = "USED%", .key = "used_ratio", .kind = COLUMN_RATIO, .derive = tenant_used},
        TENANT(weight, "WEIGHT", COUNT),
        TENANT(priority, "PRIORITY", COUNT),
        TENANT(n_clients, "CLIENTS", COUNT),
        TENANT(max_clients, "MAX CLIENTS", COUNT),
        TENANT(n_namespaces, "NAMESPACES", COUNT),
        TENANT(pages_sealed, "PUBLISHED", COUNT),
        TENANT(pages_granted, "GRANTED", COUNT),
        TENANT_DETAIL(pages_detached, "DETACHED", COUNT),
        TENANT_DETAIL(evictions, "EVICTED PAGES", COUNT),
        TENANT_DETAIL(refusals, "REFUSED LEASES", COUNT),
        TENANT_DETAIL(recalled_sets, "RECALLED SETS", COUNT),
        TENANT(source, "SOURCE", TEXT),
        TENANT_DETAIL(uids, "UIDS", TEXT),
        TENANT_DETAIL(gids, "GIDS", TEXT),
        TENANT_DETAIL(group, "GROUP", TEXT),
        TENANT_DETAIL(socket_path, "SOCKET", TEXT),
};

NOUN(tenants, AdminTenantsReply, MSG_ADMIN_TENANTS);

#define NS(field, title, what)                            \
        {                                                 \
                FIELD(AdminNamespace, field, title, what) \
        }
#define LAYOUT(field, title, what)                                                    \
        {                                                                             \
                FIELD(NsLayout, field, title, what),                                  \
                        .inner_offset = offsetof(Kvlease__V1__AdminNamespace, layout) \
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

static const struct column namespaces_columns[] = {
        NS(tenant, "TENANT", TEXT),
        NS(name, "NAME", TEXT),
        LAYOUT(model, "MODEL", TEXT),
        LAYOUT(version, "VERSION", TEXT),
        {.heading = "DTYPE", .key = "dtype", .kind = COLUMN_TEXT, .derive = ns_dtype},
        LAYOUT(n_layers, NULL, COUNT),
        LAYOUT(n_kv_heads, NULL, COUNT),
        LAYOUT(head_size, NULL, COUNT),
        LAYOUT(page_tokens, "PAGE TOKENS", COUNT),
        LAYOUT(n_planes, NULL, COUNT),
        LAYOUT(plane_page_bytes, NULL, BYTES),
        LAYOUT(tp_rank, NULL, COUNT),
        LAYOUT(tp_size, NULL, COUNT),
        LAYOUT(layer_group, NULL, COUNT),
        NS(device, "DEVICE", TEXT),
        NS(epoch, NULL, COUNT),
        NS(charged_bytes, "USED", BYTES),
        NS(n_sets, NULL, COUNT),
        NS(pages_sealed, "PUBLISHED", COUNT),
        NS(pages_pinned, "PINNED", COUNT),
        NS(pages_granted, "GRANTED", COUNT),
        NS(pages_ready, "READY", COUNT),
        NS(pages_detached, NULL, COUNT),
        NS(pages_free, "FREE", COUNT),
        NS(capacity_pages, NULL, COUNT),
        NS(set_pages, NULL, COUNT),
        NS(n_clients, "CLIENTS", COUNT),
        NS(keys, NULL, COUNT),
        NS(hits, NULL, COUNT),
        {.heading = "HITS", .key = "hit_ratio", .kind = COLUMN_RATIO, .derive = ns_hit_ratio},
};

NOUN(namespaces, AdminNamespacesReply, MSG_ADMIN_NAMESPACES);

#define CLIENT(field, title, what)                     \
        {                                              \
                FIELD(AdminClient, field, title, what) \
        }

static const struct column clients_columns[] = {
        CLIENT(client_id, "ID", COUNT),
        CLIENT(tenant, "TENANT", TEXT),
        CLIENT(name, "NAME", TEXT),
        CLIENT(pid, "PID", COUNT),
        CLIENT(uid, "UID", COUNT),
        CLIENT(state, "STATE", TEXT),
        CLIENT(metadata_only, NULL, BOOL),
        CLIENT(group, "GROUP", TEXT),
        CLIENT(pages_granted, "GRANTED", COUNT),
        CLIENT(pins, "PINS", COUNT),
        CLIENT(mapped_sets, "MAPPED SETS", COUNT),
        CLIENT(quarantined_sets, "QUARANTINED", COUNT),
        CLIENT(requests, "REQUESTS", COUNT),
        CLIENT(violations, "VIOLATIONS", COUNT),
        CLIENT(connected_sec, "CONNECTED", SECONDS),
};

NOUN(clients, AdminClientsReply, MSG_ADMIN_CLIENTS);
