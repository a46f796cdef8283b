/* The tables of what is told: that they are right, and what they say of rows. */
#include <stdio.h>
#include <string.h>

#include "client/exporter/metric.h"
#include "client/exporter/source.h"
#include "proto/kvlease.pb-c.h"
#include "tests/unit/help-text.h"
#include "tests/unit/test-support.h"

static void check_metric(const struct metric_table *t, size_t i)
{
        const struct metric *m = &t->metrics[i], *family = metric_family(t, i);

        assert_non_null(family->help);
        if (help_text_fault(family->help))
                fail_msg("%s, \"%s\": %s", family->family, family->help,
                        help_text_fault(family->help));
        assert_null(strstr(family->family, "_total"));
        if (family->type == TEXT_INFO)
                assert_non_null(m->info[0].name);
        else if (!m->derive)
                assert_true(m->width == 4 || m->width == 8);
}

/* All samples of a family have labels of the same names, and no two of them the same values. */
static void check_labels(const struct metric_table *t, size_t i)
{
        const struct metric *m = &t->metrics[i];

        for (size_t j = i; j > 0 && !t->metrics[j].family; j--) {
                const struct metric *other = &t->metrics[j - 1];
                bool differs = false;

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

static void check_once(const char *name, unsigned *n)
{
        for (size_t i = 0; i < n_metric_tables; i++)
                for (size_t j = 0; j < metric_tables[i]->n_metrics; j++) {
                        const char *other = metric_tables[i]->metrics[j].family;

                        *n += other && strcmp(other, name) == 0;
                }
}

TEST(test_tables)
{
        for (size_t i = 0; i < n_metric_tables; i++) {
                const struct metric_table *t = metric_tables[i];

                assert_non_null(t->metrics[0].family);
                assert_true(t->list < N_SOURCE_LISTS);
                for (size_t j = 0; j < t->n_metrics; j++) {
                        unsigned n = 0;

                        check_metric(t, j);
                        check_labels(t, j);
                        if (!t->metrics[j].family)
                                continue;
                        check_once(t->metrics[j].family, &n);
                        assert_int_equal(n, 1);
                }
        }
}

/* The output has the values of the row. */
TEST(test_values)
{
        Kvlease__V1__AdminTenant t = KVLEASE__V1__ADMIN_TENANT__INIT;
        static const struct metric limit = {
                .offset = offsetof(Kvlease__V1__AdminTenant, limit_bytes), .width = 8};
        static const struct metric wait = {
                .offset = offsetof(Kvlease__V1__AdminTenant, waited_msec),
                .width = 8,
                .is_milli = true};
        static const struct metric weight = {
                .offset = offsetof(Kvlease__V1__AdminTenant, weight), .width = 4};
        static const struct metric_label by = {
                "by", offsetof(Kvlease__V1__AdminTenant, name), "(nobody)"};

        t.limit_bytes = UINT64_MAX;
        t.waited_msec = 1500;
        t.weight = UINT32_MAX;
        assert_true(metric_value(&limit, &t) > 1e300);
        assert_true(metric_value(&wait, &t) == 1.5);
        assert_true(metric_value(&weight, &t) == 4294967295.0);
        assert_string_equal(metric_label(&by, &t), "(nobody)");
        t.name = (char *)"x";
        assert_string_equal(metric_label(&by, &t), "x");
}

/* ---- tiers ----------------------------------------------------------------------------------- */

static const struct metric_table *find_table(const char *name)
{
        for (size_t i = 0; i < n_metric_tables; i++)
                if (strcmp(metric_tables[i]->name, name) == 0)
                        return metric_tables[i];
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
                if (strcmp(metric_family(t, i)->family, family) == 0 &&
                        has_label(&t->metrics[i], label, value))
                        return metric_exists_in(&t->metrics[i], row) ? &t->metrics[i] : NULL;
        fail_msg("no %s{%s=%s}", family, label, value);
        return NULL;
}

static void assert_tier(
        const char *family, const char *tier, const Kvlease__V1__AdminNamespace *row, double value)
{
        const struct metric *m = find_metric("namespaces", family, "tier", tier, row);

        assert_non_null(m);
        assert_true(metric_value(m, row) == value);
}

/* Each tier has its figure, and one that the namespace hasn't has none. */
TEST(test_tiers)
{
        Kvlease__V1__AdminNamespace row = KVLEASE__V1__ADMIN_NAMESPACE__INIT;
        Kvlease__V1__AdminTier host = KVLEASE__V1__ADMIN_TIER__INIT;

        host.charged_bytes = 2;
        host.arrived = 3;
        host.damaged = 4;
        row.charged_bytes = 1;
        row.host = &host;
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
        Kvlease__V1__AdminDevice device = KVLEASE__V1__ADMIN_DEVICE__INIT;
        Kvlease__V1__AdminRegion region = KVLEASE__V1__ADMIN_REGION__INIT;

        device.name = region.device = (char *)"disk of GPU-1";
        device.of_device = region.of_device = (char *)"GPU-1";
        device.tier = region.tier = (char *)"disk";
        for (size_t k = 0; k < ARRAY_SIZE(tables); k++) {
                const struct metric_table *t = find_table(tables[k]);
                const void *row = k == 0 ? (const void *)&device : &region;

                assert_string_equal(t->labels[0].name, "device");
                assert_string_equal(metric_label(&t->labels[0], row), "GPU-1");
                assert_string_equal(t->labels[1].name, "tier");
                assert_string_equal(metric_label(&t->labels[1], row), "disk");
        }
}

static double device_state(const Kvlease__V1__AdminDevice *row, const char *state)
{
        return metric_value(find_metric("devices", "device_state", "state", state, row), row);
}

/* In a disk's row the queue's state is always "ok", so the disk's own state counts. */
TEST(test_state_of_a_disk)
{
        Kvlease__V1__AdminDevice row = KVLEASE__V1__ADMIN_DEVICE__INIT;
        Kvlease__V1__AdminTier disk = KVLEASE__V1__ADMIN_TIER__INIT;

        row.state = (char *)"ok";
        assert_true(device_state(&row, "ok") == 1);
        assert_true(device_state(&row, "off") == 0);
        row.disk = &disk;
        disk.state = (char *)"off";
        assert_true(device_state(&row, "ok") == 0);
        assert_true(device_state(&row, "failing") == 0);
        assert_true(device_state(&row, "off") == 1);
}
