/*
 * Notes the use of pages that clients have found, over the socket or in shared memory. Loop thread
 * only.
 */
#ifndef KVL_CORE_FOUND_H
#define KVL_CORE_FOUND_H

#include "daemon/core/state/group.h"

/* Notes that a lookup found the page as its deepest, which counts for the pages before it, too.
 * Returns the number of pages that expect_touched() looked at. */
uint32_t found_note(struct attach *a, uint32_t page, uint64_t request);

/* Notes a lookup in shared memory, which the client reports afterwards. Ignores a page that doesn't
 * exist, or has another generation (low 32 bits) now. Returns the number of pages looked at. */
uint32_t touch_page(
        struct attach *a, uint32_t page, uint32_t generation, uint64_t request, uint64_t now_nsec);

/* Counts requests, keys that they asked for, and pages that they found, for statistics. */
void count_lookups(struct ns *ns, uint64_t n_lookups, uint64_t n_keys, uint64_t n_hits);

#endif
