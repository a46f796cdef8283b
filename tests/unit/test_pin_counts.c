#include "tests/unit/test-support.h"

#include <errno.h>

#include "daemon/core/ground/page.h"
#include "daemon/core/ground/pin-counts.h"
#include "tests/unit/alloc-fail.h"

#define N_PAGES 100
#define MAPPED  (UINT32_C(1) << 20) /* so many that the memory is sparse */

static void test_counts(void **state)
{
        struct pin_counts c = {0};

        assert_int_equal(pin_counts_get(&c, 0), 0);
        pin_counts_prefetch(&c, 0);
        assert_int_equal(pin_counts_reserve(&c, N_PAGES), 0);
        assert_int_equal(pin_counts_add(&c, 7, 1), 1);
        assert_int_equal(pin_counts_add(&c, 7, 2), 3);
        assert_int_equal(pin_counts_add(&c, N_PAGES - 1, 1), 1);
        assert_int_equal(c.n_pinned, 2);
        /* Once more: nothing is lost. */
        assert_int_equal(pin_counts_reserve(&c, N_PAGES), 0);
        assert_int_equal(pin_counts_get(&c, 7), 3);
        assert_int_equal(pin_counts_get(&c, N_PAGES), 0);
        assert_int_equal(pin_counts_get(&c, UINT32_MAX), 0);
        pin_counts_prefetch(&c, UINT32_MAX);
        assert_int_equal(pin_counts_drop(&c, 7, 1), 2);
        assert_int_equal(c.n_pinned, 2);
        assert_int_equal(pin_counts_drop(&c, 7, 2), 0);
        assert_int_equal(c.n_pinned, 1);
        pin_counts_deinit(&c);
        assert_int_equal(pin_counts_get(&c, N_PAGES - 1), 0);
}

/* Each pinned page once, whatever is looked at at a time. */
static void test_next(void **state)
{
        static const uint32_t pages[] = {0, 1, 15, 16, 17, 4095, 4096, MAPPED - 1};

        for (uint32_t max = 1; max <= MAPPED; max *= 64) {
                struct pin_counts c = {0};
                uint32_t iter = 0, page;
                size_t n = 0;

                assert_int_equal(pin_counts_reserve(&c, MAPPED), 0);
                for (size_t i = 0; i < ARRAY_SIZE(pages); i++)
                        pin_counts_add(&c, pages[i], 1);
                while (iter < c.len) {
                        uint32_t from = iter;

                        page = pin_counts_next(&c, &iter, max);
                        assert_in_range(iter, from + 1, from + max);
                        if (page == PAGE_NONE)
                                continue;
                        assert_int_equal(iter, page + 1);
                        assert_int_equal(page, pages[n++]);
                }
                assert_int_equal(n, ARRAY_SIZE(pages));
                assert_int_equal(pin_counts_next(&c, &iter, max), PAGE_NONE);
                pin_counts_deinit(&c);
        }
}

static void test_no_memory(void **state)
{
        struct pin_counts c = {0};

        alloc_fail_at(1);
        assert_int_equal(pin_counts_reserve(&c, N_PAGES), -ENOMEM);
        assert_true(alloc_fail_end());
        assert_int_equal(pin_counts_get(&c, 0), 0);
        assert_int_equal(pin_counts_reserve(&c, N_PAGES), 0);
        assert_int_equal(pin_counts_add(&c, 0, 1), 1);
        pin_counts_deinit(&c);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                TEST(test_counts),
                TEST(test_next),
                TEST(test_no_memory),
        };

        return RUN_TESTS(tests);
}
