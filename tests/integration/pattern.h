/*
 * Contents and keys of test pages. Both follow from small numbers, so any process can tell the
 * right bytes of a page. Keys are the same for all tenants on purpose; contents follow from a seed
 * that has the tenant in it.
 */
#ifndef KVL_TEST_PATTERN_H
#define KVL_TEST_PATTERN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* splitmix64 (Steele, Lea, Flood 2014). */
static inline uint64_t pattern_mix(uint64_t x)
{
        x += UINT64_C(0x9e3779b97f4a7c15);
        x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
        x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
        return x ^ (x >> 31);
}

/* A generator: *state is the seed, and advances. */
static inline uint64_t pattern_next(uint64_t *state)
{
        *state += UINT64_C(0x9e3779b97f4a7c15);
        return pattern_mix(*state);
}

/* Key of page `index` of text `chain`. */
static inline void pattern_key(uint64_t chain, uint64_t index, uint8_t ret_key[32])
{
        for (unsigned i = 0; i < 4; ++i) {
                uint64_t word = pattern_mix(pattern_mix(pattern_mix(chain) + index) + i);

                memcpy(ret_key + i * 8, &word, 8);
        }
}

/* Seed of that page's content for one tenant. */
static inline uint64_t pattern_seed(const char *tenant, uint64_t chain, uint64_t index)
{
        uint64_t h = 0;

        for (; *tenant; ++tenant)
                h = pattern_mix(h + (uint8_t)*tenant);
        return pattern_mix(pattern_mix(h + chain) + index);
}

/* Fills, or compares, `bytes` of plane `plane` of a page, from `offset` on; both are multiples of
 * 8. */
static inline void pattern_fill_from(
        void *at, size_t bytes, uint64_t seed, unsigned plane, uint64_t offset)
{
        uint64_t *words = at;

        for (size_t i = 0; i < bytes / 8; ++i)
                words[i] = pattern_mix(seed + ((uint64_t)plane << 32) + offset / 8 + i);
}

static inline bool pattern_matches_from(
        const void *at, size_t bytes, uint64_t seed, unsigned plane, uint64_t offset)
{
        const uint64_t *words = at;

        for (size_t i = 0; i < bytes / 8; ++i)
                if (words[i] != pattern_mix(seed + ((uint64_t)plane << 32) + offset / 8 + i))
                        return false;
        return true;
}

/* The whole page. */
static inline void pattern_fill(void *page, size_t bytes, uint64_t seed, unsigned plane)
{
        pattern_fill_from(page, bytes, seed, plane, 0);
}

static inline bool pattern_matches(const void *page, size_t bytes, uint64_t seed, unsigned plane)
{
        return pattern_matches_from(page, bytes, seed, plane, 0);
}

#endif
