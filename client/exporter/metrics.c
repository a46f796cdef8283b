/* The list of the tables, and the value of a table's line in a row. */
#include <math.h>

#include "client/exporter/metric-lines.h"

const struct metric_table *const metric_tables[] = {&metric_table_status, &metric_table_restart,
        &metric_table_devices, &metric_table_pools, &metric_table_regions, &metric_table_tenants,
        &metric_table_namespaces, &metric_table_evictions, &metric_table_sets,
        &metric_table_exchanges};
const size_t n_metric_tables = ARRAY_SIZE(metric_tables);

/* Returns NULL if the row lacks it. */
static const void *metric_part(const struct metric *m, const void *row)
{
        return m->part ? *(const void *const *)(const void *)((const char *)row + m->part) : row;
}

static double field_value(const struct metric *m, const void *part)
{
        const char *at = (const char *)part + m->offset;
        uint64_t value = m->width == 8 ? *(const uint64_t *)(const void *)at
                                       : *(const uint32_t *)(const void *)at;

        if (m->width == 8 && value == UINT64_MAX)
                return (double)INFINITY;
        /* Divided, as a thousandth has no exact double. */
        return m->is_milli ? (double)value / 1000 : (double)value;
}

bool metric_exists_in(const struct metric *m, const void *row)
{
        return metric_part(m, row) != NULL;
}

double metric_value(const struct metric *m, const void *row)
{
        return m->derive ? m->derive(row) : field_value(m, metric_part(m, row));
}

void metric_add_labels(const struct metric *m, struct text_labels *labels)
{
        for (size_t i = 0; i < METRIC_LABELS; i++)
                text_labels_add(labels, m->labels[i].name, m->labels[i].value);
}

const char *metric_label(const struct metric_label *l, const void *row)
{
        const char *value = *(char *const *)(const void *)((const char *)row + l->offset);

        return l->none && !value[0] ? l->none : value;
}

const struct metric *metric_family(const struct metric_table *t, size_t i)
{
        while (!t->metrics[i].family)
                i--;
        return &t->metrics[i];
}
