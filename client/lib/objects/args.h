/* Argument checks of public functions: -EINVAL or -ECHILD with the sentence. */
#ifndef KVL_LIB_ARGS_H
#define KVL_LIB_ARGS_H

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

#endif
