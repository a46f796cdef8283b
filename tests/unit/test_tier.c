#include "policy/tier.h"
#include "tests/unit/test-random.h"
#include "tests/unit/test-support.h"

TEST(test_worth_a_place)
{
        assert_true(tier_takes(2, 1, 1, 1));
        assert_true(tier_takes(1, 1, 1, 1));
        assert_false(tier_takes(1, 1, 2, 1));
        assert_true(tier_takes(1, 1, 2, 4)); /* a quarter of the bytes for half of the use */
        assert_false(tier_takes(1, 4, 1, 1));
        assert_true(tier_takes(0, 1, 0, 1));
}

TEST(test_admission_to_disk)
{
        struct tier_filter filter = {.min_uses = 2, .long_tokens = 1000};

        assert_false(tier_admits(&filter, 1, 999));
        assert_true(tier_admits(&filter, 2, 0));
        assert_true(tier_admits(&filter, 1, 1000));
        filter.long_tokens = 0;
        assert_false(tier_admits(&filter, 1, UINT64_MAX));
        filter.min_uses = 0;
        assert_true(tier_admits(&filter, 1, 0));
}

struct mover {
        struct tier_claim claim;
        uint32_t weight;
        uint64_t moved;
};
