#include "client/ctl/top-view.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/macros.h"
#include "client/ctl/ctl.h"

/* X(NAME, heading, JSON key, kind): the most important first, as narrow screens show these. */
#define TENANT_COLUMNS(X)                                               \
        X(TENANT_NAME, "TENANT", "tenant", TEXT)                        \
        X(TENANT_TOKENS, "TOKEN/S", "hit_tokens_per_sec", RATE)         \
        X(TENANT_HITS, "HIT/S", "hit_pages_per_sec", RATE)              \
        X(TENANT_MISSES, "MISS/S", "missed_pages_per_sec", RATE)        \
        X(TENANT_RATIO, "HIT%", "hit_ratio", RATIO)                     \
        X(TENANT_REQUESTS, "REQ/S", "requests_per_sec", RATE)           \
        X(TENANT_EVICTED, "EVICT/S", "evicted_pages_per_sec", RATE)     \
        X(TENANT_REFUSED, "REFUSE/S", "refused_leases_per_sec", RATE)   \
        X(TENANT_USED, "USED", "charged_bytes", BYTES)                  \
        X(TENANT_RESERVE, "RESERVE", "reserve_bytes", BYTES)            \
        X(TENANT_LIMIT, "LIMIT", "limit_bytes", BYTES)                  \
        X(TENANT_CLIENTS, "CLIENTS", "n_clients", COUNT)                \
        X(TENANT_WAITING, "WAITING", "waiting", COUNT)                  \
        X(TENANT_UP, "UP/S", "promoted_pages_per_sec", RATE)            \
        X(TENANT_TO_HOST, "HOST/S", "host_arrived_pages_per_sec", RATE) \
        X(TENANT_TO_DISK, "DISK/S", "disk_arrived_pages_per_sec", RATE) \
        X(TENANT_HOST, "HOST", "host_charged_bytes", BYTES)             \
        X(TENANT_DISK, "DISK", "disk_charged_bytes", BYTES)

#define NAMESPACE_COLUMNS(X)                                               \
        X(NAMESPACE_TENANT, "TENANT", "tenant", TEXT)                      \
        X(NAMESPACE_NAME, "NAMESPACE", "namespace", TEXT)                  \
        X(NAMESPACE_TOKENS, "TOKEN/S", "hit_tokens_per_sec", RATE)         \
        X(NAMESPACE_HITS, "HIT/S", "hit_pages_per_sec", RATE)              \
        X(NAMESPACE_MISSES, "MISS/S", "missed_pages_per_sec", RATE)        \
        X(NAMESPACE_RATIO, "HIT%", "hit_ratio", RATIO)                     \
        X(NAMESPACE_EVICTED, "EVICT/S", "evicted_pages_per_sec", RATE)     \
        X(NAMESPACE_USED, "USED", "charged_bytes", BYTES)                  \
        X(NAMESPACE_PAGES, "PAGES", "pages_sealed", COUNT)                 \
        X(NAMESPACE_PINNED, "PINNED", "pages_pinned", COUNT)               \
        X(NAMESPACE_GRANTED, "GRANTED", "pages_granted", COUNT)            \
        X(NAMESPACE_CLIENTS, "CLIENTS", "n_clients", COUNT)                \
        X(NAMESPACE_SESSIONS, "SESSIONS", "n_sessions", COUNT)             \
        X(NAMESPACE_UP, "UP/S", "promoted_pages_per_sec", RATE)            \
        X(NAMESPACE_TO_HOST, "HOST/S", "host_arrived_pages_per_sec", RATE) \
        X(NAMESPACE_TO_DISK, "DISK/S", "disk_arrived_pages_per_sec", RATE) \
        X(NAMESPACE_DEVICE, "DEVICE", "device", DEVICE)                    \
        X(NAMESPACE_MODEL, "MODEL", "model", TEXT)

#define CLIENT_COLUMNS(X)                                          \
        X(CLIENT_ID, "ID", "client_id", COUNT)                     \
        X(CLIENT_TENANT, "TENANT", "tenant", TEXT)                 \
        X(CLIENT_NAME, "NAME", "name", TEXT)                       \
        X(CLIENT_PID, "PID", "pid", COUNT)                         \
        X(CLIENT_STATE, "STATE", "state", TEXT)                    \
        X(CLIENT_REQUESTS, "REQ/S", "requests_per_sec", RATE)      \
        X(CLIENT_PINS, "PINS", "pins", COUNT)                      \
        X(CLIENT_GRANTED, "GRANTED", "pages_granted", COUNT)       \
        X(CLIENT_NAMESPACES, "SPACES", "namespaces", COUNT)        \
        X(CLIENT_MAPPED, "MAPPED", "mapped_sets", COUNT)           \
        X(CLIENT_RECALLED, "RECALLED", "recalled_sets", COUNT)     \
        X(CLIENT_WAITING, "WAITING", "waiting", COUNT)             \
        X(CLIENT_PENDING, "PENDING", "pending_bytes", BYTES)       \
        X(CLIENT_HEARD, "HEARD", "heard_sec", SECONDS)             \
        X(CLIENT_CONNECTED, "CONNECTED", "connected_sec", SECONDS) \
        X(CLIENT_VIOLATIONS, "VIOLATIONS", "violations", COUNT)

