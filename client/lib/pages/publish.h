/* Publishing or freeing pages by calls that a GPU stream begins: the part of publish.c that
 * pages/stream.c uses. */
#ifndef KVL_LIB_PUBLISH_H
#define KVL_LIB_PUBLISH_H

#include <stdint.h>

#include "client/lib/kvlease.h"

struct op_type;

extern const struct op_type op_type_publish, op_type_free;

/* Copies the user's publish, as abi_copy(), and checks it. Returns 0; -EINVAL, -ECHILD, -EIO with
 * the sentence. */
int publish_copy(const struct kvl_ns *ns, const struct kvl_publish *publish, uint32_t max_pages,
        struct kvl_publish *ret);

#endif
