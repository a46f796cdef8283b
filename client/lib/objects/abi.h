/*
 * Structs that users hand over begin with their size (kvlease.h), so that programs and libraries of
 * different versions understand each other: a shorter one lacks the last fields, a longer one has
 * fields that this version doesn't know.
 */
#ifndef KVL_LIB_ABI_H
#define KVL_LIB_ABI_H

#include <stddef.h>

/* Refuses a struct of the user whose size isn't set: -EINVAL with the sentence, which says whose
 * size (`what`, a genitive). NULL was not given, which is fine. */
int abi_check_size(const void *given, const char *what);

/*
 * Copies a struct of the user into `dst`, which has `size` bytes: zeros where it is shorter.
 * -EINVAL with the sentence where it is longer and sets what this version doesn't know, or has no
 * size.
 */
int abi_copy(void *dst, size_t size, const void *src);

/* Copies options in the same way, where the user gave any; NULL: `dst` is all zeros. */
int abi_copy_options(void *dst, size_t size, const void *options);

/* Refuses flags of which `known` hasn't all: -EINVAL with the sentence. */
int abi_check_flags(unsigned flags, unsigned known);

/* Fills what the user's struct `dst` has room for, but for its size. NULL: nothing. */
void abi_fill(void *dst, const void *src, size_t size);

#endif
