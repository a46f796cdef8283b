/*
 * Texts that clients expect to ask for soon (EXPECT; policy/expect.h): given over the socket by
 * keys, of which the deepest cached one counts, or by a page found in shared memory. A hint:
 * nothing is pinned or counted as a lookup, and it doesn't survive a restart. Pages in lower tiers
 * are promoted (reclaim/prefetch.h). now_nsec: CLOCK_MONOTONIC. Loop thread only.
 */
#ifndef KVL_CORE_EXPECTED_H
#define KVL_CORE_EXPECTED_H

#include <stdint.h>

#include "daemon/core/state/detail.h"
#include "daemon/core/state/group.h"

/* Announces that a request will continue the cached beginning of the text with keys[0..n-1] within
 * ttl_msec (0: EXPECT_TTL_MSEC; at most EXPECT_TTL_MOST_MSEC). Returns 0, also if no page of it is
 * cached, or without memory to remember it; KVL_STATUS_STALE. */
int expected_by_keys(struct attach *a, const uint8_t *keys, uint32_t n, uint32_t ttl_msec,
        uint64_t now_nsec, struct detail *d);

/* Does the same for a page that the client saw with this generation (low 32 bits). Ignores a page
 * that doesn't exist, or has another generation now. Returns the number of pages walked. */
uint32_t expected_by_page(
        struct attach *a, uint32_t page, uint32_t generation, uint32_t ttl_msec, uint64_t now_nsec);

#endif
