/* Which rows are told by name, and what the rest sums up to. */
#include <stdio.h>
#include <string.h>

#include "client/exporter/limit.h"
#include "tests/unit/alloc-fail.h"
#include "tests/unit/test-support.h"

#define MAX_ROWS 8

struct row {
        char name[16], *at;
        uint64_t gauge, counter;
};

static const struct metric metrics[] = {
        {.family = "level", .offset = offsetof(struct row, gauge)},
        {.family = "sent", .type = TEXT_COUNTER, .offset = offsetof(struct row, counter)},
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

/* A name that came free goes to a row that is new, not to one of the rest. */
TEST(test_places_are_kept)
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

TEST(test_counters_never_fall)
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