#define REGION_COLUMNS(X)                                    \
        X(REGION_DEVICE, "DEVICE", "device", DEVICE)         \
        X(REGION_TENANT, "TENANT", "tenant", TEXT)           \
        X(REGION_SIZE, "SIZE", "size_bytes", BYTES)          \
        X(REGION_USED, "USED", "used_bytes", BYTES)          \
        X(REGION_EXCESS, "EXCESS", "excess_bytes", BYTES)    \
        X(REGION_FAIR, "FAIR", "fair_bytes", BYTES)          \
        X(REGION_DEMAND, "DEMAND", "demand_bytes", BYTES)    \
        X(REGION_P99, "P99", "p99_bytes", BYTES)             \
        X(REGION_LENT, "LENT", "lent_bytes", BYTES)          \
        X(REGION_MISSING, "MISSING", "missing_bytes", BYTES) \
        X(REGION_SIZER, "SIZER", "sizer", TEXT)              \
        X(REGION_DECISION, "DECISION", "decision", TEXT)

#define TOTAL_COLUMNS(X)                                                 \
        X(TOTAL_TOKENS, "TOKEN/S", "hit_tokens_per_sec", RATE)           \
        X(TOTAL_HITS, "HIT/S", "hit_pages_per_sec", RATE)                \
        X(TOTAL_MISSES, "MISS/S", "missed_pages_per_sec", RATE)          \
        X(TOTAL_RATIO, "HIT%", "hit_ratio", RATIO)                       \
        X(TOTAL_LOOKUPS, "LOOKUP/S", "lookups_per_sec", RATE)            \
        X(TOTAL_LEASES, "LEASE/S", "lease_requests_per_sec", RATE)       \
        X(TOTAL_REFUSED, "REFUSE/S", "refused_leases_per_sec", RATE)     \
        X(TOTAL_PUBLISHED, "PUBLISH/S", "published_pages_per_sec", RATE) \
        X(TOTAL_EVICTED, "EVICT/S", "evicted_pages_per_sec", RATE)       \
        X(TOTAL_UP, "UP/S", "promoted_pages_per_sec", RATE)              \
        X(TOTAL_TO_HOST, "HOST/S", "host_arrived_pages_per_sec", RATE)   \
        X(TOTAL_TO_DISK, "DISK/S", "disk_arrived_pages_per_sec", RATE)   \
        X(TOTAL_READ, "READ/S", "disk_read_bytes_per_sec", BYTE_RATE)    \
        X(TOTAL_WRITTEN, "WRITE/S", "disk_written_bytes_per_sec", BYTE_RATE)

