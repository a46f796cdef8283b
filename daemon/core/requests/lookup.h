/*
 * Lookups over the socket: finds cached pages by their keys, pins and releases them, and takes in
 * reports of lookups in shared memory. now_nsec: CLOCK_MONOTONIC. Loop thread only.
 *
 * Page numbers and keys come from peers, and are checked. KVL_STATUS_STALE: the namespace changed
 * its version after this attachment was opened.
 */
#ifndef KVL_CORE_LOOKUP_H
#define KVL_CORE_LOOKUP_H

#include <stdint.h>

#include "daemon/core/state/group.h"

struct lookup_request {
        const uint8_t *keys; /* n of them; borrowed */
        uint32_t n;
        uint64_t now_nsec;
        uint64_t request; /* the engine's request, for the eviction policy; 0: none */
};

/* Finds the longest run of cached pages for the keys, and pins each once. ret_pages has space
 * for rq->n. Returns 0 with *ret_n > 0 pages and *ret_tokens tokens in them; KVL_STATUS_MISS with
 * *ret_n = 0; KVL_STATUS_QUOTA (more pins than a client may have), -ENOMEM, -EMFILE: no page is
 * pinned. */
int lookup_pages(struct attach *a, const struct lookup_request *rq, uint32_t *ret_pages,
        uint32_t *ret_n, uint64_t *ret_tokens, struct detail *d);

/* Removes one pin of each, deepest (last) first. Returns 0; -EINVAL: one isn't pinned by this
 * member (nothing changed). */
int release_pages(
        struct attach *a, const uint32_t *pages, uint32_t n, uint64_t now_nsec, struct detail *d);

#endif
