#include "tests/unit/test-support.h"

#include <errno.h>
#include <stdlib.h>

#include "base/map.h"
#include "tests/unit/alloc-fail.h"

#define SCENE(fn, ...) TEST_ON(fn, struct map, m, map_init, map_deinit, ##__VA_ARGS__)

#define N_KEYS 512

SCENE(test_put_find_remove)
{
        assert_null(map_find(m, 7));
        assert_false(map_remove(m, 7));
        assert_int_equal(map_put(m, 7, 70), 0);
        assert_int_equal(map_put(m, 0, 1), 0);
        assert_int_equal(map_put(m, 7, 71), 0);
        assert_int_equal(m->n_used, 2);
        assert_int_equal(*map_find(m, 7), 71);
        assert_int_equal(*map_find(m, 0), 1);
        assert_true(map_remove(m, 7));
        assert_null(map_find(m, 7));
        assert_int_equal(m->n_used, 1);
}

/* Sums what the iterator gives and compares it with the model. */
static void check_against(const struct map *m, const uint64_t *values, const bool *present)
{
        struct map_slot slot;
        size_t iter = 0, seen = 0, expected = 0;

        while (map_next(m, &iter, &slot)) {
                assert_in_range(slot.key, 0, N_KEYS - 1);
                assert_true(present[slot.key]);
                assert_int_equal(slot.value, values[slot.key]);
                seen++;
        }
        for (unsigned key = 0; key < N_KEYS; key++) {
                uint64_t *found = map_find(m, key);

                expected += present[key];
                assert_int_equal(found != NULL, present[key]);
                if (found)
                        assert_int_equal(*found, values[key]);
        }
        assert_int_equal(seen, expected);
        assert_int_equal(m->n_used, expected);
}

/* Many small tables, so that chains of collisions and wrap-around are common. */
TEST(test_random_operations_match_a_model)
{
        unsigned random = 12345;

        for (unsigned round = 0; round < 40; round++) {
                uint64_t values[N_KEYS];
                bool present[N_KEYS] = {false};
                unsigned n_keys = round % 2 ? 12 : N_KEYS;
                struct map m;

                map_init(&m);
                for (unsigned step = 0; step < 1500; step++) {
                        unsigned key = (unsigned)rand_r(&random) % n_keys;

                        if (rand_r(&random) % 2) {
                                assert_int_equal(map_put(&m, key, step), 0);
                                values[key] = step;
                                present[key] = true;
                        } else {
                                assert_int_equal(map_remove(&m, key), present[key]);
                                present[key] = false;
                        }
                        if (step % 50 == 0)
                                check_against(&m, values, present);
                }
                check_against(&m, values, present);
                map_deinit(&m);
        }
}

SCENE(test_reserve)
{
        assert_int_equal(map_reserve(m, SIZE_MAX), -ENOMEM);
        assert_int_equal(map_reserve(m, 1000), 0);
        for (unsigned i = 0; i < 1000; i++) {
                alloc_fail_at(1);
                assert_int_equal(map_put(m, i, i), 0);
                assert_false(alloc_fail_end());
        }
        assert_true(m->n_used * 4 <= m->n_slots * 3);
}

/* No put moves more than a few keys to a larger table, and all have moved before that is full. */
SCENE(test_grows_little_by_little)
{
        unsigned n_grown = 0;

        for (uint64_t key = 0; key < 100000; key++) {
                size_t n_slots = m->n_slots, n_old = m->n_old, n_used = m->n_used;

                assert_int_equal(map_put(m, key, key + 1), 0);
                if (m->n_slots != n_slots) {
                        assert_int_equal(n_old, 0);
                        n_old = n_used;
                        n_grown++;
                }
                assert_true(n_old - m->n_old <= 4);
                assert_int_equal(*map_find(m, key / 2), key / 2 + 1);
        }
        assert_int_equal(n_grown, 15); /* from none to 2^18 slots */
}

TEST(test_no_memory_leaves_it_unchanged)
{
        alloc_fail_each(n)
        {
                struct map m;
                unsigned n_put = 0;
                int r = 0;

                map_init(&m);
                while (n_put < 100 && (r = map_put(&m, n_put, n_put)) == 0)
                        n_put++;
                assert_int_equal(r, alloc_fail_happened() ? -ENOMEM : 0);
                assert_int_equal(m.n_used, n_put);
                for (unsigned i = 0; i < n_put; i++)
                        assert_int_equal(*map_find(&m, i), i);
                assert_null(map_find(&m, n_put));
                map_deinit(&m);
        }
}

/* A peer may choose the number that is looked for. */
TEST(test_the_key_that_no_map_has)
{
        struct map m;

        map_init(&m);
        for (uint64_t key = 0; key < 100; key++) {
                assert_null(map_find(&m, MAP_KEY_NONE));
                assert_false(map_remove(&m, MAP_KEY_NONE));
                assert_int_equal(m.n_used, key);
                assert_int_equal(map_put(&m, key, key), 0);
        }
        map_deinit(&m);
}
