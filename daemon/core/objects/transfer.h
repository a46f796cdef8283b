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

enum transfer_kind {
        TRANSFER_DOWN,
        TRANSFER_UP,
        TRANSFER_COPY,
        TRANSFER_PUT,
        TRANSFER_OUT, /* to a buffer: `to` is PAGE_NONE */
        TRANSFER_IN,  /* from a buffer: `from` is PAGE_NONE */
};

/* What a page's bytes go to or come from, in the place of another page. */
struct transfer_buffer {
        /* Heap memory, which the transfer owns while it is under way. All of the page lies there
         * from `at` on, page_travel_bytes(): plain, plane after plane, or as TIER_HOST stores it.
         */
        uint8_t *bytes;
        size_t at;
        /* The transfer is over, and is gone: 0, or why it failed (-errno). Who is called owns the
         * bytes from then on. */
        void (*done)(uint8_t *bytes, int result, void *data);
        void *data; /* borrowed */
};

/* One page on its way. */
struct transfer {
        struct list_link link; /* store.moving.transfers */
        struct ns *ns;         /* borrowed */
        enum transfer_kind kind;
        uint32_t from, to;
        struct plane_range planes; /* which are moved: all, but for a copy */
        uint64_t from_generation, to_generation;
        uint64_t bytes;             /* of these, plain */
        struct extent_set *sets[2]; /* of `from`, `to`; NULL: that end is a buffer */
        /* Of OUT and IN, whose bytes the carry has. done NULL: nobody wants to know how it ends. */
        struct transfer_buffer buffer;
        struct carry *carry; /* which has it, as its page `place` */
        uint32_t place;
        bool is_unwanted; /* called off: a copy whose page was given back, a way down */
};

/* Does it write to a page that is granted to a client? */
static inline bool transfer_fills_granted(const struct transfer *t)
{
        return t->kind == TRANSFER_COPY || t->kind == TRANSFER_IN;
}

#endif
