/* Pseudo-random numbers, the same in each run. */
#ifndef KVL_POLICY_HOSTS_MIX_H
#define KVL_POLICY_HOSTS_MIX_H

#include <stdint.h>

/* The finalizer of splitmix64 (Steele, Lea, Flood 2014). */
static inline uint64_t hosts_mix(uint64_t x)
{
        x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
        x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
        return x ^ x >> 31;
}

#endif
