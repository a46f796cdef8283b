#include "daemon/core/account.h"
#include "proto/status.h"
#include "tests/unit/test-support.h"

static void test_charges_both_or_none(void **state)
{
        struct account tenant = {.limit_bytes = 100}, pool = {.limit_bytes = 150};
        struct account other = {.limit_bytes = 100};
        struct charge c1 = {0}, c2 = {0}, c3 = {0};

        assert_int_equal(charge_take(&c1, &tenant, &pool, 60), 0);
        assert_int_equal(charge_take(&c2, &tenant, &pool, 41), KVL_STATUS_QUOTA);
        assert_int_equal(charge_take(&c2, &other, &pool, 91), KVL_STATUS_FULL);
        assert_int_equal(tenant.charged_bytes, 60);
        assert_int_equal(other.charged_bytes, 0);
        assert_int_equal(pool.charged_bytes, 60);
        assert_int_equal(charge_take(&c2, &tenant, &pool, 40), 0);
        assert_int_equal(charge_take(&c3, &other, &pool, 50), 0);
        charge_drop(&c1);
        charge_drop(&c1);
        charge_drop(&c2);
        charge_drop(&c3);
        assert_int_equal(tenant.charged_bytes + other.charged_bytes + pool.charged_bytes, 0);
        assert_int_equal(charge_take(&c1, &tenant, &pool, 100), 0);
        charge_drop(&c1);
}

static void test_no_overflow(void **state)
{
        struct account tenant = {.limit_bytes = UINT64_MAX}, pool = {.limit_bytes = UINT64_MAX};
        struct charge c1 = {0}, c2 = {0};

        assert_int_equal(charge_take(&c1, &tenant, &pool, UINT64_MAX - 1), 0);
        assert_int_equal(charge_take(&c2, &tenant, &pool, 2), KVL_STATUS_QUOTA);
        charge_drop(&c1);
}

static void test_over_a_lowered_limit(void **state)
{
        struct account tenant = {.limit_bytes = 100}, pool = {.limit_bytes = 1000};
        struct charge c1 = {0}, c2 = {0};

        assert_int_equal(charge_take(&c1, &tenant, &pool, 80), 0);
        tenant.limit_bytes = 50;
        assert_false(account_fits(&tenant, 0));
        assert_int_equal(charge_take(&c2, &tenant, &pool, 1), KVL_STATUS_QUOTA);
        charge_drop(&c1);
        assert_true(account_fits(&tenant, 50));
        assert_false(account_fits(&tenant, 51));
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                TEST(test_charges_both_or_none),
                TEST(test_no_overflow),
                TEST(test_over_a_lowered_limit),
        };

        return RUN_TESTS(tests);
}
