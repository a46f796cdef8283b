/* Values that a simulated Redis keeps, and those that it evicts. */

#include "policy/hosts/values.h"
#include "tests/unit/alloc-fail.h"
#include "tests/unit/test-random.h"
#include "tests/unit/test-support.h"

#define A_SECOND UINT64_C(1000000000)
#define A_MINUTE (60 * A_SECOND)

static struct values *new_values(
        enum values_evict evict, uint32_t n_keys, uint32_t capacity, uint64_t expiry_nsec)
{
        const struct values_options options = {
                .evict = evict, .n_keys = n_keys, .capacity = capacity, .expiry_nsec = expiry_nsec};
        struct values *v = NULL;

        assert_int_equal(values_new(&options, &v), 0);
        return v;
}

static void put(struct values *v, uint32_t key, uint64_t now)
{
        assert_int_equal(values_put(v, key, now), 0);
        assert_null(values_check(v));
}

TEST(test_use_once_in_a_while)
{
        struct values *v = new_values(VALUES_LRU, 2, 2, 0);

        put(v, 0, 0);
        assert_false(values_use_again(v, 0, A_MINUTE, A_MINUTE - 1));
        assert_true(values_use_again(v, 0, A_MINUTE, A_MINUTE));
        assert_false(values_use_again(v, 0, A_MINUTE, 2 * A_MINUTE - 1));
        assert_false(values_use_again(v, 1, A_MINUTE, 2 * A_MINUTE));
        values_free(v);
}

/* A use doesn't put it off: SET with PX says when. */
TEST(test_expiry)
{
        struct values *v = new_values(VALUES_LRU, 3, 3, 10);
        struct values_stats stats;

        put(v, 0, 0);
        put(v, 1, 5);
        assert_true(values_use(v, 0, 9));
        assert_false(values_use(v, 0, 10));
        assert_true(values_has(v, 1, 14));
        put(v, 0, 14);
        assert_false(values_has(v, 1, 15));
        assert_true(values_has(v, 0, 23));
        assert_false(values_has(v, 0, 24));
        values_stats(v, &stats);
        assert_int_equal(stats.expirations, 3);
        assert_int_equal(stats.n, 0);
        values_free(v);
}

/* The first use after a put() counts for certain; what isn't used loses one a minute. */
TEST(test_least_frequently_used_goes)
{
        struct values *v = new_values(VALUES_LFU, 5, 2, 0);

        put(v, 0, 0);
        put(v, 1, 1);
        assert_true(values_use(v, 0, 2)); /* 6, and 1 has 5 */
        put(v, 2, 3);
        assert_true(values_has(v, 0, 3));
        assert_false(values_has(v, 1, 3));
        /* A value that is new has as much as one that was used once and then left alone for a
         * minute, which is older; two minutes, and it has less. */
        assert_true(values_use(v, 2, A_MINUTE + 3));
        put(v, 3, A_MINUTE + 4);
        assert_false(values_has(v, 0, A_MINUTE + 4));
        assert_true(values_has(v, 2, A_MINUTE + 4));
        values_free(v);
}

/* Against a list that is searched. */
#define N_KEYS 40

/* Any values are used, any number of times. */
TEST(test_random_frequencies)
{
        random_start(__func__);
        for (int round = 0; round < 20; round++) {
                struct values *v = new_values(VALUES_LFU, N_KEYS, 1 + random_below(N_KEYS), 0);
                uint64_t now = 0;

                for (int i = 0; i < 1000; i++) {
                        uint32_t key = random_below(1 + random_below(N_KEYS));

                        now += random_below(20) * A_SECOND;
                        if (!values_use(v, key, now))
                                put(v, key, now);
                }
                assert_null(values_check(v));
                values_free(v);
        }
}
