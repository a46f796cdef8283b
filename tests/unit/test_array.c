#include "tests/unit/test-support.h"

#include <errno.h>
#include <sys/resource.h>

#include "base/array.h"
#include "tests/unit/alloc-fail.h"

#define SMALL  1000
#define MAPPED ((uint32_t)(ARRAY_MAPPED_BYTES / sizeof(uint64_t)))
#define MOST   (64 * MAPPED)

struct numbers {
        void *array;
        uint32_t len;
};

static uint64_t *at(const struct numbers *a, uint32_t i)
{
        return (uint64_t *)a->array + i;
}

static int reserve(struct numbers *a, uint32_t n)
{
        return array_reserve(&a->array, &a->len, n, MOST, sizeof(uint64_t));
}

static long count_faults(void)
{
        struct rusage usage;

        assert_int_equal(getrusage(RUSAGE_SELF, &usage), 0);
        return usage.ru_minflt;
}

TEST_BARE(test_growing_touches_nothing)
{
        struct numbers a = {0};
        long before;

        assert_int_equal(reserve(&a, 16 * MAPPED), 0);
        for (uint32_t i = 0; i < a.len; i += 512)
                *at(&a, i) = i;
        before = count_faults();
        assert_int_equal(reserve(&a, 32 * MAPPED), 0);
        assert_in_range(count_faults() - before, 0, 64);
        assert_int_equal(*at(&a, 15 * MAPPED / 512 * 512), 15 * MAPPED / 512 * 512);
        array_free(a.array, a.len, sizeof(uint64_t));
}

static void limit_addresses(rlim_t bytes)
{
        struct rlimit limit;

        assert_int_equal(getrlimit(RLIMIT_AS, &limit), 0);
        limit.rlim_cur = MIN(bytes, limit.rlim_max);
        assert_int_equal(setrlimit(RLIMIT_AS, &limit), 0);
}

/* Where there is no memory all stays as it was. */
TEST_BARE(test_no_memory)
{
        struct numbers a = {0};

        alloc_fail_at(1);
        assert_int_equal(reserve(&a, SMALL), -ENOMEM);
        assert_true(alloc_fail_end());
        assert_null(a.array);
        assert_int_equal(reserve(&a, SMALL), 0);
        *at(&a, SMALL - 1) = 5;
        alloc_fail_at(1);
        assert_int_equal(array_reset(&a.array, a.len, sizeof(uint64_t)), -ENOMEM);
        assert_true(alloc_fail_end());
        limit_addresses(1);
        assert_int_equal(reserve(&a, MAPPED), -ENOMEM);
        limit_addresses(RLIM_INFINITY);
        assert_int_equal(a.len, SMALL);
        assert_int_equal(*at(&a, SMALL - 1), 5);
        assert_int_equal(reserve(&a, MAPPED), 0);
        limit_addresses(1);
        assert_int_equal(reserve(&a, 2 * MAPPED), -ENOMEM);
        assert_int_equal(array_reset(&a.array, a.len, sizeof(uint64_t)), -ENOMEM);
        limit_addresses(RLIM_INFINITY);
        assert_int_equal(a.len, MAPPED);
        assert_int_equal(*at(&a, SMALL - 1), 5);
        array_free(a.array, a.len, sizeof(uint64_t));
}
