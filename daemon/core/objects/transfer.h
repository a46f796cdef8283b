/* The transfer of a page's bytes between tiers of its namespace: moves/transfer.h. */
#ifndef KVL_CORE_OBJECTS_TRANSFER_H
#define KVL_CORE_OBJECTS_TRANSFER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/list.h"
#include "daemon/core/ground/geometry.h"

struct carry;
struct extent_set;
struct ns;

enum transfer_kind {
        TRANSFER_DOWN,
        TRANSFER_UP,
        TRANSFER_COPY,
        TRANSFER_PUT,
        TRANSFER_OUT, /* to a buffer: `to` is PAGE_NONE */
        TRANSFER_IN,  /* from a buffer: `from` is PAGE_NONE */
};

/* A buffer that takes the place of a page at one end of a transfer. */
struct transfer_buffer {
        /* Heap memory that the transfer owns while it is under way. The page's page_travel_bytes()
         * begin at `at`: plain, plane after plane, or as TIER_HOST stores it. */
        uint8_t *bytes;
        size_t at;
        /* The transfer has ended and is freed: 0 or -errno. The callee owns the bytes. */
        void (*done)(uint8_t *bytes, int result, void *data);
        void *data; /* borrowed */
};

/* One page in transfer. */
struct transfer {
        struct list_link link; /* store.moving.transfers */
        struct ns *ns;         /* borrowed */
        enum transfer_kind kind;
        uint32_t from, to;
        struct plane_range planes; /* planes to move: all, except for a copy */
        uint64_t from_generation, to_generation;
        uint64_t bytes;             /* of these planes, plain */
        struct extent_set *sets[2]; /* sets of `from` and `to`; NULL: that end is a buffer */
        /* OUT and IN; the carry has the bytes. done NULL: the end isn't reported. */
        struct transfer_buffer buffer;
        struct carry *carry; /* the copy batch, whose page `place` this is */
        uint32_t place;
        bool is_unwanted; /* called off: a copy whose page was given back, or a demotion */
};

/* Does the transfer write to a page that is granted to a client? */
static inline bool transfer_fills_granted(const struct transfer *t)
{
        return t->kind == TRANSFER_COPY || t->kind == TRANSFER_IN;
}

#endif
