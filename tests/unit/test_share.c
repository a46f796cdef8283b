#include "policy/share.h"
#include "tests/unit/test-random.h"
#include "tests/unit/test-support.h"

#define GIB         (1ULL << 30)
#define MAX_TENANTS 300

typedef unsigned __int128 u128;

static void check_fair(
        const struct share_tenant *t, size_t n, uint64_t capacity, const uint64_t *expected)
{
        uint64_t fair[MAX_TENANTS];
        uint32_t order[MAX_TENANTS];

        assert_true(n <= MAX_TENANTS);
        share_fair(t, n, capacity, fair, order);
        for (size_t i = 0; i < n; i++)
                assert_int_equal(fair[i], expected[i]);
}

/* Nothing is lost to rounding, and among equals the lower index gets it. */
TEST(test_fair_rounding)
{
        const struct share_tenant t[] = {
                {0, UINT64_MAX, 7, 0}, {0, UINT64_MAX, 7, 0}, {0, UINT64_MAX, 7, 0}};

        check_fair(t, 3, 11, (uint64_t[]){4, 4, 3});
        check_fair(t, 3, 1, (uint64_t[]){1, 0, 0});
        check_fair(t, 3, UINT64_MAX, (uint64_t[]){UINT64_MAX / 3, UINT64_MAX / 3, UINT64_MAX / 3});
}

static size_t random_tenants(struct share_tenant *t)
{
        size_t n = 1 + random_below(random_below(8) ? 8 : MAX_TENANTS);
        uint64_t mask = UINT64_MAX >> random_below(64);

        for (size_t i = 0; i < n; i++) {
                t[i].held_bytes = random_u64() & mask;
                switch (random_below(4)) {
                case 0:
                        t[i].demand_bytes = UINT64_MAX - random_below(2);
                        break;
                case 1:
                        t[i].demand_bytes = 0;
                        break;
                default:
                        t[i].demand_bytes = random_u64() & mask;
                }
                switch (random_below(3)) {
                case 0:
                        t[i].weight = 1;
                        break;
                case 1:
                        t[i].weight = 1000;
                        break;
                default:
                        t[i].weight = 1 + random_below(1000);
                }
                t[i].priority = random_below(4);
        }
        return n;
}

/* ---- furthest over the share ----------------------------------------------------------------- */

static const uint64_t no_share[8];

TEST(test_nobody)
{
        const struct share_tenant t[] = {{0, 0, 1, 0}, {10, 0, 1000, 100}, {3, 0, 1, 0}};

        assert_true(share_furthest_over(NULL, NULL, NULL, 0) == SIZE_MAX);
        assert_true(share_furthest_over(t, (uint64_t[]){0, 10, 4}, NULL, 3) == SIZE_MAX);
}

TEST(test_most_per_weight)
{
        const struct share_tenant t[] = {
                {30 * GIB, 0, 100, 0}, {4 * GIB, 0, 10, 100}, {0, 0, 1, 0}, {8 * GIB, 0, 21, 0}};
        const uint64_t fair[] = {10 * GIB, 2 * GIB, 0, 8 * GIB};

        assert_int_equal(share_furthest_over(t, no_share, NULL, 4), 1);
        /* 20/100, 2/10: a tie, the lower priority */
        assert_int_equal(share_furthest_over(t, fair, NULL, 4), 0);
        assert_int_equal(share_furthest_over(t, fair, (uint8_t[]){1, 0, 0, 0}, 4), 1);
        assert_true(share_furthest_over(t, fair, (uint8_t[]){1, 1, 0, 0}, 4) == SIZE_MAX);
}

TEST(test_ties)
{
        const struct share_tenant by_priority[] = {{6, 0, 2, 50}, {9, 0, 3, 40}, {12, 0, 4, 60}};
        const struct share_tenant by_index[] = {{6, 0, 3, 7}, {4, 0, 2, 7}, {2, 0, 1, 7}};

        assert_int_equal(share_furthest_over(by_priority, no_share, NULL, 3), 1);
        assert_int_equal(share_furthest_over(by_index, no_share, NULL, 3), 0);
}

/* Where 64-bit products wrap and doubles can't tell the two apart. */
TEST(test_extremes)
{
        const struct share_tenant wraps[] = {{UINT64_MAX / 2 + 1, 0, 1, 0}, {3, 0, 2, 0}};
        const struct share_tenant close[] = {
                {UINT64_MAX - 1, 0, 1000, 0}, {UINT64_MAX, 0, 1000, 100}};
        const struct share_tenant weights[] = {{UINT64_MAX, 0, 1000, 0}, {UINT64_MAX, 0, 999, 100}};

        assert_int_equal(share_furthest_over(wraps, no_share, NULL, 2), 0);
        assert_int_equal(share_furthest_over(close, no_share, NULL, 2), 1);
        assert_int_equal(share_furthest_over(weights, no_share, NULL, 2), 1);
}

/* Without products: whole parts first, then the remainders, which are small. */
static int compare(const struct share_tenant *a, uint64_t a_over, const struct share_tenant *b,
        uint64_t b_over)
{
        uint64_t a_whole = a_over / a->weight, b_whole = b_over / b->weight;
        uint64_t a_rest = a_over % a->weight * b->weight;
        uint64_t b_rest = b_over % b->weight * a->weight;

        if (a_whole != b_whole)
                return a_whole > b_whole ? 1 : -1;
        if (a_rest != b_rest)
                return a_rest > b_rest ? 1 : -1;
        return (a->priority < b->priority) - (a->priority > b->priority);
}

static void check_furthest(
        const struct share_tenant *t, size_t n, const uint64_t *fair, const uint8_t *skip)
{
        size_t found = share_furthest_over(t, fair, skip, n);

        if (found != SIZE_MAX)
                assert_true(found < n && t[found].held_bytes > fair[found] && !skip[found]);
        for (size_t i = 0; i < n; i++) {
                if (t[i].held_bytes <= fair[i] || skip[i])
                        continue;
                assert_true(found != SIZE_MAX);
                assert_true(compare(&t[found], t[found].held_bytes - fair[found], &t[i],
                                    t[i].held_bytes - fair[i]) >= (i < found));
        }
}

TEST(test_furthest_random)
{
        struct share_tenant t[MAX_TENANTS];
        uint64_t fair[MAX_TENANTS];
        uint8_t skip[MAX_TENANTS];

        random_start(__func__);
        for (int round = 0; round < 30000; round++) {
                size_t n = random_tenants(t) % 6;

                for (size_t i = 0; i < n; i++) {
                        fair[i] = random_below(2) ? t[i].held_bytes - random_below(5)
                                                  : random_u64() >> random_below(64);
                        skip[i] = random_below(4) == 0;
                }
                check_furthest(t, n, fair, skip);
        }
}
