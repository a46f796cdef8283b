#include "client/ctl/top-view.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/clock.h"
#include "base/macros.h"
#include "client/ctl/ctl.h"

/* ---- samples --------------------------------------------------------------------------------- */

void top_sample_init(
        struct top_sample *s, const struct top_view *v, uint64_t taken_nsec, uint64_t epoch)
{
        *s = (struct top_sample){.view = v, .taken_nsec = taken_nsec, .epoch = epoch};
}

void top_sample_deinit(struct top_sample *s)
{
        for (size_t i = 0; i < s->n_rows; i++) {
                free(s->rows[i].id);
                for (size_t c = 0; c < TOP_MAX_COLUMNS; c++)
                        free(s->rows[i].cells[c].text);
        }
        free(s->rows);
        *s = (struct top_sample){0};
}

struct top_row *top_sample_add(struct top_sample *s, const char *id)
{
        struct top_row *row;

        if (s->n_rows == s->n_allocated) {
                s->n_allocated = s->n_allocated ? 2 * s->n_allocated : 16;
                s->rows = need(reallocarray(s->rows, s->n_allocated, sizeof(*s->rows)));
        }
        row = &s->rows[s->n_rows++];
        *row = (struct top_row){.id = need(strdup(id))};
        return row;
}

void top_set_text(struct top_row *row, unsigned column, const char *text)
{
        free(row->cells[column].text);
        row->cells[column].text = need(strdup(text));
        row->cells[column].known = text[0] != '\0';
}

static bool is_rate(enum top_kind kind)
{
        return kind == TOP_RATE || kind == TOP_BYTE_RATE;
}

void top_set_number(const struct top_view *v, struct top_row *row, unsigned column, uint64_t number)
{
        enum top_kind kind = v->columns[column].kind;

        row->cells[column].number = number;
        row->cells[column].known = !is_rate(kind) && (kind != TOP_BYTES || number != UINT64_MAX);
}

/* ---- rates ----------------------------------------------------------------------------------- */

static int compare_ids(const void *a, const void *b)
{
        return strcmp(((const struct top_row *)a)->id, ((const struct top_row *)b)->id);
}

/* Finds a row in a sorted sample. */
static struct top_row *find_row(const struct top_sample *s, const char *id)
{
        struct top_row key = {.id = (char *)id};

        return s->n_rows ? bsearch(&key, s->rows, s->n_rows, sizeof(key), compare_ids) : NULL;
}

static void rate_cell(struct top_cell *now, const struct top_cell *before, double seconds)
{
        uint64_t was = before && before->number <= now->number ? before->number : 0;

        now->known = true;
        now->rate = (double)(now->number - was) / seconds;
}

void top_rates(struct top_sample *now, const struct top_sample *before)
{
        const struct top_view *v = now->view;
        double seconds;

        if (now->n_rows)
                qsort(now->rows, now->n_rows, sizeof(*now->rows), compare_ids);
        now->has_rates = before && before->view == v && before->epoch == now->epoch &&
                         before->taken_nsec < now->taken_nsec;
        if (!now->has_rates)
                return;
        seconds = (double)(now->taken_nsec - before->taken_nsec) / NSEC_PER_SEC;
        for (size_t i = 0; i < now->n_rows; i++) {
                const struct top_row *was = find_row(before, now->rows[i].id);

                for (unsigned c = 0; c < v->n_columns; c++)
                        if (is_rate(v->columns[c].kind))
                                rate_cell(&now->rows[i].cells[c], was ? &was->cells[c] : NULL,
                                        seconds);
        }
}

void top_add_rates(struct top_sample *to, const unsigned *to_columns, const struct top_sample *from,
        const unsigned *from_columns, size_t n_columns, unsigned by)
{
        for (size_t i = 0; i < to->n_rows; i++)
                for (size_t c = 0; c < n_columns; c++)
                        to->rows[i].cells[to_columns[c]].known = from->has_rates;
        if (!from->has_rates)
                return;
        for (size_t i = 0; i < from->n_rows; i++) {
                const struct top_row *row = &from->rows[i];
                struct top_row *sum =
                        by == TOP_ALL_ROWS ? to->rows : find_row(to, row->cells[by].text);

                for (size_t c = 0; sum && c < n_columns; c++)
                        sum->cells[to_columns[c]].rate += row->cells[from_columns[c]].rate;
        }
}

