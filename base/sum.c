#include "base/sum.h"

#include <stdatomic.h>
#include <stdbool.h>

#include "base/macros.h"
#include "base/sum-kernels.h"

static bool can_run(const struct sum_kernels *k)
{
#if defined(__x86_64__)
        if (k == &sum_kernels_avx512)
                return __builtin_cpu_supports("avx512f");
        if (k == &sum_kernels_avx2)
                return __builtin_cpu_supports("avx2");
#endif
        return true;
}

const struct sum_kernels *sum_kernels_at(unsigned i)
{
        static const struct sum_kernels *const all[] = {
#if defined(__x86_64__)
                &sum_kernels_avx512,
                &sum_kernels_avx2,
#endif
                &sum_kernels_plain,
        };

        for (unsigned n = 0; n < ARRAY_SIZE(all); n++)
                if (can_run(all[n]) && i-- == 0)
                        return all[n];
        return NULL;
}

static const struct sum_kernels *best_kernels(void)
{
        static const struct sum_kernels *_Atomic found;
        const struct sum_kernels *k = atomic_load_explicit(&found, memory_order_relaxed);

        if (!k) {
                k = sum_kernels_at(0);
                atomic_store_explicit(&found, k, memory_order_relaxed);
        }
        return k;
}

uint64_t sum_of(const void *bytes, size_t n)
{
        return best_kernels()->of(bytes, n);
}

void sum_begin(struct sum *s)
{
        best_kernels()->begin(s);
}

void sum_add(struct sum *s, const void *bytes, size_t n)
{
        best_kernels()->add(s, bytes, n);
}

void sum_copy(struct sum *s, void *to, const void *from, size_t n)
{
        best_kernels()->copy(s, to, from, n);
}

uint64_t sum_end(const struct sum *s)
{
        return best_kernels()->end(s);
}
