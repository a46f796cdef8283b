/*
 * Growing arrays of numbers in which all-zero memory is the empty state. Small ones double by
 * copying. From ARRAY_MAPPED_BYTES on an array is a mapping of its own, which the kernel moves
 * without touching what is in it, and whose new part costs addresses only until it is written to:
 * so growing takes no longer with very many elements. Not thread-safe.
 *
 * An array is an owned pointer and a length, both the caller's: NULL and 0 at first, and the
 * element's size is always the same. No pointers to what is allocated elsewhere may lie in it: leak
 * checkers don't look into mappings.
 */
#ifndef KVL_BASE_ARRAY_H
#define KVL_BASE_ARRAY_H

#include <stddef.h>
#include <stdint.h>

/* Not tuned: copying so much takes some 0.1 ms. */
#define ARRAY_MAPPED_BYTES (UINT64_C(1) << 20)

/* From here on an array is in huge pages, where the host has them (transparent_hugepage is "always"
 * or "madvise"): at most one huge page, 2 MiB, is in use beyond what was written to. */
#define ARRAY_HUGE_BYTES (UINT64_C(8) << 20)

/*
 * Replaces the owned array *array of *len elements by one of at least n, at most max (>= n),
 * elements, the new ones zero. 0 or -ENOMEM (unchanged).
 */
int array_reserve(void **array, uint32_t *len, uint32_t n, uint32_t max, size_t size);

/* Replaces the owned array *array of len elements by a zeroed one. 0 or -ENOMEM (unchanged). */
int array_reset(void **array, uint32_t len, size_t size);

/* Frees an array that array_reserve() made, which has len elements. Does nothing for NULL. */
void array_free(void *array, uint32_t len, size_t size);

#endif
