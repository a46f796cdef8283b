/*
 * Random numbers for tests, the same on every machine for one seed. The seed is printed; set
 * KVL_TEST_SEED to it to see a failure again. One sequence per test program.
 */
#ifndef KVL_TESTS_TEST_RANDOM_H
#define KVL_TESTS_TEST_RANDOM_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static uint64_t random_state;

static inline void random_start(const char *test)
{
        const char *seed = getenv("KVL_TEST_SEED");
        struct timespec now;

        clock_gettime(CLOCK_REALTIME, &now);
        random_state = seed ? strtoull(seed, NULL, 0)
                            : (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
        fprintf(stderr, "%s: KVL_TEST_SEED=%#llx\n", test, (unsigned long long)random_state);
}

/* splitmix64, in the public domain */
static inline uint64_t random_u64(void)
{
        uint64_t z = random_state += 0x9e3779b97f4a7c15;

        z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
        z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
        return z ^ (z >> 31);
}

/* 0..n-1, n > 0 */
static inline uint32_t random_below(uint32_t n)
{
        return (uint32_t)(random_u64() % n);
}

#endif
