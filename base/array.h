/*
 * Growing arrays of numbers whose empty state is all-zero memory. Small ones double by copying.
 * From ARRAY_MAPPED_BYTES on an array is a mapping of its own. The kernel moves it without touching
 * its contents, and its new part takes only addresses until it is written. So growing a very large
 * array takes no longer. Not thread-safe.
 *
 * An array is an owned pointer and a length, both the caller's, first NULL and 0. The element's
 * size is always the same. Elements must not be pointers to allocated memory: leak checkers don't
 * search mappings.
 */
#ifndef KVL_BASE_ARRAY_H
#define KVL_BASE_ARRAY_H

#include <stddef.h>
#include <stdint.h>

/* Copying this much takes some 0.1 ms. Not tuned. */
#define ARRAY_MAPPED_BYTES (UINT64_C(1) << 20)

/* From this size on an array uses huge pages, if the host has them (transparent_hugepage is
 * "always" or "madvise"). At most one huge page, 2 MiB, is used beyond the written part. */
#define ARRAY_HUGE_BYTES (UINT64_C(8) << 20)

/* Replaces the owned array *array of *len elements by one of at least n and at most max (>= n)
 * elements; new ones are zero. Returns 0 or -ENOMEM (unchanged). */
int array_reserve(void **array, uint32_t *len, uint32_t n, uint32_t max, size_t size);

/* Replaces the owned array *array of len elements by a zeroed one. Returns 0 or -ENOMEM
 * (unchanged). */
int array_reset(void **array, uint32_t len, size_t size);

/* Frees an array that array_reserve() made, which has len elements. Does nothing for NULL. */
void array_free(void *array, uint32_t len, size_t size);

#endif
