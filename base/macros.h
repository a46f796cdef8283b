/* Small compiler-level helpers for all directories. Nothing here allocates or calls out. */
#ifndef KVL_BASE_MACROS_H
#define KVL_BASE_MACROS_H

#include <assert.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/param.h> /* its MIN and MAX, which evaluate twice: replaced for good below */

#define ARRAY_SIZE(a) (sizeof(a) / sizeof((a)[0]))

#define container_of(ptr, type, member) ((type *)(void *)((char *)(ptr)-offsetof(type, member)))

#define KVL_PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))
#define KVL_MUST_USE          __attribute__((warn_unused_result))

#undef MIN
#undef MAX
#define MIN(a, b)                              \
        ({                                     \
                __typeof__(a) min_a = (a);     \
                __typeof__(b) min_b = (b);     \
                min_a < min_b ? min_a : min_b; \
        })
#define MAX(a, b)                              \
        ({                                     \
                __typeof__(a) max_a = (a);     \
                __typeof__(b) max_b = (b);     \
                max_a > max_b ? max_a : max_b; \
        })

/* Rounds up to a multiple of step (> 0). The caller rules out overflow. */
static inline uint64_t round_up_u64(uint64_t value, uint64_t step)
{
        return (value + step - 1) / step * step;
}

/* The ending of a noun with the count n. */
#define PLURAL(n) ((n) == 1 ? "" : "s")

/* Returns a - b; 0 if b is greater. */
static inline uint64_t minus_u64(uint64_t a, uint64_t b)
{
        return a > b ? a - b : 0;
}

/* Frees on scope exit: `_cleanup_free_ char *s = NULL;`. TAKE() hands the value on. */
static inline void cleanup_free_p(void *p)
{
        free(*(void **)p);
}
#define _cleanup_free_ __attribute__((cleanup(cleanup_free_p)))

#define TAKE(var)                                   \
        ({                                          \
                __typeof__(var) take_value = (var); \
                (var) = NULL;                       \
                take_value;                         \
        })

#endif
