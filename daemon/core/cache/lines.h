/*
 * Prefetches cache lines of pages and keys. The daemon's data about a page lies in a dozen places
 * (record, note, line of the index, pins, tree, policy). Its data about a key lies in some more
 * (index, history, ghosts). Each is a miss in a large namespace; fetched together they take as long
 * as one. These functions change nothing and accept any page number and any key. Not related to
 * promotion from lower tiers (prefetch.h). Loop thread only.
 */
#ifndef KVL_CORE_LINES_H
#define KVL_CORE_LINES_H

#include <stdint.h>

#include "daemon/core/state/ns.h"

/* The page is found, pinned or unpinned soon. */
void lines_prefetch_used(const struct ns *ns, uint32_t page);

/* The page is published or dropped soon. */
void lines_prefetch_page(const struct ns *ns, uint32_t page);

/* A page with this key is published or dropped soon. */
void lines_prefetch_key(const struct ns *ns, const uint8_t key[KEY_BYTES]);

/* Victims come in a row: after a leaf was evicted, its parent is a leaf of the same age. Zeroed:
 * nothing is known. For one call that evicts. */
struct lines_ahead {
        uint32_t next;            /* the last victim's parent */
        uint32_t page, key;       /* the last ones prefetched, further up the text */
        uint32_t n_pages, n_keys; /* their distances from `next` */
};

/* This page of the tree is dropped now. Prefetches the next victims if it continues the row. */
void lines_prefetch_victims(struct lines_ahead *ahead, const struct ns *ns, uint32_t victim);

#endif
