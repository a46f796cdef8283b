/* Argument checks of public functions: -EINVAL or -ECHILD with the sentence. */
#ifndef KVL_LIB_ARGS_H
#define KVL_LIB_ARGS_H

#include <stddef.h>
#include <stdint.h>

#include "client/lib/objects/ns.h"

/* A namespace must be given, in the process that opened it. */
int args_check_ns(const struct kvl_ns *ns);

/* Checks that n is 1 to `max`; the sentence calls the items `what`. */
int args_check_count(const char *what, uint32_t n, uint32_t max);

/* A namespace and 1 to `max` pages of it must be given. */
int args_check_pages(const struct kvl_ns *ns, const uint32_t *pages, uint32_t n, uint32_t max);

/* Notes what is wrong with the keys: called by args_check_keys(). */
int args_refuse_keys(const struct kvl_ns *ns, const uint8_t *keys, uint32_t n, uint32_t max);

/* A namespace and 1 to `max` keys must be given. */
static inline int args_check_keys(
        const struct kvl_ns *ns, const uint8_t *keys, uint32_t n, uint32_t max)
{
        if (ns && keys && n >= 1 && n <= max && client_check_process(ns->conn) == 0)
                return 0;
        return args_refuse_keys(ns, keys, n, max);
}

/* User structs begin with their size (kvlease.h), so that programs and libraries of different
 * versions understand each other. A shorter struct lacks the last fields. A longer one has fields
 * that this version doesn't know. */

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
