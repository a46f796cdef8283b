/* Divides 32-bit numbers by a constant n with a multiplication: each access to a page finds its set
 * (Lemire, Kaser, Kurz: "Faster remainder by direct computation", 2019; exact). */
#ifndef KVL_BASE_DIVIDE_H
#define KVL_BASE_DIVIDE_H

#include <stdint.h>

/* Returns divide()'s argument for n: 2^64 / n, rounded up; 0 for 1, and for 0 (as 1). */
static inline uint64_t divide_factor(uint32_t n)
{
        return n > 1 ? UINT64_MAX / n + 1 : 0;
}

static inline uint32_t divide(uint32_t x, uint64_t factor)
{
        __extension__ typedef unsigned __int128 wide;

        return factor == 0 ? x : (uint32_t)(((wide)factor * x) >> 64);
}

#endif
