#include "tests/unit/test-support.h"

#include <string.h>

#include "base/hash.h"

/* First vector of SipHash-1-3 for key 00 01 .. 0f (the empty message), from Rust's core tests. */
static void test_key_counting_up(void **state)
{
        const struct hash_seed seed = {UINT64_C(0x0706050403020100), UINT64_C(0x0f0e0d0c0b0a0908)};

        assert_int_equal(hash_bytes(seed, "", 0), UINT64_C(0xabac0158050fc4dc));
}

/* CPython 3.11 hashes bytes by SipHash-1-3; these come from it with PYTHONHASHSEED=0. */
static void test_key_zero(void **state)
{
        const struct hash_seed zero = {0};
        uint8_t counting[64];

        for (unsigned i = 0; i < sizeof(counting); i++)
                counting[i] = (uint8_t)i;
        assert_int_equal(hash_bytes(zero, "a", 1), UINT64_C(0x407448d2b89b1813));
        assert_int_equal(hash_bytes(zero, "abcdefg", 7), UINT64_C(0x6db12aae9070f506));
        assert_int_equal(hash_bytes(zero, "abcdefgh", 8), UINT64_C(0x3f7b849c0b8e35ea));
        assert_int_equal(hash_bytes(zero, "abcdefghi", 9), UINT64_C(0xf89b34a3d11eb6e5));
        assert_int_equal(hash_bytes(zero, counting, 64), UINT64_C(0x75e05fd5bbc870c6));
}

static void test_any_alignment(void **state)
{
        const struct hash_seed seed = hash_seed_random();
        char buf[40] = {0};
        uint64_t expected = hash_bytes(seed, "twenty bytes of text", 20);

        for (unsigned i = 0; i < 16; i++) {
                memcpy(buf + i, "twenty bytes of text", 20);
                assert_int_equal(hash_bytes(seed, buf + i, 20), expected);
        }
}

static void test_seeds_differ(void **state)
{
        struct hash_seed a = hash_seed_random(), b = hash_seed_random();

        assert_memory_not_equal(&a, &b, sizeof(a));
        assert_int_not_equal(hash_bytes(a, "x", 1), hash_bytes(b, "x", 1));
}

static void test_key32_is_the_same(void **state)
{
        uint8_t key[32 + 8];

        for (unsigned i = 0; i < 100; i++) {
                const struct hash_seed seed = hash_seed_random(), more = hash_seed_random();

                for (unsigned j = 0; j < sizeof(key); j++)
                        key[j] = (uint8_t)(more.k0 >> j % 8 * 8) ^ (uint8_t)(j * i);
                assert_int_equal(hash_key32(seed, key + i % 8), hash_bytes(seed, key + i % 8, 32));
        }
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                TEST(test_key_counting_up),
                TEST(test_key_zero),
                TEST(test_any_alignment),
                TEST(test_seeds_differ),
                TEST(test_key32_is_the_same),
        };

        return RUN_TESTS(tests);
}
