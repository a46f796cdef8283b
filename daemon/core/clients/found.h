/*
 * What is noted when a client found pages, over the socket or in shared memory. Loop thread only.
 */
#ifndef KVL_CORE_FOUND_H
#define KVL_CORE_FOUND_H

#include "daemon/core/objects/group.h"

/* A lookup has found the page as its deepest: that speaks for what comes before it, too. Returns
 * how many pages it took to find what was expected (expect_touched()). */
uint32_t found_note(struct attach *a, uint32_t page, uint64_t request);

/* A lookup in shared memory found the page, which is told afterwards. Ignored where that is no
 * page, or has another generation (low 32 bits) by now. Returns how many pages that took to go
 * through. */
uint32_t touch_page(
        struct attach *a, uint32_t page, uint32_t generation, uint64_t request, uint64_t now_nsec);

/* Counts requests, keys that they asked for, and pages that were found: figures for people. */
void count_lookups(struct ns *ns, uint64_t n_lookups, uint64_t n_keys, uint64_t n_hits);

#endif
