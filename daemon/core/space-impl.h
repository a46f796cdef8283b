/* The insides of a namespace's space on a disk, shared by space.c and space-identity.c. */
#ifndef KVL_CORE_SPACE_IMPL_H
#define KVL_CORE_SPACE_IMPL_H

#include <stdint.h>

#include "daemon/core/space.h"

/* By which a disk knows the space of a namespace, whatever daemon asks; ns NULL: of the tenant
 * alone, to whom spaces belong. SHA-256: nobody can make a name that has another's. 0; -ENOMEM;
 * -EIO. */
int space_identify(const struct tenant *t, const struct ns *ns, uint8_t ret_id[DISK_ID_BYTES]);

#endif
