#include "tests/unit/test-support.h"

#include <string.h>

#include "base/hash.h"
#include "base/macros.h"

/* First vector of SipHash-1-3 for key 00 01 .. 0f (the empty message), from Rust's core tests. */
TEST(test_key_counting_up)
{
        const struct hash_seed seed = {UINT64_C(0x0706050403020100), UINT64_C(0x0f0e0d0c0b0a0908)};

        assert_int_equal(hash_bytes(seed, "", 0), UINT64_C(0xabac0158050fc4dc));
}

/* CPython 3.11 hashes bytes by SipHash-1-3; these come from it with PYTHONHASHSEED=0. */
TEST(test_key_zero)
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

TEST(test_any_alignment)
{
        const struct hash_seed seed = hash_seed_random();
        char buf[40] = {0};
        uint64_t expected = hash_bytes(seed, "twenty bytes of text", 20);

        for (unsigned i = 0; i < 16; i++) {
                memcpy(buf + i, "twenty bytes of text", 20);
                assert_int_equal(hash_bytes(seed, buf + i, 20), expected);
        }
}

TEST(test_seeds_differ)
{
        struct hash_seed a = hash_seed_random(), b = hash_seed_random();

        assert_memory_not_equal(&a, &b, sizeof(a));
        assert_int_not_equal(hash_bytes(a, "x", 1), hash_bytes(b, "x", 1));
}

/* Computed by another program (Python's whole numbers) from docs/reference/PROTOCOL.md. */
TEST(test_digest_vectors)
{
        const struct hash_seed zero = {0},
                               seed = {UINT64_C(0x0706050403020100), UINT64_C(0x0f0e0d0c0b0a0908)};
        uint8_t key[32 + 1] = {0};

        assert_int_equal(hash_digest(zero, key), UINT64_C(0x6f31184e94d851ba));
        for (unsigned i = 0; i < 32; i++)
                key[1 + i] = (uint8_t)i;
        assert_int_equal(hash_digest(seed, key + 1), UINT64_C(0x810db8497576386d));
}

#define N_BINS 4096
#define N_EACH 16

/* How far from even: the sum over bins of (count - expected)^2 / expected. */
static double chi_square(const uint32_t counts[N_BINS])
{
        double sum = 0;

        for (unsigned i = 0; i < N_BINS; i++)
                sum += ((double)counts[i] - N_EACH) * ((double)counts[i] - N_EACH) / N_EACH;
        return sum;
}

/*
 * Keys that differ in two bytes alone, wherever: as evenly as by chance in buckets (by the lower
 * half) and in tags (the upper half). By chance the sum is 4,095 with a deviation of
 * sqrt(2 * 4,095) = 90.5; six of those are allowed, for the 248 sums of this test.
 */
TEST(test_digests_are_spread)
{
        const struct hash_seed seeds[] = {{0}, {3, 4}, {UINT64_MAX, 1}, {1, UINT64_C(1) << 63}};
        uint32_t buckets[N_BINS], tags[N_BINS];

        for (unsigned at = 0; at < 31; at++) {
                for (size_t k = 0; k < ARRAY_SIZE(seeds); k++) {
                        uint8_t key[32] = {0};

                        memset(buckets, 0, sizeof(buckets));
                        memset(tags, 0, sizeof(tags));
                        for (unsigned i = 0; i < N_BINS * N_EACH; i++) {
                                uint64_t hash;

                                key[at] = (uint8_t)i;
                                key[at + 1] = (uint8_t)(i >> 8);
                                hash = hash_digest(seeds[k], key);
                                buckets[(uint64_t)(uint32_t)hash * N_BINS >> 32]++;
                                tags[hash >> 52]++;
                        }
                        if (chi_square(buckets) > 4095 + 6 * 90.5 ||
                                chi_square(tags) > 4095 + 6 * 90.5)
                                fail_msg("bytes %u and %u, seed %zu: %.0f, %.0f", at, at + 1, k,
                                        chi_square(buckets), chi_square(tags));
                }
        }
}
