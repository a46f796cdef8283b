#include "policy/tier.h"
#include "tests/unit/test-random.h"
#include "tests/unit/test-support.h"

#define CAPACITY 6400 /* low mark 100, high 200 */

static uint32_t n_down(struct tier_fill *f, uint32_t n_free, uint32_t n_leaving)
{
        struct tier_level l = {
                .capacity = CAPACITY, .n_free = n_free, .n_leaving = n_leaving, .n_most = 150};

        return tier_n_down(f, &l);
}

static uint32_t n_kept(const struct tier_fill *f)
{
        struct tier_level l = {.capacity = CAPACITY};

        return tier_n_kept(f, &l);
}

TEST(test_between_the_marks)
{
        struct tier_fill f = {0};

        assert_int_equal(n_down(&f, 150, 0), 0); /* coming from above */
        assert_int_equal(n_down(&f, 100, 0), 0);
        assert_int_equal(n_down(&f, 99, 0), 101);  /* below the low one: up to the high one */
        assert_int_equal(n_down(&f, 120, 40), 40); /* coming from below */
        assert_int_equal(n_down(&f, 99, 101), 0);
        assert_int_equal(n_down(&f, 150, 0), 0);
        assert_int_equal(n_down(&f, 200, 0), 0);
        assert_int_equal(n_kept(&f), 100);
        assert_int_equal(n_down(&f, 0, 0), 150); /* no more than may be under way */
        assert_int_equal(n_kept(&f), 200);
        assert_int_equal(n_down(&f, 0, 140), 10);
        assert_int_equal(n_down(&f, 0, 160), 0);
}

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
