/*
 * Lookups over the socket: cached pages are found by their keys, pinned and released; and what the
 * daemon is told of lookups that clients made in shared memory. now_nsec: CLOCK_MONOTONIC. Loop
 * thread only.
 *
 * Page numbers and keys come from peers, and are checked. KVL_STATUS_STALE: the namespace changed
 * its version after this attachment was opened.
 */
#ifndef KVL_CORE_LOOKUP_H
#define KVL_CORE_LOOKUP_H

#include <stdint.h>

#include "daemon/core/objects/group.h"

/*
 * The longest run of cached pages for keys[0..n-1], each pinned once. ret_pages has room for n,
 * whatever is found. 0 with *ret_n > 0 pages and
 * *ret_tokens tokens in them; KVL_STATUS_MISS with *ret_n = 0; KVL_STATUS_QUOTA (more pins than a
 * client may have), -ENOMEM, -EMFILE: nothing pinned.
 */
int lookup_pages(struct attach *a, const uint8_t *keys, uint32_t n, uint64_t request,
        uint64_t now_nsec, uint32_t *ret_pages, uint32_t *ret_n, uint64_t *ret_tokens,
        struct detail *d);

/* Drops one pin each, deepest (last) first. -EINVAL where one isn't pinned by this member: none
 * dropped. */
int release_pages(
        struct attach *a, const uint32_t *pages, uint32_t n, uint64_t now_nsec, struct detail *d);

#endif
