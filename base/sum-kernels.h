/* Implementations of sum.h for each kind of CPU: sum-kernel.c, compiled for each. All give the same
 * sums. */
#ifndef KVL_BASE_SUM_KERNELS_H
#define KVL_BASE_SUM_KERNELS_H

#include "base/sum.h"

/* One implementation of sum.h. A struct sum that it began is only for it. */
struct sum_kernels {
        const char *name;
        uint64_t (*of)(const void *bytes, size_t n);
        void (*begin)(struct sum *s);
        void (*add)(struct sum *s, const void *bytes, size_t n);
        void (*copy)(struct sum *s, void *to, const void *from, size_t n);
        uint64_t (*end)(const struct sum *s);
};

extern const struct sum_kernels sum_kernels_plain; /* for every CPU of the architecture */
#if defined(__x86_64__)
extern const struct sum_kernels sum_kernels_avx2;
extern const struct sum_kernels sum_kernels_avx512; /* F */
#endif

/* Returns the kernels that this CPU can run, the best first and the plain ones last; NULL after the
 * last. */
const struct sum_kernels *sum_kernels_at(unsigned i);

#endif
