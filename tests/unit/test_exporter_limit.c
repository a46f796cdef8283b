/* Which rows are told by name, and what the rest sums up to; and that the tables are right. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/exporter/limit.h"
#include "client/exporter/source.h"
#include "proto/kvlease.pb-c.h"
#include "tests/unit/alloc-fail.h"
#include "tests/unit/test-support.h"

#define MAX_ROWS 8

struct row {
        char name[16], *at;
        uint64_t gauge, counter;
};

static const struct metric metrics[] = {
        {.family = "level", .offset = offsetof(struct row, gauge), .width = 8},
        {.family = "sent",
                .type = TEXT_COUNTER,
                .offset = offsetof(struct row, counter),
                .width = 8},
};
static const struct metric_table table = {.name = "rows",
        .metrics = metrics,
        .n_metrics = ARRAY_SIZE(metrics),
        .labels = {{"name", offsetof(struct row, at)}}};

struct scene {
        struct limit limit;
        struct row rows[MAX_ROWS];
        const void *told[MAX_ROWS];
        size_t n;
};

static void add(struct scene *s, const char *name, uint64_t gauge, uint64_t counter)
{
        struct row *r = &s->rows[s->n++];

        assert_true(s->n <= MAX_ROWS);
        *r = (struct row){.gauge = gauge, .counter = counter};
        snprintf(r->name, sizeof(r->name), "%s", name);
        r->at = r->name;
}

/* Hands the rows in; those told by name must be these, in this order, separated by blanks. */
static void round_of(struct scene *s, const char *expected, double level, double sent)
{
        char names[128] = "";
        size_t n_named;

        for (size_t i = 0; i < s->n; i++)
                s->told[i] = &s->rows[i];
        assert_int_equal(limit_rows(&s->limit, s->told, s->n, &n_named), 0);
        for (size_t i = 0; i < n_named; i++) {
                const struct row *r = s->told[i];

                strcat(strcat(names, i ? " " : ""), r->name);
        }
        assert_string_equal(names, expected);
        assert_true(limit_sum(&s->limit, 0) == level);
        assert_true(limit_sum(&s->limit, 1) == sent);
        s->n = 0;
}

static void test_first_have_names(void **state)
{
        struct scene s = {.n = 0};

        assert_int_equal(limit_init(&s.limit, &table, 2), 0);
        round_of(&s, "", 0, 0);
        add(&s, "a", 1, 10);
        add(&s, "b", 2, 20);
        round_of(&s, "a b", 0, 0);
        add(&s, "a", 1, 10);
        add(&s, "b", 2, 20);
        add(&s, "c", 4, 40);
        add(&s, "d", 8, 80);
        round_of(&s, "a b", 12, 120);
        limit_deinit(&s.limit);
}

/* A name that came free goes to a row that is new, not to one of the rest. */
static void test_places_are_kept(void **state)
{
        struct scene s = {.n = 0};

        assert_int_equal(limit_init(&s.limit, &table, 2), 0);
        add(&s, "a", 1, 10);
        add(&s, "b", 2, 20);
        add(&s, "c", 4, 40);
        round_of(&s, "a b", 4, 40);
        add(&s, "b", 2, 20);
        add(&s, "c", 4, 40);
        round_of(&s, "b", 4, 40);
        add(&s, "b", 2, 20);
        add(&s, "c", 4, 41);
        add(&s, "e", 16, 160);
        round_of(&s, "b e", 4, 41);
        /* Gone, and back. */
        add(&s, "b", 2, 20);
        round_of(&s, "b", 0, 41);
        add(&s, "b", 2, 20);
        add(&s, "c", 4, 1);
        round_of(&s, "b c", 0, 41);
        limit_deinit(&s.limit);
}

static void test_counters_never_fall(void **state)
{
        struct scene s = {.n = 0};

        assert_int_equal(limit_init(&s.limit, &table, 1), 0);
        add(&s, "a", 0, 0);
        add(&s, "b", 5, 50);
        add(&s, "c", 6, 60);
        round_of(&s, "a", 11, 110);
        /* b is gone; c grew by one. */
        add(&s, "a", 0, 0);
        add(&s, "c", 6, 61);
        round_of(&s, "a", 6, 111);
        /* The daemon began anew. */
        add(&s, "a", 0, 0);
        add(&s, "c", 6, 3);
        round_of(&s, "a", 6, 114);
        limit_deinit(&s.limit);
}

static void test_memory(void **state)
{
        alloc_fail_each(n)
        {
                struct scene s = {.n = 0};
                size_t n_named;

                if (limit_init(&s.limit, &table, 1) == 0) {
                        add(&s, "a", 0, 0);
                        add(&s, "b", 5, 50);
                        for (size_t i = 0; i < s.n; i++)
                                s.told[i] = &s.rows[i];
                        if (limit_rows(&s.limit, s.told, s.n, &n_named) == 0)
                                assert_int_equal(n_named, 1);
                        else
                                assert_true(alloc_fail_happened());
                        limit_deinit(&s.limit);
                }
        }
}

/* ---- the tables ------------------------------------------------------------------------------ */

static void check_metric(const struct metric_table *t, size_t i)
{
        const struct metric *m = &t->metrics[i], *family = metric_family(t, i);

        assert_non_null(family->help);
        assert_int_equal(family->help[strlen(family->help) - 1], '.');
        assert_null(strstr(family->family, "_total"));
        if (family->type == TEXT_INFO)
                assert_non_null(m->info[0].name);
        else if (!m->derive)
                assert_true(m->width == 4 || m->width == 8);
        /* Samples of one family are told apart. */
        if (!m->family || (i + 1 < t->n_metrics && !t->metrics[i + 1].family))
                assert_non_null(m->label.name);
}

static void check_once(const char *name, unsigned *n)
{
        for (size_t i = 0; i < n_metric_tables; i++)
                for (size_t j = 0; j < metric_tables[i].n_metrics; j++) {
                        const char *other = metric_tables[i].metrics[j].family;

                        *n += other && strcmp(other, name) == 0;
                }
}

static void test_tables(void **state)
{
        for (size_t i = 0; i < n_metric_tables; i++) {
                const struct metric_table *t = &metric_tables[i];

                assert_non_null(t->metrics[0].family);
                assert_true(t->list < N_SOURCE_LISTS);
                for (size_t j = 0; j < t->n_metrics; j++) {
                        unsigned n = 0;

                        check_metric(t, j);
                        if (!t->metrics[j].family)
                                continue;
                        check_once(t->metrics[j].family, &n);
                        assert_int_equal(n, 1);
                }
        }
}

/* What stands in a row is what is told. */
static void test_values(void **state)
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

int main(void)
{
        const struct CMUnitTest tests[] = {
                TEST(test_first_have_names),
                TEST(test_places_are_kept),
                TEST(test_counters_never_fall),
                TEST(test_memory),
                TEST(test_tables),
                TEST(test_values),
        };

        return RUN_TESTS(tests);
}
