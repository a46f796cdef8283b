/* The metrics of proto/figures.def, and the value of a metric in a row. */
#include "client/exporter/metric.h"

#include <math.h>
#include <string.h>

#include "client/exporter/source.h"
#include "proto/exchange-drop.h"
#include "proto/figures.h"

/* ---- computed samples ------------------------------------------------------------------------ */

/* The difference of two counters that weren't read at one moment; not negative. */
static double counter_difference(uint64_t a, uint64_t b)
{
        return a > b ? (double)(a - b) : 0;
}

static bool device_is(const struct figures_device *r, const char *state)
{
        return strcmp(r->state, state) == 0;
}

#define METRIC(name, value, ...)                     \
        static double metric_##name(const void *row) \
        {                                            \
                const ROW *r = row;                  \
                                                     \
                return (double)(value);              \
        }
#include "proto/figures.def"

static const struct figures_drop *find_drop(const struct figures_exchange *r, const char *reason)
{
        static const struct figures_drop none;

        for (size_t i = 0; i < r->n_drops; i++)
                if (strcmp(r->drops[i].reason, reason) == 0)
                        return &r->drops[i];
        return &none;
}

#define X(name, reason, what)                                        \
        static double not_imported_##name(const void *row)           \
        {                                                            \
                return (double)find_drop(row, reason)->not_imported; \
        }                                                            \
        static double not_exported_##name(const void *row)           \
        {                                                            \
                return (double)find_drop(row, reason)->not_exported; \
        }
EXCHANGE_DROPS(X)
#undef X

/* ---- tables ---------------------------------------------------------------------------------- */

/* Words behind a figure's kind. */
#define SHOWN(...)
#define DETAIL(...)
#define KEY(...)
#define SPARE(...)
#define SHORTEST(...)
#define WHAT(...)
#define WRAPS
#define BRIEF
#define OPTIONAL
#define UNLESS_0
#define GAUGE(name, text)          .family = (name), .help = (text),
#define COUNTER(name, text)        .family = (name), .help = (text), .type = TEXT_COUNTER,
#define MORE_GAUGE(name)           .family = (name),
#define MORE_COUNTER(name)         .family = (name), .type = TEXT_COUNTER,
#define BY(key, value)             .labels = {{key, value}},
#define IN(state, tier)            .labels = {{"state", #state}, {"tier", #tier}},
#define MILLI                      .is_milli = true,
#define SINGLE                     .single = true,
#define OR_0                       .or_zero = true,
#define OR_INF                     .or_inf = true,
#define OF_POOL                    .of_pool = true,
#define LABEL(key, text)           {key, offsetof(ROW, text)},
#define LABEL_OF(scope, key, text) {key, offsetof(struct figures_##scope, text)},

#define X(name, reason, what) " " reason ": " what "."
static const char not_imported_help[] =
        "Pages that were not loaded from the store, by reason." EXCHANGE_DROPS(X);
static const char not_exported_help[] =
        "Pages that were not written to the store, by reason." EXCHANGE_DROPS(X);
