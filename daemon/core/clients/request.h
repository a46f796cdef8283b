/*
 * The inference requests that clients name in their calls. Policies learn what a request does and
 * when it ends, so that they know which pages are used together. A request finds pages over the
 * socket or in shared memory. Loop thread only.
 */
#ifndef KVL_CORE_REQUEST_H
#define KVL_CORE_REQUEST_H

#include <stdint.h>

#include "daemon/core/state/group.h"
#include "daemon/core/state/store.h"

/* Returns the number by which policies know a request. Clients number their requests themselves,
 * each from 1. 0 (no request) stays 0. */
uint64_t request_id(const struct attach *a, uint64_t request);

/* Calls store.owner.on_request with the event of a request, by request_id(). value: the page; of
 * REQUEST_ENDED the ending. */
void request_tell(struct ns *ns, uint64_t request, enum request_event what, uint32_t value);

/* Ends the client's request; 0: does nothing. ending: how its generation ended, for the policy
 * (evict_ops.ending()); 0: unknown. */
void request_end(struct attach *a, uint64_t request, uint32_t ending, uint64_t now_nsec);

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
