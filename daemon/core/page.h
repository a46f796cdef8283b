/*
 * A page's record: 64 bytes, the truth about it. Private to the daemon.
 *
 *   FREE -> GRANTED (one group may write) -> SEALED (immutable, in index and tree) -> FREE
 * (evicted)
 *              \-> FREE (given back, group died)      \-> DETACHED (out of the index, pinned) ->
 * FREE
 *
 * A SEALED page whose epoch is older than its namespace's is *stale*: in no index and no tree,
 * waiting for the sweep to free (or detach) it. RETIRING and MOVING belong to the shared-memory
 * path and the tiers; their numbers are kept free for them.
 */
#ifndef KVL_CORE_PAGE_H
#define KVL_CORE_PAGE_H

#include <assert.h>
#include <stdint.h>

#include "daemon/core/index.h"

enum page_state {
        PAGE_FREE = 0,
        PAGE_GRANTED = 1,
        PAGE_SEALED = 2,
        PAGE_RETIRING = 3, /* reserved */
        PAGE_MOVING = 4,   /* reserved */
        PAGE_DETACHED = 5,
        PAGE_QUARANTINED = 6, /* reserved */
        PAGE_NULL = 7,        /* page 0 of a namespace that keeps it ungranted */
};

struct page {
        uint8_t key[KEY_BYTES];   /* SEALED, DETACHED */
        uint64_t generation : 56; /* one more each time it leaves FREE */
        uint64_t state : 8;       /* enum page_state */
        uint32_t epoch;           /* of the namespace when granted (low 32 bits) */
        uint32_t n_pins;          /* over all members; SEALED, DETACHED */
        uint32_t owner;           /* GRANTED: group id */
        uint32_t prev, next; /* FREE: its set's free list (next only); GRANTED: its group's grants.
                                PAGE_NONE ends */
        uint16_t tokens;     /* SEALED, DETACHED */
        uint16_t mark;       /* scratch of one call (free_pages); 0 outside of it */
};

static_assert(sizeof(struct page) == 64, "one cache line a page");

const char *page_state_name(enum page_state s);

#endif