#define ENUM(name, ...) name,
#define ROW(name, title, json, what) \
        [name] = {.heading = (title), .key = (json), .kind = TOP_##what},

enum { TENANT_COLUMNS(ENUM) N_TENANT_COLUMNS };
enum { NAMESPACE_COLUMNS(ENUM) N_NAMESPACE_COLUMNS };
enum { CLIENT_COLUMNS(ENUM) N_CLIENT_COLUMNS };
enum { REGION_COLUMNS(ENUM) N_REGION_COLUMNS };
enum { TOTAL_COLUMNS(ENUM) N_TOTAL_COLUMNS };

static const struct top_column tenant_columns[] = {TENANT_COLUMNS(ROW)};
static const struct top_column namespace_columns[] = {NAMESPACE_COLUMNS(ROW)};
static const struct top_column client_columns[] = {CLIENT_COLUMNS(ROW)};
static const struct top_column region_columns[] = {REGION_COLUMNS(ROW)};
static const struct top_column total_columns[] = {TOTAL_COLUMNS(ROW)};

static_assert(N_TENANT_COLUMNS <= TOP_MAX_COLUMNS && N_NAMESPACE_COLUMNS <= TOP_MAX_COLUMNS &&
                      N_CLIENT_COLUMNS <= TOP_MAX_COLUMNS && N_REGION_COLUMNS <= TOP_MAX_COLUMNS &&
                      N_TOTAL_COLUMNS <= TOP_MAX_COLUMNS,
        "a row has a cell for each column");

const struct top_view top_views[TOP_N_VIEWS] = {
        [TOP_TENANTS] = {"tenants", tenant_columns, N_TENANT_COLUMNS, 1, TENANT_TOKENS, TENANT_NAME,
                TENANT_HITS, TENANT_MISSES},
        [TOP_NAMESPACES] = {"namespaces", namespace_columns, N_NAMESPACE_COLUMNS, 2,
                NAMESPACE_TOKENS, NAMESPACE_TENANT, NAMESPACE_HITS, NAMESPACE_MISSES},
        [TOP_CLIENTS] = {"clients", client_columns, N_CLIENT_COLUMNS, 3, CLIENT_REQUESTS,
                CLIENT_TENANT},
        [TOP_REGIONS] = {"regions", region_columns, N_REGION_COLUMNS, 2, REGION_DEVICE,
                REGION_TENANT},
};
const struct top_view top_totals = {
        "totals", total_columns, N_TOTAL_COLUMNS, 0, TOTAL_HITS, 0, TOTAL_HITS, TOTAL_MISSES};

const struct noun *top_noun(enum top_view_id v)
{
        static const struct noun *const nouns[] = {
                [TOP_TENANTS] = &noun_tenants,
                [TOP_NAMESPACES] = &noun_namespaces,
                [TOP_CLIENTS] = &noun_clients,
                [TOP_REGIONS] = &noun_regions,
        };

        return nouns[v];
}

/* ---- reading --------------------------------------------------------------------------------- */

static void set(struct top_sample *s, struct top_row *row, unsigned column, uint64_t number)
{
        top_set_number(s->view, row, column, number);
}

/* Sets the figures of a lower tier; unknown if there is none. */
static void set_tier(struct top_sample *s, struct top_row *row, const Kvlease__V1__AdminTier *t,
        unsigned bytes, unsigned arrived)
{
        if (t)
                set(s, row, bytes, t->charged_bytes);
        set(s, row, arrived, t ? t->arrived : 0);
}

static void read_tenant(const Kvlease__V1__AdminTenant *t, struct top_sample *s)
{
        struct top_row *row = top_sample_add(s, t->name);

        top_set_text(row, TENANT_NAME, t->name);
        set(s, row, TENANT_REQUESTS, t->requests);
        set(s, row, TENANT_EVICTED, t->evictions);
        set(s, row, TENANT_REFUSED, t->refusals);
        set(s, row, TENANT_USED, t->charged_bytes);
        set(s, row, TENANT_RESERVE, t->reserve_bytes);
        set(s, row, TENANT_LIMIT, t->limit_bytes);
        set(s, row, TENANT_CLIENTS, t->n_clients);
        set(s, row, TENANT_WAITING, t->waiting);
        set(s, row, TENANT_UP, t->pages_promoted);
        set_tier(s, row, t->host, TENANT_HOST, TENANT_TO_HOST);
        set_tier(s, row, t->disk, TENANT_DISK, TENANT_TO_DISK);
}

static void read_namespace(const Kvlease__V1__AdminNamespace *n, struct top_sample *s)
{
        _cleanup_free_ char *id = NULL;
        struct top_row *row;

        if (asprintf(&id, "%s/%s", n->tenant, n->name) < 0)
                id = NULL; /* asprintf leaves it undefined */
        row = top_sample_add(s, need(id));
        top_set_text(row, NAMESPACE_TENANT, n->tenant);
        top_set_text(row, NAMESPACE_NAME, n->name);
        top_set_text(row, NAMESPACE_DEVICE, n->device);
        top_set_text(row, NAMESPACE_MODEL, n->layout ? n->layout->model : "");
        set(s, row, NAMESPACE_TOKENS, n->hits * (n->layout ? n->layout->page_tokens : 0));
        set(s, row, NAMESPACE_HITS, n->hits);
        set(s, row, NAMESPACE_MISSES, n->keys - MIN(n->hits, n->keys));
        set(s, row, NAMESPACE_EVICTED, n->evictions);
        set(s, row, NAMESPACE_USED, n->charged_bytes);
        set(s, row, NAMESPACE_PAGES, n->pages_sealed);
        set(s, row, NAMESPACE_PINNED, n->pages_pinned);
        set(s, row, NAMESPACE_GRANTED, n->pages_granted);
        set(s, row, NAMESPACE_CLIENTS, n->n_clients);
        set(s, row, NAMESPACE_SESSIONS, n->n_sessions);
        set(s, row, NAMESPACE_UP, n->pages_promoted);
        set(s, row, NAMESPACE_TO_HOST, n->host ? n->host->arrived : 0);
        set(s, row, NAMESPACE_TO_DISK, n->disk ? n->disk->arrived : 0);
}

static void read_client(const Kvlease__V1__AdminClient *c, struct top_sample *s)
{
        char id[24];
        struct top_row *row;

        snprintf(id, sizeof(id), "%020" PRIu64, c->client_id); /* sorts like the number */
        row = top_sample_add(s, id);
        set(s, row, CLIENT_ID, c->client_id);
        top_set_text(row, CLIENT_TENANT, c->tenant);
        top_set_text(row, CLIENT_NAME, c->name);
        top_set_text(row, CLIENT_STATE, c->state);
        set(s, row, CLIENT_PID, c->pid);
        set(s, row, CLIENT_REQUESTS, c->requests);
        set(s, row, CLIENT_PINS, c->pins);
        set(s, row, CLIENT_GRANTED, c->pages_granted);
        set(s, row, CLIENT_NAMESPACES, c->namespaces);
        set(s, row, CLIENT_MAPPED, c->mapped_sets);
        set(s, row, CLIENT_RECALLED, c->recalled_sets);
        set(s, row, CLIENT_WAITING, c->waiting);
        set(s, row, CLIENT_PENDING, c->pending_bytes);
        set(s, row, CLIENT_HEARD, c->heard_sec);
        set(s, row, CLIENT_CONNECTED, c->connected_sec);
        set(s, row, CLIENT_VIOLATIONS, c->violations);
}

static void read_region(const Kvlease__V1__AdminRegion *r, struct top_sample *s)
{
        bool is_pool = r->tenant[0] == '\0';
        _cleanup_free_ char *id = NULL;
        struct top_row *row;

        if (asprintf(&id, "%s/%s", r->device, r->tenant) < 0)
                id = NULL; /* asprintf leaves it undefined */
        row = top_sample_add(s, need(id));
        top_set_text(row, REGION_DEVICE, r->device);
        top_set_text(row, REGION_TENANT, is_pool ? "(dynamic pool)" : r->tenant);
        top_set_text(row, REGION_SIZER, r->sizer);
        top_set_text(row, REGION_DECISION, strcmp(r->decision, "none") == 0 ? "" : r->decision);
        set(s, row, REGION_SIZE, r->size_bytes);
        set(s, row, REGION_USED, r->used_bytes);
        set(s, row, REGION_EXCESS, r->excess_bytes);
        set(s, row, REGION_LENT, r->lent_bytes);
        set(s, row, REGION_MISSING, r->missing_bytes);
        if (is_pool)
                return; /* a pool has no sizer */
        set(s, row, REGION_FAIR, r->fair_bytes);
        set(s, row, REGION_DEMAND, r->demand_bytes);
        set(s, row, REGION_P99, r->p99_bytes);
}

void top_read(enum top_view_id v, const void *row, struct top_sample *to)
{
        switch (v) {
        case TOP_TENANTS:
                read_tenant(row, to);
                break;
        case TOP_NAMESPACES:
                read_namespace(row, to);
                break;
        case TOP_CLIENTS:
                read_client(row, to);
                break;
        case TOP_REGIONS:
                read_region(row, to);
                break;
        case TOP_N_VIEWS:
                abort();
        }
}

void top_read_totals(
        const Kvlease__V1__AdminStatusReply *m, uint64_t n_leases, struct top_sample *s)
{
        struct top_row *row = top_sample_add(s, "");

        set(s, row, TOTAL_HITS, m->lookup_hits);
        set(s, row, TOTAL_MISSES, m->lookup_keys - MIN(m->lookup_hits, m->lookup_keys));
        set(s, row, TOTAL_LOOKUPS, m->lookups);
        set(s, row, TOTAL_LEASES, n_leases);
        set(s, row, TOTAL_REFUSED, m->leases_refused);
        set(s, row, TOTAL_PUBLISHED, m->publishes);
        set(s, row, TOTAL_EVICTED, m->evictions);
        set(s, row, TOTAL_UP, m->pages_promoted);
        set(s, row, TOTAL_TO_HOST, m->host ? m->host->arrived : 0);
        set(s, row, TOTAL_TO_DISK, m->disk ? m->disk->arrived : 0);
        set(s, row, TOTAL_READ, m->disk ? m->disk->read_bytes : 0);
        set(s, row, TOTAL_WRITTEN, m->disk ? m->disk->written_bytes : 0);
}

/* ---- sums ------------------------------------------------------------------------------------ */

void top_sum_up(
        struct top_sample *totals, struct top_sample *tenants, struct top_sample *namespaces)
{
        static const unsigned from[] = {NAMESPACE_TOKENS, NAMESPACE_HITS, NAMESPACE_MISSES};
        static const unsigned to[] = {TENANT_TOKENS, TENANT_HITS, TENANT_MISSES};
        static const unsigned tokens[] = {TOTAL_TOKENS};

        top_add_rates(totals, tokens, namespaces, from, ARRAY_SIZE(tokens), TOP_ALL_ROWS);
        top_ratios(totals);
        top_ratios(namespaces);
        if (!tenants)
                return;
        top_add_rates(tenants, to, namespaces, from, ARRAY_SIZE(to), NAMESPACE_TENANT);
        top_ratios(tenants);
}
