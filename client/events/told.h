/*
 * The blocks that routers were told, and by how many pages in each tier. Pages have blocks in
 * common if their texts differ within a page, or if one of them is partial. A router counts a block
 * once, so it is told with the first page and removed with the last one. Not thread-safe.
 */
#ifndef KVL_EVENTS_TOLD_H
#define KVL_EVENTS_TOLD_H

#include <stdbool.h>
#include <stdint.h>

#include "base/map.h"

struct told {
        struct map blocks; /* hash -> for each tier: a mark and the number of pages */
};

void told_init(struct told *t);
void told_deinit(struct told *t);

/* Makes room for n_blocks blocks in all. Returns 0 or -ENOMEM. */
int told_reserve(struct told *t, uint64_t n_blocks);

/* Counts a page more or less. Returns whether it is the first, or the last, with the block in the
 * tier. From a million pages on a block stays told until the end. */
bool told_add(struct told *t, uint64_t hash, unsigned tier);  /* there is room for it */
bool told_drop(struct told *t, uint64_t hash, unsigned tier); /* it was added */

/* Whether a page has the block in the tier. */
bool told_has(const struct told *t, uint64_t hash, unsigned tier);

/* Marks a block that was added. Returns whether it had no mark in this tier. */
bool told_mark(struct told *t, uint64_t hash, unsigned tier);
void told_unmark_all(struct told *t);

#endif
