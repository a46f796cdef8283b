/*
 * Growing arrays in which all-zero memory is the empty state. Doubling keeps the copying amortised;
 * the half in advance costs addresses only, as calloc gives large arrays as untouched zero pages.
 */
#ifndef KVL_POLICY_ARRAY_H
#define KVL_POLICY_ARRAY_H

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/macros.h"

/*
 * Replaces the owned array *array of *len elements by one of at least n, at most max (>= n),
 * elements, the new ones zero. 0 or -ENOMEM (unchanged).
 */
static inline int array_reserve(void **array, uint32_t *len, uint32_t n, uint32_t max, size_t size)
{
        uint64_t new_len = MIN(MAX((uint64_t)n, (uint64_t)*len * 2), (uint64_t)max);
        void *grown;

        if (n <= *len)
                return 0;
        grown = calloc(new_len, size);
        if (!grown)
                return -ENOMEM;
        if (*len > 0)
                memcpy(grown, *array, *len * size);
        free(*array);
        *array = grown;
        *len = (uint32_t)new_len;
        return 0;
}

/* Replaces the owned array *array of len elements by a zeroed one. 0 or -ENOMEM (unchanged). */
static inline int array_reset(void **array, uint32_t len, size_t size)
{
        void *fresh;

        if (len == 0)
                return 0;
        fresh = calloc(len, size);
        if (!fresh)
                return -ENOMEM;
        free(*array);
        *array = fresh;
        return 0;
}

#endif
