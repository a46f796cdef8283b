#include "policy/compact.h"
#include "tests/unit/test-random.h"
#include "tests/unit/test-support.h"

/* A set of 16 pages with these cached and held. */
static struct compact_set set_of(uint32_t n_movable, uint32_t n_held)
{
        return (struct compact_set){16, 16 - n_movable - n_held, n_movable, n_held};
}

TEST(test_fewest_live)
{
        const struct compact_set sets[] = {
                set_of(4, 0), set_of(2, 0), set_of(1, 1), set_of(2, 0), set_of(9, 0)};

        assert_int_equal(compact_choose(sets, 5), 1);
        assert_true(compact_choose(sets, 1) == SIZE_MAX);
        assert_true(compact_choose(NULL, 0) == SIZE_MAX);
}

TEST(test_a_quarter)
{
        struct compact_set sets[] = {set_of(4, 0), set_of(8, 0)};

        assert_int_equal(compact_choose(sets, 2), 0);
        sets[0] = set_of(5, 0);
        assert_true(compact_choose(sets, 2) == SIZE_MAX);
        /* 3 of 15 are, 4 aren't a quarter. */
        sets[0] = (struct compact_set){15, 12, 3, 0};
        assert_int_equal(compact_choose(sets, 2), 0);
        sets[0] = (struct compact_set){15, 11, 4, 0};
        assert_true(compact_choose(sets, 2) == SIZE_MAX);
}

/* Room is FREE pages of other sets that hold something: not its own, not those of empty ones. */
TEST(test_room_elsewhere)
{
        struct compact_set sets[] = {set_of(3, 0), set_of(13, 0), set_of(0, 16), set_of(0, 0)};

        assert_int_equal(compact_choose(sets, 4), 0);
        sets[1] = set_of(14, 0);
        assert_true(compact_choose(sets, 4) == SIZE_MAX);
        sets[2] = set_of(0, 15);
        assert_int_equal(compact_choose(sets, 4), 0);
}
