/* Pages under way: transfers between tiers (moves/transfer.h), and pages that are filled in place
 * (moves/fill.h). */
#ifndef KVL_CORE_MOVING_H
#define KVL_CORE_MOVING_H

#include <stdbool.h>
#include <stdint.h>

#include "base/list.h"
#include "daemon/core/state/geometry.h"
#include "daemon/core/state/ns.h"

struct copy_batch;
struct extent_set;

/* The writer of a page's bytes. */
struct fill_writer {
        /* The page's memory is about to be freed. When this returns, the writer has stopped and the
         * fill is freed. */
        void (*stop)(void *data);
        void *data; /* borrowed */
};

struct fill {
        struct list_link link; /* extent_set.moving.fills */
        struct ns *ns;         /* borrowed */
        struct extent_set *set;
        uint32_t page;
        struct fill_writer writer;
};

static inline uint64_t fill_bit(const struct extent_set *set, uint32_t page, uint64_t **ret_word)
{
        uint32_t at = page % set->ns->geometry.set_pages;

        *ret_word = set->moving.filled + at / 64;
        return UINT64_C(1) << at % 64;
}

/* Is the page of the set being filled? A MOVING page that is being filled was given back; only the
 * fill uses it. */
static inline bool fill_has(const struct extent_set *set, uint32_t page)
{
        uint64_t *word, bit;

        if (!set->moving.filled)
                return false;
        bit = fill_bit(set, page, &word);
        return *word & bit;
}

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
        /* OUT and IN; the copy batch has the bytes. done NULL: the end isn't reported. */
        struct transfer_buffer buffer;
        struct copy_batch *batch; /* the copy batch, whose page `place` this is */
        uint32_t place;
        bool is_unwanted; /* called off: a copy whose page was given back, or a demotion */
};

/* Does the transfer write to a page that is granted to a client? */
static inline bool transfer_fills_granted(const struct transfer *t)
{
        return t->kind == TRANSFER_COPY || t->kind == TRANSFER_IN;
}

#endif
