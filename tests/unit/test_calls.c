/* Histograms of requests, and counts of broken rules. */
#include <stdio.h>
#include <string.h>

#include "daemon/server/base/calls.h"
#include "tests/unit/test-support.h"

static uint64_t count(const struct calls *c, uint16_t type, size_t bucket)
{
        return c->times[msg_find(type) - msg_at(0)].counts[bucket];
}

TEST(test_buckets)
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

TEST(test_bounds_rise)
{
        for (size_t i = 1; i + 1 < CALLS_BUCKETS; i++)
                assert_true(calls_bounds_nsec[i] > calls_bounds_nsec[i - 1]);
}

/* Every type has its own. */
TEST(test_kinds)
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

static size_t row_of(const char *rule)
{
        size_t i = 0;

        while (i < CALLS_RULES && strcmp(calls_rules[i], rule) != 0)
                i++;
        assert_true(i < CALLS_RULES);
        return i;
}

/* Each has its own row, and what isn't known is counted under "other", which is the last. */
TEST(test_rules)
{
        struct calls c = {0};

        for (size_t i = 0; i < CALLS_RULES; i++)
                calls_note_violation(&c, calls_rules[i]);
        calls_note_violation(&c, "hello-first");
        calls_note_violation(&c, "nobody knows it");
        for (size_t i = 0; i < CALLS_RULES; i++) {
                assert_int_equal(row_of(calls_rules[i]), i); /* none stands there twice */
                assert_int_equal(
                        c.broken[i], 1 + (i == row_of("hello-first") || i == row_of("other")));
        }
        assert_int_equal(row_of("other"), CALLS_RULES - 1);
}
