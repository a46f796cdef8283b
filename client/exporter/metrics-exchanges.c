/* Metrics of tenants' exchanges with other hosts. */
#include <string.h>

#include "client/exporter/metric-lines.h"
#include "proto/exchange-drop.h"

#define ROW Kvlease__V1__AdminExchange

static const Kvlease__V1__AdminExchangeDrop *find_drop(const ROW *r, const char *reason)
{
        for (size_t i = 0; i < r->n_drops; i++)
                if (strcmp(r->drops[i]->reason, reason) == 0)
                        return r->drops[i];
        return NULL;
}

static double count_not_imported(const ROW *r, const char *reason)
{
        const Kvlease__V1__AdminExchangeDrop *d = find_drop(r, reason);

        return d ? (double)d->not_imported : 0;
}

static double count_not_exported(const ROW *r, const char *reason)
{
        const Kvlease__V1__AdminExchangeDrop *d = find_drop(r, reason);

        return d ? (double)d->not_exported : 0;
}

#define X(name, reason, what)                                      \
        DERIVE(not_imported_##name, count_not_imported(r, reason)) \
        DERIVE(not_exported_##name, count_not_exported(r, reason))
EXCHANGE_DROPS(X)
#undef X

#define X(name, reason, what) " " reason ": " what "."
static const char not_imported_help[] =
        "Pages that were not loaded from the store, by reason." EXCHANGE_DROPS(X);
static const char not_exported_help[] =
        "Pages that were not written to the store, by reason." EXCHANGE_DROPS(X);
#undef X

/* A sample for each reason; the first one describes the family. */
#define DROP(name, reason, its_family, its_help, fn)                  \
        {                                                             \
                .family = EXCHANGE_##name == 0 ? (its_family) : NULL, \
                .type = TEXT_COUNTER,                                 \
                .help = EXCHANGE_##name == 0 ? (its_help) : NULL,     \
                .labels = {{"reason", reason}},                       \
                .derive = fn,                                         \
        },
#define NOT_IMPORTED(name, reason, what) \
        DROP(name, reason, "exchange_not_imported_pages", not_imported_help, not_imported_##name)
#define NOT_EXPORTED(name, reason, what) \
        DROP(name, reason, "exchange_not_exported_pages", not_exported_help, not_exported_##name)

DERIVE(rtt_seconds, (double)r->rtt_usec / 1e6)
DERIVE(load_error, (double)r->load_error_ppm / 1e6)

static const struct metric exchange_metrics[] = {
        GAUGE("exchange_nodes", "Nodes of the store that a tenant shares with other hosts.",
                n_nodes),
        GAUGE("exchange_nodes_left_alone",
                "Nodes of the store that are left alone for now, because of failures.",
                n_nodes_open),
        DERIVED("exchange_round_trip_seconds", TEXT_GAUGE,
                "Round trip of small requests to the slowest node of the store; 0: not known.",
                rtt_seconds),
        GAUGE("exchange_namespaces",
                "Namespaces of a tenant whose pages are exchanged with other hosts.", n_namespaces),
        GAUGE("exchange_namespaces_ready",
                "Namespaces of a tenant whose pages can be exchanged now: the epoch is known.",
                n_namespaces_ready),
        COUNTER("exchange_probes", "Requests that asked the store for pages.", probes),
        COUNTER("exchange_probed_pages", "Pages that the store was asked for.", probed_pages),
        COUNTER("exchange_found_pages",
                "Pages that the store had, next to each other from the first one asked for.",
                found_pages),
        COUNTER("exchange_imported_pages", "Pages that were loaded from the store.",
                imported_pages),
        COUNTER("exchange_imported_bytes", "Bytes of pages that were loaded from the store.",
                imported_bytes),
        COUNTER("exchange_loads",
                "Loads from the store that seemed sooner than computing, and are over.", loads),
        COUNTER("exchange_lost_loads",
                "Loads from the store that took more time than computing the loaded pages takes.",
                loads_lost),
        DERIVED("exchange_load_error_ratio", TEXT_GAUGE,
                "How far loads took more or less time than expected: the mean of the last ones, as "
                "a part of what was expected.",
                load_error),
        GAUGE("exchange_import_bytes_per_second",
                "Rate at which pages of the store came lately, measured; 0: none came.",
                import_bytes_per_sec),
        GAUGE("exchange_prefill_tokens_per_second",
                "Rate at which engines compute lately, measured, in the slowest namespace of a "
                "tenant; 0: not known, or set by remote_prefill.",
                prefill_tokens_per_sec),
        COUNTER("exchange_exported_pages", "Pages that were written to the store.", exported_pages),
        COUNTER("exchange_exported_bytes", "Bytes of pages that were written to the store.",
                exported_bytes),
        COUNTER("exchange_there_pages",
                "Pages to be written, or found again on this host, that the store had already.",
                there_pages),
        COUNTER("exchange_session_records",
                "Records of sessions that were written to the store, each for a turn that was "
                "over.",
                session_records),
        COUNTER("exchange_sessions",
                "Sessions that another host began, or continued, and this one has loaded.",
                sessions),
        COUNTER("exchange_epochs",
                "Times that an invalidation made all pages in the store unfindable.", epochs),
        COUNTER("exchange_followed_changes",
                "Times that what another host had invalidated was dropped on this one, too.",
                followed),
        GAUGE("exchange_imports", "Requests for pages of the store that are under way now.",
                n_imports),
        GAUGE("exchange_waiting_texts", "Texts that wait to be written to the store now.", n_texts),
        GAUGE("exchange_buffer_bytes",
                "Memory of kvleased for pages on their way to or from the store.", bytes_under_way),
        EXCHANGE_DROPS(NOT_IMPORTED) EXCHANGE_DROPS(NOT_EXPORTED)};
#undef ROW

const struct metric_table metric_table_exchanges = {TABLE("exchanges", EXCHANGES, exchange_metrics),
        .labels = {KEY(AdminExchange, "tenant", tenant), KEY(AdminExchange, "remote", remote)}};
