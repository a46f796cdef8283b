/* User structs begin with their size (kvlease.h), so that programs and libraries of different
 * versions understand each other. A shorter struct lacks the last fields. A longer one has fields
 * that this version doesn't know. */
#ifndef KVL_LIB_ABI_H
#define KVL_LIB_ABI_H

#include <stddef.h>

/* Refuses a user struct whose size isn't set: -EINVAL with the sentence, in which `what` (a
 * genitive) names the struct. Accepts NULL. */
int abi_check_size(const void *given, const char *what);

/* Copies a user struct into `dst`, which has `size` bytes; fields that it lacks are zero. Returns
 * -EINVAL with the sentence if it has no size, or sets fields that this version doesn't know. */
int abi_copy(void *dst, size_t size, const void *src);

/* Copies options in the same way; NULL: `dst` is all zeros. */
int abi_copy_options(void *dst, size_t size, const void *options);

/* Refuses flags that are not in `known`: -EINVAL with the sentence. */
int abi_check_flags(unsigned flags, unsigned known);

/* Fills the user's struct `dst` as far as its size goes; keeps its size field. NULL: nothing. */
void abi_fill(void *dst, const void *src, size_t size);

#endif