void top_ratios(struct top_sample *s)
{
        const struct top_view *v = s->view;

        for (unsigned c = 0; c < v->n_columns; c++) {
                if (v->columns[c].kind != TOP_RATIO)
                        continue;
                for (size_t i = 0; i < s->n_rows; i++) {
                        struct top_cell *cells = s->rows[i].cells;
                        double hits = cells[v->hits].rate, misses = cells[v->misses].rate;

                        cells[c].known = hits + misses > 0;
                        cells[c].rate = cells[c].known ? hits / (hits + misses) : 0;
                }
        }
}

/* ---- what is shown --------------------------------------------------------------------------- */

unsigned top_find_column(const struct top_view *v, const char *name)
{
        unsigned c = 0;

        while (c < v->n_columns && strcasecmp(v->columns[c].heading, name) != 0)
                c++;
        return c;
}

static bool has_text(const struct top_view *v, const struct top_row *row, const char *text)
{
        for (unsigned c = 0; c < v->n_columns; c++)
                if (row->cells[c].text && strcasestr(row->cells[c].text, text))
                        return true;
        return false;
}

static bool is_shown(
        const struct top_view *v, const struct top_row *row, const struct top_order *order)
{
        const char *tenant = row->cells[v->tenant].text;

        if (order->tenant && (!tenant || strcmp(tenant, order->tenant) != 0))
                return false;
        return !order->filter || has_text(v, row, order->filter);
}

struct sorting {
        const struct top_order *order;
        enum top_kind kind;
};

static double cell_value(const struct top_cell *cell, enum top_kind kind)
{
        return kind == TOP_RATIO || is_rate(kind) ? cell->rate : (double)cell->number;
}

/* Returns < 0 if x comes first. Both are known. */
static int compare_cells(const struct top_cell *x, const struct top_cell *y, enum top_kind kind)
{
        double m = cell_value(x, kind), n = cell_value(y, kind);

        return x->text ? strcmp(x->text, y->text) : (m < n) - (m > n);
}

static int compare_rows(const void *a, const void *b, void *data)
{
        const struct sorting *s = data;
        const struct top_row *row_a = *(const struct top_row *const *)a;
        const struct top_row *row_b = *(const struct top_row *const *)b;
        const struct top_cell *x = &row_a->cells[s->order->column];
        const struct top_cell *y = &row_b->cells[s->order->column];
        int r = 0;

        if (x->known != y->known)
                return x->known ? -1 : 1;
        if (x->known)
                r = compare_cells(x, y, s->kind);
        if (r == 0)
                return strcmp(row_a->id, row_b->id);
        return s->order->is_reversed ? -r : r;
}

size_t top_select(
        const struct top_sample *s, const struct top_order *order, const struct top_row **ret_rows)
{
        struct sorting sorting = {order, s->view->columns[order->column].kind};
        size_t n = 0;

        assert(order->column < s->view->n_columns);
        for (size_t i = 0; i < s->n_rows; i++)
                if (is_shown(s->view, &s->rows[i], order))
                        ret_rows[n++] = &s->rows[i];
        if (n)
                qsort_r(ret_rows, n, sizeof(*ret_rows), compare_rows, &sorting);
        return n;
}

/* X(NAME, heading, JSON key, kind, figure) or Y(NAME, heading, JSON key, kind), which is computed:
 * the most important first, as narrow screens show these. */
