/* Macros that write a family as a line of a table. Before a table's lines ROW must be defined as
 * the message of its rows. */
#ifndef KVL_EXPORTER_METRIC_LINES_H
#define KVL_EXPORTER_METRIC_LINES_H

#include "client/exporter/metric.h"
#include "client/exporter/source.h"
#include "proto/kvlease.pb-c.h"

#define FIELD(field) .offset = offsetof(ROW, field), .width = sizeof(((ROW *)NULL)->field)
#define LABEL(name, field)                 \
        {                                  \
                name, offsetof(ROW, field) \
        }

/* family, help, field */
#define GAUGE(name, text, field)                           \
        {                                                  \
                .family = name, .help = text, FIELD(field) \
        }
#define COUNTER(name, text, field)                                               \
        {                                                                        \
                .family = name, .type = TEXT_COUNTER, .help = text, FIELD(field) \
        }
/* GAUGE in thousandths of the family's unit. */
#define MILLI(name, text, field)                                             \
        {                                                                    \
                .family = name, .help = text, FIELD(field), .is_milli = true \
        }
#define MILLI_COUNTER(name, text, field)                                                           \
        {                                                                                          \
                .family = name, .type = TEXT_COUNTER, .help = text, FIELD(field), .is_milli = true \
        }
/* The first sample of a family with a further label; MORE adds the others. */
#define GAUGE_BY(name, text, key, value, field)                                      \
        {                                                                            \
                .family = name, .help = text, .labels = {{key, value}}, FIELD(field) \
        }
#define COUNTER_BY(name, text, key, value, field)                                             \
        {                                                                                     \
                .family = name, .type = TEXT_COUNTER, .help = text, .labels = {{key, value}}, \
                FIELD(field)                                                                  \
        }
#define MORE(key, value, field)                        \
        {                                              \
                .labels = {{key, value}}, FIELD(field) \
        }
/* Computed by a function of the row. */
#define DERIVED(name, kind, text, fn)                                    \
        {                                                                \
                .family = name, .type = kind, .help = text, .derive = fn \
        }
#define DERIVED_BY(name, kind, text, key, value, fn)                                               \
        {                                                                                          \
                .family = name, .type = kind, .help = text, .labels = {{key, value}}, .derive = fn \
        }
#define MORE_DERIVED(key, value, fn)                   \
        {                                              \
                .labels = {{key, value}}, .derive = fn \
        }
/* A figure of a lower tier, from the row's part `tier` (an AdminTier). A row without such a tier
 * has no sample. */
#define TIER_FIELD(tier, field)                                                         \
        .part = offsetof(ROW, tier), .offset = offsetof(Kvlease__V1__AdminTier, field), \
        .width = sizeof(((Kvlease__V1__AdminTier *)NULL)->field)
#define MORE_OF_TIER(tier, field)                                    \
        {                                                            \
                .labels = {{"tier", #tier}}, TIER_FIELD(tier, field) \
        }
/* A gauge of each tier: the row's own field for the device, a field of AdminTier for the others. */
#define GAUGE_BY_TIER(name, text, field, tier_field)                                   \
        GAUGE_BY(name, text, "tier", "device", field), MORE_OF_TIER(host, tier_field), \
                MORE_OF_TIER(disk, tier_field)
/* Counters that only lower tiers have. */
#define COUNTER_BELOW(name, text, tier_field)  \
        {.family = name,                       \
                .type = TEXT_COUNTER,          \
                .help = text,                  \
                .labels = {{"tier", "host"}},  \
                TIER_FIELD(host, tier_field)}, \
                MORE_OF_TIER(disk, tier_field)
/* Pages by state and tier: the family's first sample, the device's others, those of lower tiers. */
#define PAGES(name, text, state, field)                                                         \
        {                                                                                       \
                .family = name, .help = text, .labels = {{"state", state}, {"tier", "device"}}, \
                FIELD(field)                                                                    \
        }
#define MORE_PAGES(state, field)                                               \
        {                                                                      \
                .labels = {{"state", state}, {"tier", "device"}}, FIELD(field) \
        }
#define PAGES_BELOW(state, field)                                                       \
        {.labels = {{"state", state}, {"tier", "host"}}, TIER_FIELD(host, field)},      \
        {                                                                               \
                .labels = {{"state", state}, {"tier", "disk"}}, TIER_FIELD(disk, field) \
        }
#define INFO(name, text, ...)                                                            \
        {                                                                                \
                .family = name, .type = TEXT_INFO, .help = text, .info = { __VA_ARGS__ } \
        }

/* Defines a function of the row `r`. */
#define DERIVE(name, value)                 \
        static double name(const void *row) \
        {                                   \
                const ROW *r = row;         \
                                            \
                return (double)(value);     \
        }

/* The difference of two counters that weren't read at one moment; not negative. */
static inline double counter_difference(uint64_t a, uint64_t b)
{
        return a > b ? (double)(a - b) : 0;
}

/* ---- tables ---------------------------------------------------------------------------------- */

#define TABLE(rows_name, list_name, table)                               \
        .name = rows_name, .list = SOURCE_##list_name, .metrics = table, \
        .n_metrics = ARRAY_SIZE(table)
#define KEY(message, key, field)                             \
        {                                                    \
                key, offsetof(Kvlease__V1__##message, field) \
        }

extern const struct metric_table metric_table_status, metric_table_restart, metric_table_devices,
        metric_table_pools, metric_table_regions; /* metrics-daemon.c */
extern const struct metric_table metric_table_tenants, metric_table_namespaces,
        metric_table_evictions, metric_table_sets;       /* metrics-tenants.c */
extern const struct metric_table metric_table_exchanges; /* metrics-exchanges.c */

#endif
