/* The tables of what is told: that they are right, and what they say of rows. */
#include <stdio.h>
#include <string.h>

#include "client/exporter/metric.h"
#include "client/exporter/source.h"
#include "proto/figures.h"
#include "tests/unit/help-text.h"
#include "tests/unit/test-support.h"

/* The sample that has the family's help; NULL: none, or several have. */
static const struct metric *find_help(const struct metric_table *t, const char *family)
{
        const struct metric *found = NULL;

        for (size_t i = 0; i < t->n_metrics; i++) {
                const struct metric *m = &t->metrics[i];

                if (!m->family || strcmp(m->family, family) != 0 || !m->help)
                        continue;
                if (found)
                        return NULL;
                found = m;
        }
        return found;
}

static void check_metric(const struct metric_table *t, const struct metric *m)
{
        const struct metric *family = find_help(t, m->family);

        if (!family)
                fail_msg("%s has no help, or several", m->family);
        if (help_text_fault(family->help))
                fail_msg("%s, \"%s\": %s", family->family, family->help,
                        help_text_fault(family->help));
        assert_null(strstr(family->family, "_total"));
        assert_int_equal(m->type, family->type);
        assert_int_equal(m->of_pool, family->of_pool);
        if (family->type == TEXT_INFO)
                assert_non_null(m->info[0].name);
}

/* All samples of a family have labels of the same names, and no two of them the same values. */
static void check_labels(const struct metric_table *t, size_t i)
{
        const struct metric *m = &t->metrics[i];

        for (size_t j = 0; j < i; j++) {
                const struct metric *other = &t->metrics[j];
                bool differs = false;

                if (!other->family || strcmp(other->family, m->family) != 0 || other->no_sample)
                        continue;
                for (size_t k = 0; k < METRIC_LABELS; k++) {
                        const struct text_label *a = &m->labels[k], *b = &other->labels[k];

                        assert_int_equal(a->name != NULL, b->name != NULL);
                        if (!a->name)
                                continue;
                        assert_string_equal(a->name, b->name);
                        differs |= strcmp(a->value, b->value) != 0;
                }
                assert_true(differs);
        }
}

/* No other list has a family of that name. */
static void check_once(const struct metric_table *t, const char *family)
{
        for (size_t i = 0; i < n_metric_tables; i++)
                for (size_t j = 0; j < metric_tables[i].n_metrics; j++) {
                        const char *other = metric_tables[i].metrics[j].family;

                        if (other && strcmp(other, family) == 0)
                                assert_ptr_equal(metric_tables[i].metrics, t->metrics);
                }
}

TEST(test_tables)
{
        for (size_t i = 0; i < n_metric_tables; i++) {
                const struct metric_table *t = &metric_tables[i];

                assert_true(t->list < N_SOURCE_LISTS);
                for (size_t j = 0; j < t->n_metrics; j++) {
                        if (!t->metrics[j].family)
                                continue;
                        check_metric(t, &t->metrics[j]);
                        check_labels(t, j);
                        check_once(t, t->metrics[j].family);
                }
        }
}

/* The output has the values of the row. */
TEST(test_values)
{
        static const struct metric limit = {
                .offset = offsetof(struct figures_tenant, limit_bytes), .or_inf = true};
        static const struct metric wait = {
                .offset = offsetof(struct figures_tenant, waited_msec), .is_milli = true};
        static const struct metric weight = {.offset = offsetof(struct figures_tenant, weight)};
        static const struct metric_label by = {
                "by", offsetof(struct figures_tenant, name), "(nobody)"};
        struct figures_tenant t;

        figures_init(&figures_table_tenant, &t);
        t.limit_bytes = FIGURE_NONE;
        assert_true(metric_exists_in(&limit, &t));
        t.waited_msec = 1500;
        t.weight = UINT32_MAX;
        assert_true(metric_value(&limit, &t) > 1e300);
        assert_true(metric_value(&wait, &t) == 1.5);
        assert_true(metric_value(&weight, &t) == 4294967295.0);
        assert_string_equal(metric_label(&by, &t), "(nobody)");
        t.name = "x";
        assert_string_equal(metric_label(&by, &t), "x");
}

/* ---- tiers ----------------------------------------------------------------------------------- */

static const struct metric_table *find_table(const char *name)
{
        for (size_t i = 0; i < n_metric_tables; i++)
                if (strcmp(metric_tables[i].name, name) == 0)
                        return &metric_tables[i];
        fail_msg("no table %s", name);
        return NULL;
}

static bool has_label(const struct metric *m, const char *name, const char *value)
{
        for (size_t i = 0; i < METRIC_LABELS; i++)
                if (m->labels[i].name && strcmp(m->labels[i].name, name) == 0)
                        return strcmp(m->labels[i].value, value) == 0;
        return false;
}

/* The family's sample with this label; NULL: the row has none. */
static const struct metric *find_metric(const char *table, const char *family, const char *label,
        const char *value, const void *row)
{
        const struct metric_table *t = find_table(table);

        for (size_t i = 0; i < t->n_metrics; i++)
                if (t->metrics[i].family && strcmp(t->metrics[i].family, family) == 0 &&
                        has_label(&t->metrics[i], label, value))
                        return metric_exists_in(&t->metrics[i], row) ? &t->metrics[i] : NULL;
        fail_msg("no %s{%s=%s}", family, label, value);
        return NULL;
}

static void assert_tier(
        const char *family, const char *tier, const struct figures_namespace *row, double value)
{
        const struct metric *m = find_metric("namespaces", family, "tier", tier, row);

        assert_non_null(m);
        assert_true(metric_value(m, row) == value);
}

/* Each tier has its figure, and one that the namespace hasn't has none. */
TEST(test_tiers)
{
        struct figures_namespace row;

        figures_init(&figures_table_namespace, &row);
        row.charged_bytes = 1;
        row.host.charged_bytes = 2;
        row.host.arrived = 3;
        row.host.damaged = 4;
        row.disk.charged_bytes = row.disk.damaged = FIGURE_NONE;
        assert_tier("namespace_charged_bytes", "device", &row, 1);
        assert_tier("namespace_charged_bytes", "host", &row, 2);
        assert_tier("namespace_demoted_pages", "host", &row, 3);
        assert_tier("namespace_damaged_pages", "host", &row, 4);
        assert_null(find_metric("namespaces", "namespace_charged_bytes", "tier", "disk", &row));
        assert_null(find_metric("namespaces", "namespace_damaged_pages", "tier", "disk", &row));
}

/* A row of what lies below a device is told as the device's, and as of its tier. */
TEST(test_names_of_tiers)
{
        static const char *const tables[] = {"devices", "pools", "regions"};
        struct figures_device device;
        struct figures_region region;

        figures_init(&figures_table_device, &device);
        figures_init(&figures_table_region, &region);
        device.name = region.device = "disk of GPU-1";
        device.of_device = region.of_device = "GPU-1";
        device.tier = region.tier = "disk";
        for (size_t k = 0; k < ARRAY_SIZE(tables); k++) {
                const struct metric_table *t = find_table(tables[k]);
                const void *row = k == 0 ? (const void *)&device : &region;

                assert_string_equal(t->labels[0].name, "device");
                assert_string_equal(metric_label(&t->labels[0], row), "GPU-1");
                assert_string_equal(t->labels[1].name, "tier");
                assert_string_equal(metric_label(&t->labels[1], row), "disk");
        }
}