#define TENANT_COLUMNS(X, Y)                                                          \
        X(TENANT_NAME, "TENANT", "tenant", TEXT, name)                                \
        Y(TENANT_TOKENS, "TOKEN/S", "hit_tokens_per_sec", RATE)                       \
        Y(TENANT_HITS, "HIT/S", "hit_pages_per_sec", RATE)                            \
        Y(TENANT_MISSES, "MISS/S", "missed_pages_per_sec", RATE)                      \
        Y(TENANT_RATIO, "HIT%", "hit_ratio", RATIO)                                   \
        X(TENANT_REQUESTS, "REQ/S", "requests_per_sec", RATE, requests)               \
        X(TENANT_EVICTED, "EVICT/S", "evicted_pages_per_sec", RATE, evictions)        \
        X(TENANT_REFUSED, "REFUSE/S", "refused_leases_per_sec", RATE, refusals)       \
        X(TENANT_USED, "USED", "charged_bytes", BYTES, charged_bytes)                 \
        X(TENANT_RESERVE, "RESERVE", "reserve_bytes", BYTES, reserve_bytes)           \
        X(TENANT_LIMIT, "LIMIT", "limit_bytes", BYTES, limit_bytes)                   \
        X(TENANT_CLIENTS, "CLIENTS", "n_clients", COUNT, n_clients)                   \
        X(TENANT_WAITING, "WAITING", "waiting", COUNT, waiting)                       \
        X(TENANT_UP, "UP/S", "promoted_pages_per_sec", RATE, pages_promoted)          \
        X(TENANT_TO_HOST, "HOST/S", "host_arrived_pages_per_sec", RATE, host.arrived) \
        X(TENANT_TO_DISK, "DISK/S", "disk_arrived_pages_per_sec", RATE, disk.arrived) \
        X(TENANT_HOST, "HOST", "host_charged_bytes", BYTES, host.charged_bytes)       \
        X(TENANT_DISK, "DISK", "disk_charged_bytes", BYTES, disk.charged_bytes)

#define NAMESPACE_COLUMNS(X, Y)                                                          \
        X(NAMESPACE_TENANT, "TENANT", "tenant", TEXT, tenant)                            \
        X(NAMESPACE_NAME, "NAMESPACE", "namespace", TEXT, name)                          \
        Y(NAMESPACE_TOKENS, "TOKEN/S", "hit_tokens_per_sec", RATE)                       \
        X(NAMESPACE_HITS, "HIT/S", "hit_pages_per_sec", RATE, hits)                      \
        Y(NAMESPACE_MISSES, "MISS/S", "missed_pages_per_sec", RATE)                      \
        Y(NAMESPACE_RATIO, "HIT%", "hit_ratio", RATIO)                                   \
        X(NAMESPACE_EVICTED, "EVICT/S", "evicted_pages_per_sec", RATE, evictions)        \
        X(NAMESPACE_USED, "USED", "charged_bytes", BYTES, charged_bytes)                 \
        X(NAMESPACE_PAGES, "PAGES", "pages_sealed", COUNT, pages_sealed)                 \
        X(NAMESPACE_PINNED, "PINNED", "pages_pinned", COUNT, pages_pinned)               \
        X(NAMESPACE_GRANTED, "GRANTED", "pages_granted", COUNT, pages_granted)           \
        X(NAMESPACE_CLIENTS, "CLIENTS", "n_clients", COUNT, n_clients)                   \
        X(NAMESPACE_SESSIONS, "SESSIONS", "n_sessions", COUNT, n_sessions)               \
        X(NAMESPACE_UP, "UP/S", "promoted_pages_per_sec", RATE, pages_promoted)          \
        X(NAMESPACE_TO_HOST, "HOST/S", "host_arrived_pages_per_sec", RATE, host.arrived) \
        X(NAMESPACE_TO_DISK, "DISK/S", "disk_arrived_pages_per_sec", RATE, disk.arrived) \
        X(NAMESPACE_DEVICE, "DEVICE", "device", DEVICE, device)                          \
        X(NAMESPACE_MODEL, "MODEL", "model", TEXT, model)

#define CLIENT_COLUMNS(X, Y)                                                      \
        X(CLIENT_ID, "ID", "client_id", COUNT, client_id)                         \
        X(CLIENT_TENANT, "TENANT", "tenant", TEXT, tenant)                        \
        X(CLIENT_NAME, "NAME", "name", TEXT, name)                                \
        X(CLIENT_PID, "PID", "pid", COUNT, pid)                                   \
        X(CLIENT_STATE, "STATE", "state", TEXT, state)                            \
        X(CLIENT_REQUESTS, "REQ/S", "requests_per_sec", RATE, requests)           \
        X(CLIENT_PINS, "PINS", "pins", COUNT, pins)                               \
        X(CLIENT_GRANTED, "GRANTED", "pages_granted", COUNT, pages_granted)       \
        X(CLIENT_NAMESPACES, "SPACES", "namespaces", COUNT, namespaces)           \
        X(CLIENT_MAPPED, "MAPPED", "mapped_sets", COUNT, mapped_sets)             \
        X(CLIENT_RECALLED, "RECALLED", "recalled_sets", COUNT, recalled_sets)     \
        X(CLIENT_WAITING, "WAITING", "waiting", COUNT, waiting)                   \
        X(CLIENT_PENDING, "PENDING", "pending_bytes", BYTES, pending_bytes)       \
        X(CLIENT_HEARD, "HEARD", "heard_sec", SECONDS, heard_sec)                 \
        X(CLIENT_CONNECTED, "CONNECTED", "connected_sec", SECONDS, connected_sec) \
        X(CLIENT_VIOLATIONS, "VIOLATIONS", "violations", COUNT, violations)

