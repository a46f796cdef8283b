#include "base/array.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/macros.h"

static bool is_mapped(uint64_t bytes)
{
        return bytes >= ARRAY_MAPPED_BYTES;
}

/* Returns zeroed memory; NULL: none left. */
static void *alloc_zeroed(uint64_t bytes)
{
        void *made;

        if (!is_mapped(bytes))
                return calloc(1, bytes);
        made = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (made == MAP_FAILED)
                return NULL;
        /* Large arrays are accessed at random, and a processor caches the addresses of some
         * thousand pages. Without huge pages this has no effect. */
        if (bytes >= ARRAY_HUGE_BYTES)
                (void)madvise(made, bytes, MADV_HUGEPAGE);
        return made;
}

static void free_memory(void *array, uint64_t bytes)
{
        if (is_mapped(bytes))
                munmap(array, bytes);
        else
                free(array);
}

static void *grow_memory(void *array, uint64_t from_bytes, uint64_t to_bytes)
{
        void *grown;

        if (is_mapped(from_bytes)) {
                grown = mremap(array, from_bytes, to_bytes, MREMAP_MAYMOVE);
                return grown == MAP_FAILED ? NULL : grown;
        }
        grown = alloc_zeroed(to_bytes);
        if (!grown)
                return NULL;
        if (from_bytes > 0)
                memcpy(grown, array, from_bytes);
        free_memory(array, from_bytes);
        return grown;
}

int array_reserve(void **array, uint32_t *len, uint32_t n, uint32_t max, size_t size)
{
        uint64_t new_len = MIN(MAX((uint64_t)n, (uint64_t)*len * 2), (uint64_t)max);
        void *grown;

        if (n <= *len)
                return 0;
        grown = grow_memory(*array, *len * size, new_len * size);
        if (!grown)
                return -ENOMEM;
        *array = grown;
        *len = (uint32_t)new_len;
        return 0;
}

int array_reset(void **array, uint32_t len, size_t size)
{
        void *fresh;

        if (len == 0)
                return 0;
        fresh = alloc_zeroed(len * size);
        if (!fresh)
                return -ENOMEM;
        free_memory(*array, len * size);
        *array = fresh;
        return 0;
}

void array_free(void *array, uint32_t len, size_t size)
{
        if (array)
                free_memory(array, len * size);
}
