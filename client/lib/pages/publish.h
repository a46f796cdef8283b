/* Pages are published, or given back unpublished, by calls that a stream of a GPU begins: what
 * ahead/stream.c uses of publish.c. */
#ifndef KVL_LIB_PUBLISH_H
#define KVL_LIB_PUBLISH_H

#include <stdint.h>

#include "client/lib/kvlease.h"

struct op_type;

extern const struct op_type op_type_publish, op_type_free;

/* Copies what the user wants published, as abi_copy(), and checks it. 0; -EINVAL, -ECHILD, -EIO
 * with the sentence. */
int publish_copy(const struct kvl_ns *ns, const struct kvl_publish *publish, uint32_t max_pages,
        struct kvl_publish *ret);

#endif