#define REGION_COLUMNS(X, Y)                                                \
        X(REGION_DEVICE, "DEVICE", "device", DEVICE, device)                \
        Y(REGION_TENANT, "TENANT", "tenant", TEXT)                          \
        X(REGION_SIZE, "SIZE", "size_bytes", BYTES, size_bytes)             \
        X(REGION_USED, "USED", "used_bytes", BYTES, used_bytes)             \
        X(REGION_EXCESS, "EXCESS", "excess_bytes", BYTES, excess_bytes)     \
        X(REGION_FAIR, "FAIR", "fair_bytes", BYTES, fair_bytes)             \
        X(REGION_DEMAND, "DEMAND", "demand_bytes", BYTES, demand_bytes)     \
        X(REGION_P99, "P99", "p99_bytes", BYTES, p99_bytes)                 \
        X(REGION_LENT, "LENT", "lent_bytes", BYTES, lent_bytes)             \
        X(REGION_MISSING, "MISSING", "missing_bytes", BYTES, missing_bytes) \
        X(REGION_SIZER, "SIZER", "sizer", TEXT, sizer)                      \
        Y(REGION_DECISION, "DECISION", "decision", TEXT)

#define TOTAL_COLUMNS(X, Y)                                                            \
        Y(TOTAL_TOKENS, "TOKEN/S", "hit_tokens_per_sec", RATE)                         \
        X(TOTAL_HITS, "HIT/S", "hit_pages_per_sec", RATE, lookup_hits)                 \
        Y(TOTAL_MISSES, "MISS/S", "missed_pages_per_sec", RATE)                        \
        Y(TOTAL_RATIO, "HIT%", "hit_ratio", RATIO)                                     \
        X(TOTAL_LOOKUPS, "LOOKUP/S", "lookups_per_sec", RATE, lookups)                 \
        Y(TOTAL_LEASES, "LEASE/S", "lease_requests_per_sec", RATE)                     \
        X(TOTAL_REFUSED, "REFUSE/S", "refused_leases_per_sec", RATE, leases_refused)   \
        X(TOTAL_PUBLISHED, "PUBLISH/S", "published_pages_per_sec", RATE, publishes)    \
        X(TOTAL_EVICTED, "EVICT/S", "evicted_pages_per_sec", RATE, evictions)          \
        X(TOTAL_UP, "UP/S", "promoted_pages_per_sec", RATE, pages_promoted)            \
        X(TOTAL_TO_HOST, "HOST/S", "host_arrived_pages_per_sec", RATE, host.arrived)   \
        X(TOTAL_TO_DISK, "DISK/S", "disk_arrived_pages_per_sec", RATE, disk.arrived)   \
        X(TOTAL_READ, "READ/S", "disk_read_bytes_per_sec", BYTE_RATE, disk.read_bytes) \
        X(TOTAL_WRITTEN, "WRITE/S", "disk_written_bytes_per_sec", BYTE_RATE, disk.written_bytes)

