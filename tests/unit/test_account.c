#include "daemon/core/state/pool.h"
#include "daemon/core/state/tenant.h"
#include "daemon/core/memory/account.h"
#include "daemon/core/memory/region.h"
#include "proto/status.h"
#include "tests/unit/test-support.h"

/* Two tenants in one pool. */
struct accounts {
        struct pool pool;
        struct tenant a, b;
        struct pool_share *of_a, *of_b;
};

static void start(struct accounts *x, uint64_t limit_bytes, uint64_t budget_bytes)
{
        *x = (struct accounts){0};
        x->pool.account.limit_bytes = budget_bytes;
        x->a.account.limit_bytes = x->b.account.limit_bytes = limit_bytes;
        list_init(&x->pool.shares);
        list_init(&x->pool.orphans);
        list_init(&x->a.shares);
        list_init(&x->b.shares);
        assert_int_equal(pool_share_new(&x->a, &x->pool), 0);
        assert_int_equal(pool_share_new(&x->b, &x->pool), 0);
        x->of_a = pool_share_find(&x->a, &x->pool);
        x->of_b = pool_share_find(&x->b, &x->pool);
}

static void end(struct accounts *x)
{
        pool_share_free(x->of_a);
        pool_share_free(x->of_b);
        assert_int_equal(x->pool.reserved_bytes, 0);
        assert_int_equal(x->pool.idle_reserve_bytes, 0);
        assert_int_equal(x->pool.account.charged_bytes, 0);
}

#define SCENE(fn, ...) TEST_ON(fn, struct accounts, x, start, end, ##__VA_ARGS__)

SCENE(test_charges_all_or_none, 100, 150)
{
        struct charge c1 = {0}, c2 = {0}, c3 = {0};

        assert_int_equal(charge_take(&c1, x->of_a, 60), 0);
        assert_int_equal(charge_take(&c2, x->of_a, 41), KVL_STATUS_QUOTA);
        assert_int_equal(charge_take(&c2, x->of_b, 91), KVL_STATUS_FULL);
        assert_int_equal(x->a.account.charged_bytes, 60);
        assert_int_equal(x->of_a->charged_bytes, 60);
        assert_int_equal(x->b.account.charged_bytes, 0);
        assert_int_equal(x->of_b->charged_bytes, 0);
        assert_int_equal(x->pool.account.charged_bytes, 60);
        assert_int_equal(charge_take(&c2, x->of_a, 40), 0);
        assert_int_equal(charge_take(&c3, x->of_b, 50), 0);
        charge_drop(&c1);
        charge_drop(&c1);
        charge_drop(&c2);
        charge_drop(&c3);
        assert_int_equal(x->a.account.charged_bytes + x->b.account.charged_bytes, 0);
        assert_int_equal(x->of_a->charged_bytes + x->of_b->charged_bytes, 0);
        assert_int_equal(charge_take(&c1, x->of_a, 100), 0);
        charge_drop(&c1);
}

SCENE(test_no_overflow, UINT64_MAX, UINT64_MAX)
{
        struct charge c1 = {0}, c2 = {0};

        assert_int_equal(charge_take(&c1, x->of_a, UINT64_MAX - 1), 0);
        assert_int_equal(charge_take(&c2, x->of_a, 2), KVL_STATUS_QUOTA);
        charge_drop(&c1);
}

SCENE(test_over_a_lowered_limit, 100, 1000)
{
        struct charge c1 = {0}, c2 = {0};

        assert_int_equal(charge_take(&c1, x->of_a, 80), 0);
        x->a.account.limit_bytes = 50;
        assert_false(account_fits(&x->a.account, 0));
        assert_int_equal(charge_take(&c2, x->of_a, 1), KVL_STATUS_QUOTA);
        charge_drop(&c1);
        assert_true(account_fits(&x->a.account, 50));
        assert_false(account_fits(&x->a.account, 51));
}

/* The idle part of a reservation follows every charge, also one that is left behind. */
SCENE(test_idle_reserve, 100, 150)
{
        struct charge c1 = {0}, c2 = {0};

        x->of_a->reserve_bytes = x->pool.reserved_bytes = x->pool.idle_reserve_bytes = 50;
        assert_int_equal(charge_take(&c1, x->of_a, 30), 0);
        assert_int_equal(x->pool.idle_reserve_bytes, 20);
        assert_int_equal(pool_share_borrowed(x->of_a), 0);
        assert_int_equal(charge_take(&c2, x->of_a, 30), 0);
        assert_int_equal(x->pool.idle_reserve_bytes, 0);
        assert_int_equal(pool_share_borrowed(x->of_a), 10);
        charge_leave_tenant(&c1);
        assert_int_equal(x->pool.idle_reserve_bytes, 20);
        assert_int_equal(x->a.account.charged_bytes, 30);
        assert_int_equal(x->pool.account.charged_bytes, 60);
        charge_drop(&c1);
        charge_drop(&c2);
        assert_int_equal(x->pool.idle_reserve_bytes, 50);
}
