/* Histograms of requests, and counts of broken rules. */
#include <stdio.h>
#include <string.h>

#include "daemon/server/system/calls.h"
#include "tests/unit/test-support.h"

static uint64_t count(const struct calls *c, uint16_t type, size_t bucket)
{
        return c->times[msg_find(type) - msg_at(0)].counts[bucket];
}

static void test_buckets(void **state)
{
        struct calls c = {0};
        const struct msg_info *lease = msg_find(MSG_LEASE);

        calls_note(&c, lease, 0);
        calls_note(&c, lease, calls_bounds_nsec[0]);
        calls_note(&c, lease, calls_bounds_nsec[0] + 1);
        calls_note(&c, lease, calls_bounds_nsec[CALLS_BUCKETS - 2]);
        calls_note(&c, lease, calls_bounds_nsec[CALLS_BUCKETS - 2] + 1);
        calls_note(&c, lease, UINT32_MAX * UINT64_C(1000));
        assert_int_equal(count(&c, MSG_LEASE, 0), 2);
        assert_int_equal(count(&c, MSG_LEASE, 1), 1);
        assert_int_equal(count(&c, MSG_LEASE, CALLS_BUCKETS - 2), 1);
        assert_int_equal(count(&c, MSG_LEASE, CALLS_BUCKETS - 1), 2);
        assert_int_equal(c.times[lease - msg_at(0)].sum_nsec,
                2 * calls_bounds_nsec[0] + 1 + 2 * calls_bounds_nsec[CALLS_BUCKETS - 2] + 1 +
                        UINT32_MAX * UINT64_C(1000));
}

static void test_bounds_rise(void **state)
{
        for (size_t i = 1; i + 1 < CALLS_BUCKETS; i++)
                assert_true(calls_bounds_nsec[i] > calls_bounds_nsec[i - 1]);
}

/* Every type has its own. */
static void test_kinds(void **state)
{
        struct calls c = {0};
        unsigned n = 0;

        for (unsigned i = 0; msg_at(i); i++)
                if (msg_at(i)->request) {
                        calls_note(&c, msg_at(i), 0);
                        n++;
                }
        assert_int_equal(n, CALLS_KINDS);
        for (unsigned i = 0; i < CALLS_KINDS; i++)
                assert_int_equal(c.times[i].counts[0], 1);
}

static void test_rules(void **state)
{
        static char names[CALLS_RULES + 2][8];
        struct calls c = {0};

        for (size_t i = 0; i < ARRAY_SIZE(names); i++)
                snprintf(names[i], sizeof(names[i]), "r%zu", i);
        for (unsigned round = 0; round < 3; round++)
                for (size_t i = 0; i < ARRAY_SIZE(names); i++)
                        calls_note_violation(&c, names[i]);
        assert_int_equal(c.n_rules, CALLS_RULES + 1);
        assert_string_equal(c.rules[0].rule, "r0");
        assert_int_equal(c.rules[0].n, 3);
        assert_string_equal(c.rules[CALLS_RULES].rule, CALLS_OTHER_RULES);
        assert_int_equal(c.rules[CALLS_RULES].n, 6);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                TEST(test_buckets),
                TEST(test_bounds_rise),
                TEST(test_kinds),
                TEST(test_rules),
        };

        return RUN_TESTS(tests);
}
