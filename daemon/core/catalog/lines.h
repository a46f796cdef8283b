/*
 * Cache lines that are looked at soon are asked for. What the daemon knows of a page lies in a
 * dozen places (record, note, line of the index, pins, tree, policy) and what it knows of a key in
 * some more (index, history, ghosts), each of them a miss in a large namespace: asked for together
 * they take as long as one. Nothing is changed, and any page number and any key may be given. Not
 * what is brought up from lower tiers (prefetch.h). Loop thread only.
 */
#ifndef KVL_CORE_LINES_H
#define KVL_CORE_LINES_H

#include <stdint.h>

#include "daemon/core/objects/ns.h"

/* The page is found, pinned or unpinned soon. */
void lines_prefetch_used(const struct ns *ns, uint32_t page);

/* The page is published, or goes, soon. */
void lines_prefetch_page(const struct ns *ns, uint32_t page);

/* A page with this key is. */
void lines_prefetch_key(const struct ns *ns, const uint8_t key[KEY_BYTES]);

/*
 * Victims come in a row: where a leaf went, what it continued is a leaf now, and as old. Zeroed:
 * nothing is known. For one call that evicts.
 */
struct lines_ahead {
        uint32_t next;            /* what the last victim continued */
        uint32_t page, key;       /* up the text from there: what was asked for last */
        uint32_t n_pages, n_keys; /* how far up from `next` on these are */
};

/* This page of the tree goes now; asks for those that go after it, if it is as above. */
void lines_prefetch_victims(struct lines_ahead *ahead, const struct ns *ns, uint32_t victim);

#endif
