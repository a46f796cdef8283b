/*
 * A page's bytes on their way between tiers of its namespace: moves/transfer.h.
 */
#ifndef KVL_CORE_OBJECTS_TRANSFER_H
#define KVL_CORE_OBJECTS_TRANSFER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/list.h"
#include "daemon/core/ground/geometry.h"

struct carry;
struct extent_set;
struct ns;

enum transfer_kind { TRANSFER_DOWN, TRANSFER_UP, TRANSFER_COPY, TRANSFER_PUT };

/* One page on its way. */
struct transfer {
        struct list_link link; /* store.moving.transfers */
        struct ns *ns;         /* borrowed */
        enum transfer_kind kind;
        uint32_t from, to;
        struct plane_range planes; /* which are moved: all, but for a copy */
        uint64_t from_generation, to_generation;
        uint64_t bytes;             /* of these, plain */
        struct extent_set *sets[2]; /* of `from`, `to` */
        struct carry *carry;        /* which has it, as its page `place` */
        uint32_t place;
        bool is_unwanted; /* called off: a copy whose page was given back, a way down */
};

#endif