#undef X
#define NOT_IMPORTED(name, reason, what)                                           \
        {MORE_COUNTER("exchange_not_imported_pages") BY("reason", reason).derive = \
                        not_imported_##name},
#define NOT_EXPORTED(name, reason, what)                                           \
        {MORE_COUNTER("exchange_not_exported_pages") BY("reason", reason).derive = \
                        not_exported_##name},

/* Lists without metrics have tables that nothing uses. */
#define LIST(scope, ...) static const struct metric scope##_metrics[] __attribute__((unused)) = {
#define LIST_END(...) \
        }             \
        ;
#define FIGURE(name, kind, ...)     {.offset = offsetof(ROW, name), __VA_ARGS__},
#define PART(part, name, kind, ...) {.offset = offsetof(ROW, part.name), __VA_ARGS__},
#define HIDDEN                      FIGURE
#define HIDDEN_PART                 PART
#define METRIC(name, value, ...)    {.derive = metric_##name, __VA_ARGS__},
#define INFO(name, text, ...) \
        {.family = (name), .type = TEXT_INFO, .help = (text), .info = {__VA_ARGS__}},
#define FAMILY(...) {.no_sample = true, __VA_ARGS__},
#define DROPS                                                             \
        FAMILY(COUNTER("exchange_not_imported_pages", not_imported_help)) \
        EXCHANGE_DROPS(NOT_IMPORTED)                                      \
        FAMILY(COUNTER("exchange_not_exported_pages", not_exported_help)) \
        EXCHANGE_DROPS(NOT_EXPORTED)
#include "proto/figures.def"

/* AdminRestartReply isn't a list. */
static double restart_keeps_state(const void *row)
{
        return ((const Kvlease__V1__AdminRestartReply *)row)->keeps_state;
}

static double restart_clients_kept(const void *row)
{
        return ((const Kvlease__V1__AdminRestartReply *)row)->clients_kept;
}

static double restart_clients_lost(const void *row)
{
        return ((const Kvlease__V1__AdminRestartReply *)row)->clients_lost;
}

static double restart_losses(const void *row)
{
        const Kvlease__V1__AdminRestartReply *r = row;

        return (double)(r->n_losses + r->more_losses);
}

static const struct metric restart_metrics[] = {
        {GAUGE("restart_keeps_state",
                 "1 where cache and clients would outlive a restart of kvleased now, else 0.")
                        .derive = restart_keeps_state},
        {GAUGE("restart_clients", "Clients that a restart of kvleased now would keep, or lose.")
                        BY("outcome", "kept")
                                .derive = restart_clients_kept},
        {MORE_GAUGE("restart_clients") BY("outcome", "lost").derive = restart_clients_lost},
        {GAUGE("restart_losses",
                 "Things that a restart of kvleased now would lose; kvleasectl restart --check names each.")
                        .derive = restart_losses},
};

static bool is_pool(const void *row)
{
        return !((const struct figures_region *)row)->tenant[0];
}

static bool is_share(const void *row)
{
        return !is_pool(row);
}

#define TABLE(rows_name, list_name, scope) \
        rows_name, SOURCE_##list_name, scope##_metrics, ARRAY_SIZE(scope##_metrics)

const struct metric_table metric_tables[] = {
        {TABLE("status", STATUS, status)},
        {TABLE("restart", RESTART, restart)},
        {TABLE("devices", DEVICES, device),
                {LABEL_OF(device, "device", of_device) LABEL_OF(device, "tier", tier)}},
        {TABLE("pools", REGIONS, region),
                {LABEL_OF(region, "device", of_device) LABEL_OF(region, "tier", tier)}, is_pool,
                true},
        {TABLE("regions", REGIONS, region),
                {LABEL_OF(region, "device", of_device) LABEL_OF(region, "tier", tier)
                                LABEL_OF(region, "tenant", tenant)},
                is_share},
        {TABLE("tenants", TENANTS, tenant), {LABEL_OF(tenant, "tenant", name)}},
        {TABLE("namespaces", NAMESPACES, namespace),
                {LABEL_OF(namespace, "tenant", tenant) LABEL_OF(namespace, "namespace", name)
                                LABEL_OF(namespace, "device", device)}},
        {TABLE("evictions", EVICTIONS, eviction),
                {LABEL_OF(eviction, "victim", victim){
                        "by", offsetof(struct figures_eviction, by), "(nobody)"}}},
        {TABLE("sets", SETS, set), {LABEL_OF(set, "tenant", tenant) LABEL_OF(set, "set", name)}},
        {TABLE("exchanges", EXCHANGES, exchange),
                {LABEL_OF(exchange, "tenant", tenant) LABEL_OF(exchange, "remote", remote)}},
};
const size_t n_metric_tables = ARRAY_SIZE(metric_tables);

/* ---- values ---------------------------------------------------------------------------------- */

static uint64_t figure(const struct metric *m, const void *row)
{
        return *(const uint64_t *)(const void *)((const char *)row + m->offset);
}

bool metric_is_of(const struct metric_table *t, const struct metric *m)
{
        return m->family && m->of_pool == t->of_pools;
}

bool metric_exists_in(const struct metric *m, const void *row)
{
        if (m->no_sample || m->type == TEXT_INFO || m->derive)
                return !m->no_sample;
        return figure(m, row) != FIGURE_NONE || m->or_zero || m->or_inf;
}

double metric_value(const struct metric *m, const void *row)
{
        uint64_t value;

        if (m->derive)
                return m->derive(row);
        value = figure(m, row);
        if (value == FIGURE_NONE)
                return m->or_inf ? (double)INFINITY : 0;
        /* Divided, as a thousandth has no exact double. */
        return m->is_milli ? (double)value / 1000 : (double)value;
}

void metric_add_labels(const struct metric *m, struct text_labels *labels)
{
        for (size_t i = 0; i < METRIC_LABELS; i++)
                text_labels_add(labels, m->labels[i].name, m->labels[i].value);
}

const char *metric_label(const struct metric_label *l, const void *row)
{
        const char *value = *(const char *const *)(const void *)((const char *)row + l->offset);

        return l->none && !value[0] ? l->none : value;
}
