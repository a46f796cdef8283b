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

/* Granted, pinned, or neither free nor cached: it would have to be waited for. */
TEST(test_held)
{
        struct compact_set sets[] = {set_of(1, 1), set_of(8, 0)};

        assert_true(compact_choose(sets, 2) == SIZE_MAX);
        sets[0] = (struct compact_set){16, 14, 1, 0};
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

TEST(test_scattered)
{
        const struct compact_set tidy[] = {set_of(16, 0), set_of(0, 0), set_of(7, 9)};
        const struct compact_set sets[] = {set_of(12, 0), set_of(0, 0), set_of(0, 4)};
        const struct compact_set big[] = {
                {UINT32_MAX, UINT32_MAX - 1, 1, 0}, {UINT32_MAX, UINT32_MAX - 1, 1, 0}};

        assert_int_equal(compact_scattered(NULL, 0), 0);
        assert_int_equal(compact_scattered(tidy, 3), 0);
        assert_int_equal(compact_scattered(sets, 3), 16);
        assert_int_equal(compact_scattered(big, 2), 2 * (uint64_t)(UINT32_MAX - 1));
}

#define MAX_SETS 6

/* Moves its pages to where they fit. */
static void empty_set(struct compact_set *sets, size_t n, size_t victim)
{
        uint32_t left = sets[victim].n_movable;

        sets[victim].n_movable = 0;
        sets[victim].n_free = sets[victim].n_usable;
        for (size_t i = 0; i < n; i++) {
                uint32_t takes = MIN(left, sets[i].n_free);

                if (i == victim || sets[i].n_free == sets[i].n_usable)
                        continue;
                sets[i].n_free -= takes;
                sets[i].n_movable += takes;
                left -= takes;
        }
        assert_int_equal(left, 0);
}

static bool is_worth_it(const struct compact_set *sets, size_t n, size_t i)
{
        uint32_t live = sets[i].n_usable - sets[i].n_free, room = 0;

        for (size_t k = 0; k < n; k++)
                if (k != i && sets[k].n_free < sets[k].n_usable)
                        room += sets[k].n_free;
        return live > 0 && live * 4 <= sets[i].n_usable && sets[i].n_movable == live &&
               live <= room;
}

/* Done again and again it ends, and then nothing is left to do. */
TEST(test_it_ends)
{
        struct compact_set sets[MAX_SETS];

        random_start(__func__);
        for (int round = 0; round < 20000; round++) {
                size_t n = random_below(MAX_SETS + 1), victim;
                unsigned moves = 0;

                for (size_t i = 0; i < n; i++) {
                        uint32_t movable = random_below(random_below(2) ? 6 : 17);

                        sets[i] = set_of(movable, random_below(3) ? 0 : random_below(17 - movable));
                }
                for (; (victim = compact_choose(sets, n)) != SIZE_MAX; moves++) {
                        assert_true(victim < n && is_worth_it(sets, n, victim));
                        for (size_t i = 0; i < n; i++)
                                assert_true(!is_worth_it(sets, n, i) ||
                                            sets[i].n_free <= sets[victim].n_free);
                        empty_set(sets, n, victim);
                        assert_true(moves < MAX_SETS);
                }
                for (size_t i = 0; i < n; i++)
                        assert_false(is_worth_it(sets, n, i));
        }
}
