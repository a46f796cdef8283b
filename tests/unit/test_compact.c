#include "policy/compact.h"
#include "tests/unit/test-random.h"
#include "tests/unit/test-support.h"

/* A set of 16 pages with these cached and held. */
static struct compact_set set_of(uint32_t n_movable, uint32_t n_held)
{
        return (struct compact_set){16, 16 - n_movable - n_held, n_movable};
}

TEST(test_fewest_live)
{
        const struct compact_set sets[] = {
                set_of(4, 0), set_of(2, 0), set_of(1, 1), set_of(2, 0), set_of(9, 0)};

        assert_int_equal(compact_choose(sets, 5), 1);
        assert_true(compact_choose(sets, 1) == SIZE_MAX);
        assert_true(compact_choose(NULL, 0) == SIZE_MAX);
}
