#include "policy/share.h"
#include "tests/unit/test-random.h"
#include "tests/unit/test-support.h"

#define GIB (1ULL << 30)

static void test_nobody(void **state)
{
        const struct share_tenant idle[] = {{0, 1, 0}, {0, 1000, 100}};

        assert_true(share_furthest_over(NULL, 0) == SIZE_MAX);
        assert_true(share_furthest_over(idle, ARRAY_SIZE(idle)) == SIZE_MAX);
}

static void test_most_per_weight(void **state)
{
        const struct share_tenant tenants[] = {
                {30 * GIB, 100, 0}, {4 * GIB, 10, 100}, {0, 1, 0}, {8 * GIB, 21, 0}};

        assert_int_equal(share_furthest_over(tenants, ARRAY_SIZE(tenants)), 1);
}

static void test_holding_nothing_never_gives_way(void **state)
{
        const struct share_tenant tenants[] = {{0, 1, 0}, {1, 1000, 100}};

        assert_int_equal(share_furthest_over(tenants, ARRAY_SIZE(tenants)), 1);
}

static void test_ties(void **state)
{
        const struct share_tenant by_priority[] = {{6, 2, 50}, {9, 3, 40}, {12, 4, 60}};
        const struct share_tenant by_index[] = {{6, 3, 7}, {4, 2, 7}, {2, 1, 7}};

        assert_int_equal(share_furthest_over(by_priority, ARRAY_SIZE(by_priority)), 1);
        assert_int_equal(share_furthest_over(by_index, ARRAY_SIZE(by_index)), 0);
}

/* Where 64-bit products wrap and doubles can't tell the two apart. */
static void test_extremes(void **state)
{
        const struct share_tenant wraps[] = {{UINT64_MAX / 2 + 1, 1, 0}, {3, 2, 0}};
        const struct share_tenant close[] = {{UINT64_MAX - 1, 1000, 0}, {UINT64_MAX, 1000, 100}};
        const struct share_tenant weights[] = {{UINT64_MAX, 1000, 0}, {UINT64_MAX, 999, 100}};
        const struct share_tenant equal[] = {
                {UINT64_MAX, UINT32_MAX, 2}, {UINT64_MAX, UINT32_MAX, 1}};

        assert_int_equal(share_furthest_over(wraps, 2), 0);
        assert_int_equal(share_furthest_over(close, 2), 1);
        assert_int_equal(share_furthest_over(weights, 2), 1);
        assert_int_equal(share_furthest_over(equal, 2), 1);
}

/* Without products: whole parts first, then the remainders, which are small. */
static int compare(const struct share_tenant *a, const struct share_tenant *b)
{
        uint64_t a_whole = a->charged_bytes / a->weight, b_whole = b->charged_bytes / b->weight;
        uint64_t a_rest = a->charged_bytes % a->weight * b->weight;
        uint64_t b_rest = b->charged_bytes % b->weight * a->weight;

        if (a_whole != b_whole)
                return a_whole > b_whole ? 1 : -1;
        if (a_rest != b_rest)
                return a_rest > b_rest ? 1 : -1;
        return (a->priority < b->priority) - (a->priority > b->priority);
}

static void test_random_against_model(void **state)
{
        struct share_tenant t[5];

        random_start(__func__);
        for (int round = 0; round < 50000; round++) {
                size_t n = 1 + random_below(ARRAY_SIZE(t)), found;
                uint64_t mask = UINT64_MAX >> random_below(64);

                for (size_t i = 0; i < n; i++) {
                        t[i].charged_bytes = random_below(2) ? random_u64() & mask
                                                             : mask - random_below(2) * (mask > 1);
                        t[i].weight = 1 + random_below(random_below(2) ? 3 : 1000);
                        t[i].priority = random_below(4);
                }
                found = share_furthest_over(t, n);
                for (size_t i = 0; i < n; i++) {
                        if (found == SIZE_MAX) {
                                assert_true(t[i].charged_bytes == 0);
                                continue;
                        }
                        assert_true(t[found].charged_bytes > 0);
                        assert_true(t[i].charged_bytes == 0 ||
                                    compare(&t[found], &t[i]) >= (i < found));
                }
        }
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                TEST(test_nobody),
                TEST(test_most_per_weight),
                TEST(test_holding_nothing_never_gives_way),
                TEST(test_ties),
                TEST(test_extremes),
                TEST(test_random_against_model),
        };

        return RUN_TESTS(tests);
}
