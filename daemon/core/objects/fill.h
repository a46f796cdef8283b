/* A page whose bytes are being written into place: moves/fill.h. */
#ifndef KVL_CORE_OBJECTS_FILL_H
#define KVL_CORE_OBJECTS_FILL_H

#include <stdbool.h>
#include <stdint.h>

#include "base/list.h"
#include "daemon/core/objects/ns.h"

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

#endif