#define ENUM(name, ...) name,
#define COMPUTED(name, title, json, what) \
        [name] = {.heading = (title), .key = (json), .kind = TOP_##what},
#define OF(scope, name, title, json, what, figure) \
        [name] = {.heading = (title),              \
                .key = (json),                     \
                .kind = TOP_##what,                \
                .is_figure = true,                 \
                .offset = offsetof(struct figures_##scope, figure)},
#define OF_TENANT(...)    OF(tenant, __VA_ARGS__)
#define OF_NAMESPACE(...) OF(namespace, __VA_ARGS__)
#define OF_CLIENT(...)    OF(client, __VA_ARGS__)
#define OF_REGION(...)    OF(region, __VA_ARGS__)
#define OF_STATUS(...)    OF(status, __VA_ARGS__)

enum { TENANT_COLUMNS(ENUM, ENUM) N_TENANT_COLUMNS };
enum { NAMESPACE_COLUMNS(ENUM, ENUM) N_NAMESPACE_COLUMNS };
enum { CLIENT_COLUMNS(ENUM, ENUM) N_CLIENT_COLUMNS };
enum { REGION_COLUMNS(ENUM, ENUM) N_REGION_COLUMNS };
enum { TOTAL_COLUMNS(ENUM, ENUM) N_TOTAL_COLUMNS };

static const struct top_column tenant_columns[] = {TENANT_COLUMNS(OF_TENANT, COMPUTED)};
static const struct top_column namespace_columns[] = {NAMESPACE_COLUMNS(OF_NAMESPACE, COMPUTED)};
static const struct top_column client_columns[] = {CLIENT_COLUMNS(OF_CLIENT, COMPUTED)};
static const struct top_column region_columns[] = {REGION_COLUMNS(OF_REGION, COMPUTED)};
static const struct top_column total_columns[] = {TOTAL_COLUMNS(OF_STATUS, COMPUTED)};

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

/* Adds a row with all figures of its columns. */
static struct top_row *read_row(struct top_sample *s, const char *id, const void *figures)
{
        struct top_row *row = top_sample_add(s, id);

        for (unsigned c = 0; c < s->view->n_columns; c++) {
                const struct top_column *column = &s->view->columns[c];
                const char *at = (const char *)figures + column->offset;
                const char *text;
                uint64_t number;

                if (!column->is_figure)
                        continue;
                if (column->kind == TOP_TEXT || column->kind == TOP_DEVICE) {
                        text = *(const char *const *)(const void *)at;
                        top_set_text(row, c, text ? text : "");
                        continue;
                }
                number = *(const uint64_t *)(const void *)at;
                /* A counter of a tier that isn't there stands still. */
                if (number == FIGURE_NONE && column->kind != TOP_BYTES)
                        number = 0;
                top_set_number(s->view, row, c, number);
        }
        return row;
}

/* Does read_row() with an id of two parts. */
static struct top_row *read_row_of(
        struct top_sample *s, const char *first, const char *second, const void *figures)
{
        _cleanup_free_ char *id = NULL;

        if (asprintf(&id, "%s/%s", first, second) < 0)
                id = NULL; /* asprintf leaves it undefined */
        return read_row(s, need(id), figures);
}

static void read_namespace(const struct figures_namespace *n, struct top_sample *s)
{
        struct top_row *row = read_row_of(s, n->tenant, n->name, n);
        uint64_t page_tokens = n->page_tokens != FIGURE_NONE ? n->page_tokens : 0;

        top_set_number(s->view, row, NAMESPACE_TOKENS, n->hits * page_tokens);
        top_set_number(s->view, row, NAMESPACE_MISSES, minus_u64(n->keys, n->hits));
}

static void read_client(const struct figures_client *c, struct top_sample *s)
{
        char id[24];

        snprintf(id, sizeof(id), "%020" PRIu64, c->client_id); /* sorts like the number */
        read_row(s, id, c);
}

static void read_region(const struct figures_region *r, struct top_sample *s)
{
        struct top_row *row = read_row_of(s, r->device, r->tenant, r);

        top_set_text(row, REGION_TENANT, r->tenant[0] ? r->tenant : "(dynamic pool)");
        top_set_text(row, REGION_DECISION, strcmp(r->decision, "none") == 0 ? "" : r->decision);
}

void top_read(enum top_view_id v, const void *row, struct top_sample *to)
{
        switch (v) {
        case TOP_TENANTS:
                read_row(to, ((const struct figures_tenant *)row)->name, row);
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

void top_read_totals(const struct figures_status *m, uint64_t n_leases, struct top_sample *s)
{
        struct top_row *row = read_row(s, "", m);

        top_set_number(s->view, row, TOTAL_MISSES, minus_u64(m->lookup_keys, m->lookup_hits));
        top_set_number(s->view, row, TOTAL_LEASES, n_leases);
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
