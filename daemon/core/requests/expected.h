/*
 * What clients expect to be asked for soon (EXPECT; policy/expect.h): over the socket by keys, of
 * which the deepest that is cached is looked for, or by the page that the client has found in
 * shared memory. It is a hint: nothing of it is pinned, counted as a lookup, or kept over a
 * restart. Pages that lie below the device are brought up (tiers/prefetch.h). now_nsec:
 * CLOCK_MONOTONIC. Loop thread only.
 */
#ifndef KVL_CORE_EXPECTED_H
#define KVL_CORE_EXPECTED_H

#include <stdint.h>

#include "daemon/core/ground/detail.h"
#include "daemon/core/objects/group.h"

/*
 * A request will continue what is cached of the text with keys[0..n-1], within ttl_msec (0:
 * EXPECT_TTL_MSEC; more than EXPECT_TTL_MOST_MSEC counts as that). 0, also where nothing of it is
 * cached, or no memory is left to remember it in; KVL_STATUS_STALE.
 */
int expected_by_keys(struct attach *a, const uint8_t *keys, uint32_t n, uint32_t ttl_msec,
        uint64_t now_nsec, struct detail *d);

/* The same of a page that the client saw with this generation (low 32 bits). Ignored where that is
 * no page, or another one by now. Returns how many pages that took to go through. */
uint32_t expected_by_page(
        struct attach *a, uint32_t page, uint32_t generation, uint32_t ttl_msec, uint64_t now_nsec);

#endif
