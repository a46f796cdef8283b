/* Buffers of the exchange: which are kept, how many, and for how long. */
#include "tests/unit/test-support.h"

#include <stdlib.h>

#include "daemon/exchange/buffers.h"

#define BYTES ((UINT64_C(1) << 20) + 256)
#define FIT   ((uint32_t)(BUFFERS_KEPT_BYTES / BYTES))

/* Takes n, and gives all of them back. */
static void use(struct buffers *b, uint32_t n, uint64_t bytes, uint64_t now_nsec)
{
        uint8_t *taken[FIT + 3];

        assert_true(n <= FIT + 3);
        for (uint32_t i = 0; i < n; i++) {
                taken[i] = buffers_take(b, bytes);
                assert_non_null(taken[i]);
                taken[i][0] = taken[i][bytes - 1] = (uint8_t)i;
        }
        for (uint32_t i = 0; i < n; i++) {
                assert_int_equal(taken[i][bytes - 1], i);
                buffers_give_back(b, taken[i], bytes, now_nsec);
        }
}

TEST_BARE(test_used_again)
{
        struct buffers b = {0};
        uint8_t *one = buffers_take(&b, BYTES), *other = buffers_take(&b, BYTES);

        assert_true(one && other && one != other);
        assert_int_equal(b.n, 0);
        buffers_give_back(&b, one, BYTES, 1);
        assert_int_equal(b.n, 1);
        assert_ptr_equal(buffers_take(&b, BYTES), one);
        assert_int_equal(b.n, 0);
        buffers_give_back(&b, one, BYTES, 1);
        buffers_give_back(&b, other, BYTES, 1);
        buffers_give_back(&b, NULL, BYTES, 1);
        assert_int_equal(b.n, 2);
        buffers_free(&b);
        assert_int_equal(b.n, 0);
}

TEST_BARE(test_bounded)
{
        struct buffers b = {0};

        use(&b, FIT + 3, BYTES, 1);
        assert_int_equal(b.n, FIT);
        /* All buffers have one size, the last one's. */
        use(&b, 2, 4096, 1);
        assert_int_equal(b.n, 2);
        use(&b, 1, 1, 1);
        assert_int_equal(b.n, 1);
        use(&b, 1, BUFFERS_KEPT_BYTES + 1, 1);
        assert_int_equal(b.n, 0);
}

TEST_BARE(test_until_idle)
{
        struct buffers b = {0};

        assert_true(buffers_work(&b, 5) == UINT64_MAX);
        use(&b, 1, BYTES, 10);
        use(&b, 3, BYTES, 20);
        assert_true(buffers_work(&b, 20) == 20 + BUFFERS_KEPT_NSEC);
        assert_true(buffers_work(&b, 19 + BUFFERS_KEPT_NSEC) == 20 + BUFFERS_KEPT_NSEC);
        assert_int_equal(b.n, 3);
        assert_true(buffers_work(&b, 20 + BUFFERS_KEPT_NSEC) == UINT64_MAX);
        assert_int_equal(b.n, 0);
}
